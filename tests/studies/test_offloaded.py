"""Every study of a model part of which is on disk gives the bits that it gives of the whole model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import xarray as xr
from answered import rows, write
from planted import save_tiny, tiny_passages
from planted_relations import planted_relations, planted_relations_model
from planted_steps import planted_steps, planted_steps_model

import headwise as hw
from headwise.atlas import Provenance
from headwise.core.errors import StudyError
from headwise.corpora import HELD_OUT, TRAIN, Steps, find_questions
from headwise.interventions import ScaleHeads
from headwise.model import Model, is_offloaded, load
from headwise.seam import observe
from headwise.studies import ProfileOptions
from headwise.studies.functions.spec import FunctionsOptions
from headwise.studies.probing.spec import ProbingOptions
from headwise.studies.spectral.spec import SpectralOptions

pytest.importorskip("accelerate")
LLAMA = {
    "model.embed_tokens": "disk", "model.layers.0": "disk", "model.layers.1": "cpu", "model.layers.2": "disk",
    "model.norm": "disk", "model.rotary_emb": "cpu", "lm_head": "disk",
}  # fmt: skip
GPT2 = {
    "transformer.wte": "disk", "transformer.wpe": "cpu", "transformer.drop": "cpu", "transformer.h.0": "disk",
    "transformer.h.1": "cpu", "transformer.h.2": "disk", "transformer.ln_f": "disk", "lm_head": "disk",
}  # fmt: skip
Built = Callable[..., None]


def assert_same(one: xr.Dataset, other: xr.Dataset) -> None:
    """Bit by bit, where the numbers are from included (not when they were made)."""
    assert set(one.variables) == set(other.variables)
    for name in one.variables:
        same = one[name].values.tobytes() == other[name].values.tobytes()
        assert same if one[name].dtype.kind == "f" else one[name].equals(other[name]), name
    assert Provenance.from_attrs(one.attrs).identity() == Provenance.from_attrs(other.attrs).identity()


@pytest.fixture
def same_atlas(tmp_path: Path) -> Built:
    def built(folder: Path, places: dict[str, str], studies: list[str], **shown: Any) -> None:
        parted = load(folder, device_map=places)
        assert is_offloaded(parted.hf)
        one = hw.build(load(folder), studies, output=tmp_path / "whole", **shown)
        other = hw.build(parted, studies, output=tmp_path / "parted", **shown)
        assert one.studies == other.studies and set(studies) <= set(one.studies)
        for study in one.studies:
            assert_same(one[study], other[study])

    return built


@pytest.fixture
def tiny_folder(tmp_path: Path) -> Path:
    return save_tiny(tmp_path / "tiny")


def saved(model: Model, folder: Path) -> Path:
    model.hf.save_pretrained(folder)
    model.tokenizer.save_pretrained(folder)
    return folder


def test_profile_and_patterns(same_atlas: Built, tiny_folder: Path) -> None:
    options = {"profile": ProfileOptions(repeats=3, period=20, shard=4)}
    passages = tiny_passages(4, tokens=(20, 50))
    same_atlas(tiny_folder, LLAMA, ["profile", "patterns"], data=passages, options=options)


def test_answers_that_are_there(same_atlas: Built, tiny_folder: Path, tmp_path: Path) -> None:
    asked = find_questions(write(tmp_path / "rows.jsonl", rows(60)))
    options = {"probing": ProbingOptions(shuffles=40, paper=False), "spectral": SpectralOptions(shuffles=200)}
    same_atlas(tiny_folder, LLAMA, ["spectral", "probing"], questions=asked, options=options)


def test_answers_that_it_says(same_atlas: Built, tiny_folder: Path, tmp_path: Path) -> None:
    bare = [{name: row[name] for name in ("id", "question", "answers")} for row in rows(6)]
    same_atlas(tiny_folder, LLAMA, ["answers"], questions=find_questions(write(tmp_path / "bare.jsonl", bare)))


def test_functions(same_atlas: Built, tmp_path: Path) -> None:
    folder = saved(planted_steps_model(), tmp_path / "steps")  # a GPT-2: transposed matrices, tied ends
    items = [replace(step, split=HELD_OUT if "-2-" in step.id else TRAIN) for step in planted_steps(repeats=3)]
    options = FunctionsOptions(steps=None, max_new_tokens=1, seeds=2, shard=40, key_tokens="all")
    steps = Steps("planted steps", tuple(items))
    same_atlas(folder, GPT2, ["functions"], steps=steps, options={"functions": options})


def test_relations(same_atlas: Built, tmp_path: Path) -> None:
    folder = saved(planted_relations_model(), tmp_path / "related")
    same_atlas(folder, LLAMA, ["relations"], relations=planted_relations())


def test_interventions(tiny_folder: Path) -> None:
    plain, parted = load(tiny_folder), load(tiny_folder, device_map=LLAMA)
    ids = plain.encode("the old river house")
    logits = []
    for model in (plain, parted):
        with observe(model, ScaleHeads([(0, 1), (2, 3)], 0.0)):
            logits.append(model(**ids).logits)
    assert logits[0].equal(logits[1]) and not logits[0].equal(plain(**ids).logits)


def test_relations_by_name_stay_on_disk_whatever_the_map(tiny_folder: Path) -> None:
    from headwise.model import StoredModel
    from headwise.studies.runner import model_for

    found = model_for(["relations"], tiny_folder, device_map="auto", max_memory="cpu=1MiB")
    assert isinstance(found, StoredModel)
    assert isinstance(model_for(["profile"], tiny_folder, max_memory="cpu=1KB"), Model)


def test_gradients_are_refused(tiny_folder: Path) -> None:
    parted = load(tiny_folder, device_map=LLAMA)
    with pytest.raises(StudyError, match=r"circuits backpropagates.*it is offloaded; load it without offloading"):
        hw.build(parted, ["circuits"], output=tiny_folder / "atlas")
    with pytest.raises(StudyError, match=r"Parts of .* are offloaded, so it cannot be trained; load it on one"):
        hw.sparsify(parted, None, held_out=None, output=tiny_folder / "out")  # type: ignore[arg-type]
