"""A model part of which is on disk has the same weights, digest, outputs and refusals as a whole one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from headwise.core.errors import ModelError
from headwise.model import (
    Model,
    check_finite,
    execution_device,
    is_offloaded,
    load,
    load_parameter,
    materialize,
    weights_digest,
)
from headwise.model.digest import named_weights
from headwise.seam import Structure, check, output_projections

pytest.importorskip("accelerate")
PLACES = {
    "model.embed_tokens": "disk", "model.layers.0": "disk", "model.layers.1": "cpu", "model.layers.2": "disk",
    "model.norm": "cpu", "model.rotary_emb": "cpu", "lm_head": "disk",
}  # fmt: skip


@pytest.fixture(params=[False, True], ids=["untied", "tied"])
def both(request: Any, make_config: Any, tokenizer: Any, tmp_path: Path) -> tuple[Model, Model]:
    """The same files, loaded whole, and with parts on disk."""
    torch.manual_seed(0)
    config = make_config(tie_word_embeddings=request.param, initializer_range=0.2)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "saved")
    tokenizer.save_pretrained(tmp_path / "saved")
    return load(tmp_path / "saved"), load(tmp_path / "saved", device_map=PLACES)


def test_weights_and_who_it_is(both: tuple[Model, Model]) -> None:
    plain, parted = both
    assert is_offloaded(parted.hf) and not is_offloaded(plain.hf)
    assert parted.identity() == plain.identity()
    ids = plain.encode("the cat")
    assert torch.equal(plain(**ids).logits, parted(**ids).logits)
    assert parted.identity() == plain.identity()  # also once hooks have put other objects in the place of tied weights
    ours, theirs = dict(named_weights(plain.hf)), dict(named_weights(parted.hf))
    assert list(ours) == list(theirs) and all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert not is_offloaded(materialize(parted.hf.model.layers[0]))


def test_offloaded_weights_are_read_one_at_a_time(both: tuple[Model, Model], monkeypatch: pytest.MonkeyPatch) -> None:
    from headwise.model import digest

    read: list[str] = []
    monkeypatch.setattr(digest, "load_parameter", lambda module, name: read.append(name) or torch.zeros(1))
    weights = named_weights(both[1].hf)
    next(weights)
    assert len(read) == 1


def test_a_copy_is_whole(both: tuple[Model, Model]) -> None:
    plain, parted = (model.hf.model.layers[2] for model in both)
    made = materialize(parted)
    for name, parameter in plain.named_parameters():
        assert torch.equal(made.get_parameter(name), parameter)
        assert parted.get_parameter(name).is_meta
    given = torch.randn(1, 3, 32)
    assert torch.equal(made.mlp(given), plain.mlp(given))


def test_nan_on_disk_is_named(make_config: Any, tmp_path: Path) -> None:
    hf = AutoModelForCausalLM.from_config(make_config())
    hf.model.layers[2].mlp.up_proj.weight.data[0, 0] = torch.nan
    hf.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=r"1 of the 1536 entries of model\.layers\.2\.mlp\.up_proj\.weight are NaN"):
        check_finite(load(tmp_path, device_map=PLACES))


def test_the_seam_holds(both: tuple[Model, Model]) -> None:
    found, expected = check(both[1]), check(both[0])
    assert found.passed and [one.error for one in found.checks] == [one.error for one in expected.checks]


def test_all_of_it_on_disk(folder: Path) -> None:
    parted = load(folder, max_memory="cpu=1KB")
    assert all(parameter.is_meta for parameter in parted.hf.parameters())
    assert parted.device == execution_device(parted.hf) == torch.device("cpu")
    plain = load(folder)
    ids = plain.encode("the cat")
    assert torch.equal(plain(**ids).logits, parted(**ids).logits)
    assert weights_digest(parted) == weights_digest(plain)


def test_enough_memory_means_no_hooks(folder: Path) -> None:
    assert not is_offloaded(load(folder, max_memory="cpu=1GiB").hf)


def test_another_dtype_than_the_files(folder: Path) -> None:
    plain, parted = load(folder, dtype="bfloat16"), load(folder, dtype="bfloat16", device_map=PLACES)
    assert load_parameter(parted.hf.lm_head, "weight").dtype == torch.bfloat16
    assert weights_digest(parted) == weights_digest(plain)


def test_weights_that_must_be_rewritten_need_a_folder(folder: Path, hf: Any, tmp_path: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save(hf.state_dict(), folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"must be rewritten.*--offload FOLDER"):
        load(folder, device_map=PLACES)
    parted = load(folder, device_map=PLACES, offload_folder=tmp_path / "parts")
    assert weights_digest(parted) == weights_digest(load(folder))


def test_what_is_offloaded_is_not_moved(both: tuple[Model, Model]) -> None:
    with pytest.raises(ModelError, match="are offloaded, so it cannot be cast or moved; load it with the right dtype"):
        load(both[1].hf, both[1].tokenizer, dtype="float16")


def test_a_skeleton_has_no_values(both: tuple[Model, Model]) -> None:
    with pytest.raises(ModelError, match="has shapes but no weights"):
        load_parameter(both[0].card.skeleton.lm_head, "weight")


def test_an_adapter_is_refused_in_words(folder: Path, hf: Any, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    peft.get_peft_model(hf, peft.LoraConfig(target_modules=["o_proj"])).save_pretrained(tmp_path / "adapter")
    with pytest.raises(ModelError, match=r"cannot be added to .*, parts of which are offloaded; merge it"):
        load(folder, adapter=tmp_path / "adapter", device_map=PLACES)
    load(folder, adapter=tmp_path / "adapter", device_map={"": "cpu"})


def test_weights_that_a_user_offloaded_to_memory(folder: Path, tokenizer: Any) -> None:
    """As on a GPU, where what does not fit waits in the CPU's memory: the hooks hold the weights themselves."""
    accelerate = pytest.importorskip("accelerate")
    plain, hf = load(folder), AutoModelForCausalLM.from_pretrained(folder)
    parted = load(accelerate.cpu_offload(hf, execution_device="cpu"), tokenizer)
    assert is_offloaded(parted.hf) and weights_digest(parted) == weights_digest(plain)
    assert check(parted).passed
    made, own = output_projections(Structure(parted)), output_projections(Structure(plain))
    assert all(torch.equal(made[layer].weight, own[layer].weight) for layer in own)


def test_a_part_of_a_part_on_disk(folder: Path) -> None:
    plain, parted = (
        load(folder),
        load(folder, device_map={"": "cpu", "model.layers.1": "disk", "lm_head": "disk"}),
    )
    offloaded = {name for name, parameter in parted.hf.named_parameters() if parameter.is_meta}
    assert "lm_head.weight" in offloaded and all(name.startswith(("lm_head", "model.layers.1.")) for name in offloaded)
    ids = plain.encode("the cat")
    assert torch.equal(plain(**ids).logits, parted(**ids).logits) and weights_digest(parted) == weights_digest(plain)
