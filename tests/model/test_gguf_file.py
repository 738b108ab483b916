"""GGUF files: de-quantised once, kept whole, and mended where the reader is not faithful."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import SafetensorError
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from headwise.core.errors import ModelError
from headwise.model import load, sources
from headwise.model.cache import UNFINISHED, cache_folder
from headwise.model.sources import dequantised
from headwise.model.stored import open_stored

MakeGguf = Callable[..., Path]


def copies() -> list[Path]:
    return sorted((cache_folder() / "gguf").glob("[!.]*"))


def test_a_file_is_converted_once(make_gguf: MakeGguf, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_gguf()
    first = load(path)
    monkeypatch.setattr("headwise.model.sources._convert", lambda *_: pytest.fail("it is there already"))
    second = load(str(path))
    assert first.identity() == second.identity()
    assert len(copies()) == 1
    assert first.id == str(path)
    assert first.revision == f"gguf-{dequantised(path).digest}"
    assert first.dtype == torch.float32


def test_the_weights_are_the_files(make_gguf: MakeGguf) -> None:
    import gguf

    path = make_gguf()
    tensors = {t.name: np.array(t.data) for t in gguf.GGUFReader(path).tensors}
    value = load(path).hf.model.layers[1].self_attn.v_proj.weight.detach().numpy()
    assert np.array_equal(value, tensors["blk.1.attn_v.weight"])


def test_the_identity_says_what_the_weights_were_dequantised_from(make_gguf: MakeGguf) -> None:
    packed, plain = make_gguf("packed.gguf", packed="Q4_1"), make_gguf("plain.gguf")
    assert load(packed).identity()["dequantised_from"] == "Q4_1 GGUF"
    assert open_stored(packed).identity() == load(packed).identity()
    assert "dequantised_from" not in load(plain).identity()


def test_the_same_bytes_elsewhere_are_the_same_model(make_gguf: MakeGguf, tmp_path: Path) -> None:
    path = make_gguf()
    dequantised(path)
    (tmp_path / "other").mkdir()
    assert dequantised(Path(shutil.copy(path, tmp_path / "other"))) == dequantised(path)
    assert len(copies()) == 1


def test_the_copy_is_faithful(make_gguf: MakeGguf) -> None:
    model = load(make_gguf())
    config = model.hf.config
    assert (config.bos_token_id, config.eos_token_id, config.pad_token_id) == (1, 2, 0)
    assert config.rms_norm_eps == 1e-5
    assert config.rope_parameters["rope_theta"] == 100000.0
    assert model.tokenizer.model_max_length == config.max_position_embeddings == 128
    assert model.tokens([{"role": "user", "content": "cat"}])[:2] == ["<s>", "["]


def test_digits_are_split_off_first(make_gguf: MakeGguf) -> None:
    model = load(make_gguf())
    assert model.tokens("cat\n\n12") == ["cat", "\n\n", "1", "2"]
    assert model.tokens("  4") == ["  ", "4"]


def test_an_unknown_rule_for_splitting_is_told(make_gguf: MakeGguf, caplog: pytest.LogCaptureFixture) -> None:
    model = load(make_gguf(digits=True))
    assert model.tokens("cat\n\n12") == ["cat", "\n", "\n", "12"]
    assert "does not know the pre-tokenizer 'smollm'" in caplog.text


@pytest.mark.parametrize("first", [False, True])
def test_the_file_says_whether_a_first_token_is_put_in_front(make_gguf: MakeGguf, first: bool) -> None:
    model = load(make_gguf(first=first))
    assert model.tokens("cat") == (["<s>", "cat"] if first else ["cat"])
    assert model.tokens("<s>cat") == ["<s>", "cat"]


@pytest.mark.parametrize("spelt", [False, True])
def test_a_tokenizer_that_spells_its_words_is_refused(spelt: bool) -> None:
    """What transformers 5.17 makes of Gemma 3's: every word is in the vocabulary, and none is ever read as one token."""
    words = [left + right for left in ("str", "wat", "pla", "gre") for right in ("ong", "ent", "ing", "ate", "ful")]
    letters = sorted(set("".join(words)))
    vocabulary = {token: place for place, token in enumerate(["<unk>", *letters, *words])}
    one = models.BPE(vocabulary, [], unk_token="<unk>") if spelt else models.WordLevel(vocabulary, unk_token="<unk>")
    backend = Tokenizer(one)
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    refused = pytest.raises(
        ModelError, match=r"of bad\.gguf wrongly: of 20 words of its vocabulary, only 0 are tokenised"
    )
    with refused if spelt else nullcontext():
        sources._require_whole_words(tokenizer, Path("bad.gguf"))


def test_a_truncated_copy_is_made_again(make_gguf: MakeGguf) -> None:
    path = make_gguf()
    weights = dequantised(path).folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    assert load(path).card.layers == 2


def test_refused_files(make_gguf: MakeGguf, tmp_path: Path) -> None:
    (tmp_path / "text.gguf").write_text("hello")
    with pytest.raises(
        ModelError, match=r"text.gguf is not a GGUF file .*; give a .gguf file, or the folder of a model"
    ):
        load(tmp_path / "text.gguf")
    whole = make_gguf().read_bytes()
    (tmp_path / "cut.gguf").write_bytes(whole[:3000])
    with pytest.raises(ModelError, match=r"cut.gguf is damaged, or no GGUF file .*it is cut off.*; copy it again"):
        load(tmp_path / "cut.gguf")
    with pytest.raises(ModelError, match=r"part.gguf lacks weights of its model \(model.layers.1.mlp.up_proj.weight"):
        load(make_gguf("part.gguf", leave_out="blk.1.ffn_up.weight"))
    assert copies() == []
    assert list((cache_folder() / "gguf").iterdir()) == []


def test_the_package_that_reads_them_is_missing(make_gguf: MakeGguf, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_gguf()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r'tiny.gguf needs the package gguf; run `pip install "headwise\[gguf\]"`'):
        load(path)


def test_a_full_disk(make_gguf: MakeGguf, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise SafetensorError("I/O error: No space left on device")

    monkeypatch.setattr(LlamaForCausalLM, "save_pretrained", full)
    with pytest.raises(
        ModelError, match=r"could not write to its cache folder .*No space left on device\); free some space"
    ):
        load(make_gguf())
    assert list((cache_folder() / "gguf").iterdir()) == []


CONVERT = """
import sys, headwise.model.sources as g
from pathlib import Path
convert = g._convert
def slow(path, folder):
    convert(path, folder)
    print("converted", flush=True)
    if sys.argv[2] == "wait":
        import time; time.sleep(60)
g._convert = slow
print(g.dequantised(Path(sys.argv[1])).folder, flush=True)
"""


def start(path: Path, how: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", CONVERT, str(path), how]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def test_two_processes_at_once_and_one_killed(make_gguf: MakeGguf) -> None:
    path = make_gguf()
    killed = start(path, "wait")
    assert killed.stdout is not None
    assert killed.stdout.readline().strip() == "converted"  # all written, but not renamed yet
    assert copies() == []
    both = [start(path, "go"), start(path, "go")]
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    folders = {process.communicate(timeout=120)[0].split()[-1] for process in both}
    assert [process.returncode for process in both] == [0, 0]
    assert folders == {str(copies()[0])}
    left = list((cache_folder() / "gguf").glob(f"{UNFINISHED}*"))
    assert len(left) == 1  # the killed one's; swept when it is old
    long_ago = time.time() - 10_000
    for path_left in [*left[0].iterdir(), left[0]]:
        os.utime(path_left, (long_ago, long_ago))
    load(make_gguf("second.gguf", first=True))
    assert list((cache_folder() / "gguf").glob(f"{UNFINISHED}*")) == []
    assert load(path).card.layers == 2
