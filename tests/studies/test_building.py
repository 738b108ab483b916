"""Building an atlas: what is there is left, what is of another origin is refused, the same work gives the same bits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import xarray as xr
from planted import save_tiny, tiny_model, tiny_passages

from headwise.atlas import Atlas
from headwise.core.errors import AtlasError, ModelError, StudyError
from headwise.core.progress import report
from headwise.corpora import Passages
from headwise.engines import Listener
from headwise.model import Model, load
from headwise.studies import ProfileOptions, build
from headwise.studies.profile import measure as study

SMALL = {"profile": ProfileOptions(repeats=3, period=20, shard=4)}


def same_bits(a: xr.Dataset, b: xr.Dataset) -> bool:
    return set(a.variables) == set(b.variables) and all(
        a[name].values.tobytes() == b[name].values.tobytes() if a[name].dtype.kind == "f" else a[name].equals(b[name])
        for name in a.variables
    )


@pytest.fixture
def atlas(tiny: Model, passages: Passages, tmp_path: Path) -> Atlas:
    return build(tiny, ["profile"], data=passages, output=tmp_path / "atlas", options=SMALL)


def test_a_map_that_is_there_is_left(
    atlas: Atlas, tiny: Model, passages: Passages, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("measured again")

    monkeypatch.setattr(study, "_measure", refuse)
    calls: list[tuple[str, int, int]] = []
    build(tiny, ["profile"], data=passages, output=atlas.path, options=SMALL, progress=lambda *call: calls.append(call))
    assert calls == [("profile", 7, 7)]


def test_progress_counts_examples(tiny: Model, passages: Passages, tmp_path: Path) -> None:
    calls: list[tuple[str, int, int]] = []
    build(
        tiny,
        ["profile"],
        data=passages,
        output=tmp_path / "atlas",
        options=SMALL,
        progress=lambda *call: calls.append(call),
    )
    assert calls == [("profile", 0, 7), ("profile", 4, 7), ("profile", 7, 7)]


def test_steps_inside_a_shard_are_heard(
    tiny: Model, passages: Passages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[tuple[Any, ...]] = []

    class Steps(Listener):
        def concluding(self, *given: Any) -> None:
            heard.append(given)

    observe = study.observe_examples

    def reporting(*given: Any, **more: Any) -> Any:
        report("texts", 1, 2)
        return observe(*given, **more)

    monkeypatch.setattr(study, "observe_examples", reporting)
    build(tiny, ["profile"], data=passages, output=tmp_path / "heard", options=SMALL, progress=Steps())
    assert ("profile", "texts", 1, 2) in heard


def test_other_data_are_refused_and_redone_when_asked(atlas: Atlas, tiny: Model) -> None:
    before, others = atlas["profile"], tiny_passages(5, seed=1, tokens=(20, 50))
    message = r"the study profile, measured with other .*tiny passages \(4\) against tiny .* \(5\).*--redo profile"
    with pytest.raises(AtlasError, match=message):
        build(tiny, ["profile"], data=others, output=atlas.path, options=SMALL)
    assert same_bits(Atlas.open(atlas.path)["profile"], before)
    redone = build(tiny, ["profile"], data=others, output=atlas.path, options=SMALL, redo=["profile"])
    assert redone.provenance("profile").data["size"] == 5
    assert redone["profile"].sizes["example"] == 5 + 3


def test_other_options_are_refused(atlas: Atlas, tiny: Model, passages: Passages) -> None:
    with pytest.raises(AtlasError, match="parameters: period 20 against 10"):
        build(
            tiny, data=passages, output=atlas.path, options={"profile": ProfileOptions(repeats=3, period=10, shard=4)}
        )


def test_redo_of_the_same_gives_the_same(atlas: Atlas, tiny: Model, passages: Passages) -> None:
    before = atlas["profile"]
    assert same_bits(
        build(tiny, ["profile"], data=passages, output=atlas.path, options=SMALL, redo=["profile"])["profile"], before
    )


@pytest.mark.parametrize("redo", [(), ("profile",)])
def test_another_model_is_refused_even_to_redo(atlas: Atlas, tiny: Model, passages: Passages, redo: Any) -> None:
    other = load(*tiny_model(layers=2, seed=1))
    message = (
        f"is an atlas of .*{tiny.identity()['digest']}.*{other.identity()['digest']}.*choose another folder with -o"
    )
    with pytest.raises(AtlasError, match=message):
        build(other, ["profile"], data=passages, output=atlas.path, options=SMALL, redo=redo)


def test_a_folder_and_a_file_are_enough(tiny: Model, passages: Passages, tmp_path: Path) -> None:
    """As the command line gives them. The saved model is the same model, so its map is the same."""
    folder = save_tiny(tmp_path / "model", layers=2)
    data = tmp_path / "data.jsonl"
    rows = [{"id": item.id, "text": item.text, "register": item.register} for item in passages.items]
    data.write_text("\n".join(json.dumps(row) for row in rows))
    from_disk = build(folder, ["profile"], data=data, output=tmp_path / "one", options=SMALL)
    from_memory = build(tiny, ["profile"], data=passages, output=tmp_path / "two", options=SMALL)
    assert same_bits(from_disk["profile"], from_memory["profile"])


def test_the_same_build_twice_is_bit_identical(tiny: Model, passages: Passages, tmp_path: Path) -> None:
    one, two = (build(tiny, ["profile"], data=passages, output=tmp_path / name, options=SMALL) for name in "ab")
    assert same_bits(one["profile"], two["profile"])
    assert one.provenance("profile").key() == two.provenance("profile").key()


# ---- refusals -------------------------------------------------------------------------------------------------------


def test_weights_that_are_not_numbers_are_refused_by_name(passages: Passages, tmp_path: Path) -> None:
    hf, tokenizer = tiny_model("gpt2", layers=2)
    hf.transformer.h[1].attn.c_attn.weight.data[3, 5] = torch.nan
    with pytest.raises(ModelError, match=r"1 of the .* entries of transformer\.h\.1\.attn\.c_attn\.weight are NaN"):
        build(load(hf, tokenizer), ["profile"], data=passages, output=tmp_path / "atlas")


def test_an_unknown_study_is_refused_with_a_guess(tiny: Model, tmp_path: Path) -> None:
    for arguments in ({"studies": ["profiel"]}, {"redo": ["profiel"]}):
        with pytest.raises(StudyError, match=r"no study 'profiel'. Did you mean 'profile'\?"):
            build(tiny, output=tmp_path / "atlas", **arguments)
    assert not (tmp_path / "atlas").exists()
