"""Models and adapters of other people: what is damaged, or declares more than it holds, is refused before it is allocated."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from headwise.core.errors import ModelError
from headwise.model import load
from headwise.model.gguf_header import BLOCKS, check_gguf
from headwise.model.stored import open_stored


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def gguf(*, tensors: int = 0, entries: int = 0, body: bytes = b"", version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, entries) + body


def tensor(*dims: int, kind: int = 0, offset: int = 0) -> bytes:
    return text("w") + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def array(inner: int, count: int) -> bytes:
    return text("k") + struct.pack("<IIQ", 9, inner, count)


BOMBS = {
    "a list of 10^18 numbers": (gguf(entries=1, body=array(0, 10**18)), "declares a list of 1,000,000,000,000,000,000"),
    "a list of 10^6 texts": (gguf(entries=1, body=array(8, 10**6)), "declares 1,000,000 entries of a list and has"),
    "lists of lists of lists": (gguf(entries=1, body=array(9, 1) + struct.pack("<IQ", 9, 1) * 3), "unknown type 9"),
    "a text of 2^60 bytes": (gguf(entries=1, body=struct.pack("<Q", 2**60) + bytes(8)), "bytes of text and has"),
    "10^15 entries": (gguf(entries=10**15), "declares 1,000,000,000,000,000 entries of metadata"),
    "10^15 tensors": (gguf(tensors=10**15), "declares 1,000,000,000,000,000 tensors"),
    "a tensor of petabytes": (gguf(tensors=1, body=tensor(10**9, 10**6)), "its tensor 'w' ends 4000 TB after the file"),
    "a quantised tensor": (gguf(tensors=1, body=tensor(2**30, kind=2)), "its tensor 'w' ends 604.0 MB after the file"),
    "a tensor far away": (gguf(tensors=1, body=tensor(1, offset=2**62)), "after the file"),
    "a tensor of many dims": (gguf(tensors=1, body=text("w") + struct.pack("<I", 10**9) + bytes(40)), "1,000,000,000 dims"),
    "a tensor of an unknown type": (gguf(tensors=1, body=tensor(1, kind=99)), "has the unknown type 99"),
    "metadata of an unknown type": (gguf(entries=1, body=text("k") + struct.pack("<I", 77)), "unknown type 77"),
    "another version": (gguf(version=99), "it has version 99"),
    "the other byte order": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "it has version 50331648"),
    "an end after the magic": (b"GGUF\x03", "it is cut off"),
    "an end in a number": (gguf(entries=1, body=text("k") + struct.pack("<IB", 10, 0)), "it is cut off"),
}  # fmt: skip


@pytest.mark.parametrize("what", BOMBS)
def test_a_bomb_is_refused_before_it_is_allocated(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwise.model.sources.AutoConfig", None)  # no library may see it
    content, words = BOMBS[what]
    path = tmp_path / "bomb.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=r"^\S+bomb\.gguf is damaged, or no GGUF file that can be read") as refused:
        load(path)
    assert words in str(refused.value) and "\n" not in str(refused.value)


def test_a_good_file_passes_and_every_cut_of_it_is_refused(make_gguf: Callable[..., Path], tmp_path: Path) -> None:
    path = make_gguf()
    header = check_gguf(path)
    assert (header.tensors, header.weights) == (
        20,
        266 * 32 + 32 + 2 * (2 * 32 * 32 + 2 * 16 * 32 + 3 * 48 * 32 + 2 * 32),
    )
    content = path.read_bytes()
    for cut in (4, 8, 20, 100, 1000, 5000, len(content) // 2, len(content) - 64):
        (tmp_path / "cut.gguf").write_bytes(content[:cut])
        with pytest.raises(ModelError, match="damaged, or no GGUF"):
            check_gguf(tmp_path / "cut.gguf")


def test_more_weights_than_memory(make_gguf: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwise.model.gguf_header.room_for", lambda size: False)
    with pytest.raises(ModelError, match=r"holds 24,\d\d\d weights, which take .* more than there is memory"):
        load(make_gguf())


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("llama.block_count", 4000, "describes 4,000 layers and holds 20 tensors"),
        ("llama.feed_forward_length", 2**30, "describes a model of"),
        ("llama.vocab_size", 2**31, "describes a model of"),
    ],
)
def test_metadata_of_another_model(make_gguf: Callable[..., Path], key: str, value: int, words: str) -> None:
    path = make_gguf()
    content = path.read_bytes()
    at = content.index(key.encode()) + len(key) + 4
    path.write_bytes(content[:at] + struct.pack("<I", value) + content[at + 4 :])
    with pytest.raises(ModelError, match=words):
        load(path)


def test_the_sizes_of_blocks_are_those_of_the_library() -> None:
    library = pytest.importorskip("gguf")
    known = {int(kind): tuple(size) for kind, size in library.GGML_QUANT_SIZES.items()}
    assert {kind: known[kind] for kind in BLOCKS} == BLOCKS


# ---- folders and adapters -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", [{"vocab_size": 10**9}, {"hidden_size": 4 * 10**6}, {"num_hidden_layers": 9_000}])
def test_a_config_of_a_far_larger_model(folder: Path, change: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwise.model.loading.read_weights", lambda *_: pytest.fail("it was allocated"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(
        ModelError, match=r"describes [\d,]+ (weights|layers), and its files have .* too little for them"
    ):
        load(folder)


def test_an_index_that_leads_out_of_the_folder(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder.parent / "outside.safetensors")
    index = {"metadata": {}, "weight_map": {"lm_head.weight": "../outside.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(
        ModelError, match=r"names a file outside its folder \('\.\./outside\.safetensors'\); it is not read"
    ):
        open_stored(folder)


@pytest.fixture
def adapter(folder: Path, hf: object, tmp_path: Path) -> Path:
    peft = pytest.importorskip("peft")
    path = tmp_path / "adapter"
    peft.get_peft_model(hf, peft.LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM")).save_pretrained(
        path
    )
    config = json.loads((path / "adapter_config.json").read_text())
    (path / "adapter_config.json").write_text(json.dumps(config | {"base_model_name_or_path": str(folder)}))
    return path


def with_config(**changes: object) -> Callable[[Path], object]:
    def change(adapter: Path) -> None:
        file = adapter / "adapter_config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | changes))

    return change


def with_weights(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Path], object]:
    def changed(adapter: Path) -> None:
        file = adapter / "adapter_model.safetensors"
        save_file({name: change(value) for name, value in load_file(file).items()}, file, metadata={"format": "pt"})

    return changed


def cut(adapter: Path) -> None:
    file = adapter / "adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (cut, r"The weights of \S+adapter are damaged or incomplete"),
        (lambda adapter: (adapter / "adapter_model.safetensors").unlink(), "has no weights"),
        (lambda adapter: (adapter / "adapter_config.json").write_text("[" * 100_000), "nested too deep"),
        (with_weights(lambda _: torch.zeros(2, 5)), "its matrices have other shapes"),
        (with_config(r=10**9), "not the config of an adapter"),
        (with_config(r=60_000), "declares matrices of rank 60000, and holds some of rank 2"),
        (with_config(rank_pattern={"q_proj": 60_000}), "declares matrices of rank 60000, and holds some of rank 2"),
        (with_config(r="x"), "not the config of an adapter"),
        (with_config(peft_type="NOPE"), "a value that peft cannot use"),
        (with_config(target_modules="("), "a value that peft cannot use"),
        (with_config(lora_alpha="x"), "a value that peft cannot use"),
        (lambda adapter: (adapter / "headwise_gate.json").write_text('{"bias": NaN}'), "headwise_gate.json is damaged"),
        (lambda adapter: (adapter / "headwise_gate.json").write_text('{"bias": 0, "model": 3}'), "is damaged"),
    ],
)
def test_a_malformed_adapter_is_told_as_what_it_is(adapter: Path, folder: Path, change: Callable, words: str) -> None:
    change(adapter)
    for given in ({"model": folder, "adapter": adapter}, {"model": adapter}):
        with pytest.raises(ModelError, match=words) as refused:
            load(**given)
        assert "upgrade" not in str(refused.value) and "\n" not in str(refused.value)
