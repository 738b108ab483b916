"""The page of supported families: made from what was measured, about the families there are; some cells measured again."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import pytest
import transformers

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
support = import_module("support")

COLUMN = f"{transformers.__version__} {support.PLAIN}"
CELLS = support.stored()
measured = pytest.mark.skipif(
    COLUMN not in CELLS,
    reason=f"the page has no column for transformers {transformers.__version__}: benchmarks/support.py",
)


def test_the_page_is_what_was_measured():
    assert support.PAGE.read_text(encoding="utf-8") == support.page(CELLS), "run benchmarks/support.py --page"


def test_at_least_forty_families_can_be_read():
    assert all(sum("error" in cell for cell in rows.values()) >= 40 for rows in CELLS.values() if len(rows) > 150)
    assert len([name for name in CELLS if name.endswith(support.PLAIN)]) >= 2


@measured
def test_every_family_of_the_installed_transformers_has_a_row():
    assert list(CELLS[COLUMN]) == support.families()


@measured
@pytest.mark.parametrize("family", ["llama", "qwen3_next", "bitnet", "bloom", "smolvlm", "lfm2"])
def test_a_cell_measured_again_says_the_same(family):
    ((_, _, found),) = support.cells([family], [support.PLAIN])
    kept = CELLS[COLUMN][family]
    assert found.keys() == kept.keys()
    if "refused" in kept:
        assert found == kept
    else:
        assert found["headless"] == kept["headless"]
        assert found["error"] < 10 * kept["error"]


def test_a_family_that_cannot_be_built_is_not_tried(monkeypatch):
    monkeypatch.setattr(support, "MAX_PARAMETERS", 10)
    ((_, _, found),) = support.cells(["llama"], [support.PLAIN])
    assert "its smallest model has" in found["not_tried"]


def test_refusals_are_numbered_and_shared():
    refused = {"refused": "no heads in x"}
    text = support.page(
        {"5.4.0 float32": {"x": refused, "y": {"refused": "no heads in y"}, "z": {"not_tried": "why | so"}}}
    )
    assert "| x | no (1) |\n| y | no (1) |" in text
    assert "1. no heads in this family\n" in text
    assert "- z: why \\| so" in text
    assert "| 5.4.0 float32 | 0 | 2 | 1 |" in text
