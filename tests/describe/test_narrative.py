"""The order in which a study is told, whatever the study."""

from __future__ import annotations

import json
from typing import Any

import pytest
import xarray as xr

from headwise.describe.narrative import Narrative
from headwise.describe.writer import Writer


class Reading:
    def __init__(self, dataset: xr.Dataset) -> None:
        self.dataset = dataset
        self.origin: dict[str, Any] = json.loads(dataset.attrs.get("provenance", "{}"))


def add_overview(writer: Writer, reading: Reading) -> None:
    writer.add("overview", f"There are {writer.count(reading.dataset.sizes['layer'], 'layers', 'layer')}.")


def add_caveats(writer: Writer, _: Reading) -> None:
    writer.add("caveats", "It is small.")


ACCOUNT = Narrative("A study", Reading, (add_overview, add_caveats), lambda writer, _: writer.count(7, "seven", "head"))


@pytest.mark.parametrize(
    ("attrs", "title"),
    [
        ({}, "A study: the model"),
        ({"title": "My map", "provenance": '{"model": {"id": "who/tiny"}}'}, "My map: who/tiny"),
        ({"provenance": '{"model": {"id": "/home/jane/tiny"}}'}, "A study: tiny"),
    ],
)
def test_all_parts_speak_in_order_and_the_headline_last(attrs: dict[str, str], title: str) -> None:
    words = ACCOUNT(xr.Dataset({"x": ("layer", [1, 2])}, attrs=attrs))
    assert words.title == title
    assert words.sections() == {"Overview": ["There are 2 layers."], "Caveats": ["It is small."]}
    assert words.short() == "7 heads"
    assert [number.source for number in words.numbers] == ["layers", "seven"]
