"""The spectral study on sparse models: a closed gate is a weight of 0, and nothing becomes infinite."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from answered import rows, write
from planted import tiny_model

import headwise as hw
from headwise.core.errors import ModelError
from headwise.corpora import packaged_questions
from headwise.kernels.blocked import FLOOR
from headwise.model import packaged_adapter
from headwise.model.gate import put_gate


def check(atlas: hw.Atlas) -> None:
    values = atlas["spectral"]["per_example"]
    score = values.sel(feature="attention_score")
    assert np.isfinite(score).all() and float(score.min()) >= FLOOR
    assert np.isfinite(values.sel(part="answer")).all()
    assert np.isfinite(atlas["spectral"]["q"].sel(part="whole", feature="attention_score")).all()
    assert np.isfinite(atlas["detection"]["auroc"]).all()
    assert atlas.describe("spectral").text() and atlas.describe("detection").text()


def test_a_small_gated_model(tmp_path: Path) -> None:
    hf, tokenizer = tiny_model(layers=2)
    put_gate(hf, -0.3)
    data = write(tmp_path / "answers.jsonl", rows(60))
    atlas = hw.build(hw.load(hf, tokenizer), ["spectral"], questions=data, output=tmp_path / "atlas")
    check(atlas)
    score = atlas["spectral"]["per_example"].sel(feature="attention_score", part="whole")
    assert float(score.min()) < FLOOR / 4  # some gates were closed


@pytest.mark.real
@pytest.mark.xdist_group("default model")
def test_the_packaged_adapter(tmp_path: Path) -> None:
    try:
        model = hw.load(adapter=packaged_adapter(hw.load()))
    except ModelError as error:
        pytest.skip(f"the default model is not here: {error}")
    asked = packaged_questions().items[:72]
    made = [
        {
            "question": one.question,
            "answers": list(one.answers),
            "response": f"It is {other.answers[0]}.",
            "label": label,
        }
        for place, one in enumerate(asked)
        for other, label in [(one, "correct") if place % 2 else (asked[place - 2], "wrong")]
    ]
    atlas = hw.build(model, ["spectral"], output=tmp_path / "atlas", questions=write(tmp_path / "asked.jsonl", made))
    check(atlas)
