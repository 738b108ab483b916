"""Patterns of the real default model, few and short. Skipped, with the reason, where it is not installed.

Known heads, as in `tests/test_default_model.py`: L16H0 looks at the previous token, L18H8 at the first.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import headwise as hw
from headwise.core.errors import ModelError
from headwise.studies.patterns.spec import PatternsOptions

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("default model")]


def test_known_heads_and_what_their_absence_changes(tmp_path: Path) -> None:
    try:
        model = hw.load()
    except ModelError as error:
        pytest.skip(f"the default model is not here: {error}")
    options = {"patterns": PatternsOptions(prompts=6, tokens=32, heads_off="L11H1,L11H6")}
    atlas = hw.build(model, ["patterns"], output=tmp_path / "atlas", options=options)
    found, heads = atlas["patterns"], atlas.heads()
    assert {"L16H0", "L11H6", "L2H1", "L11H1"} <= set(heads["patterns.model.diagonal"].nlargest(8).index)
    assert heads["patterns.model.first"].idxmax() == "L18H8"
    assert (found["similarity"].isel(layer=slice(0, 12)) == 1).all()  # layers up to the one whose heads are off
    assert (found["similarity"].isel(layer=slice(12, None)) < 1).any()
    assert float(found["whole_change"].sel(feature="loss")) > 0
    words = atlas.describe("patterns").text()
    assert "SmolLM2-135M-Instruct without L11H1, L11H6" in words
