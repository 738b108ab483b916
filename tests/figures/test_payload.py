from __future__ import annotations

import json
import runpy
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from headwise.core.errors import DataError
from headwise.figures import Axis, Figure, Heatmap, Scale, from_payload, to_payload
from headwise.studies.present import figure_of

GALLERY = runpy.run_path(str(Path(__file__).with_name("gallery.py")))["gallery"]()


def there_and_back(figure: Figure) -> Figure:
    return from_payload(json.loads(json.dumps(to_payload(figure), allow_nan=False)))


@pytest.mark.parametrize("name", GALLERY)
def test_every_kind_of_panel_round_trips(name: str) -> None:
    figure = GALLERY[name]
    again = there_and_back(figure)
    assert to_payload(again) == to_payload(figure)
    assert [type(panel) for panel in again.panels] == [type(panel) for panel in figure.panels]


def test_numbers_come_back_bit_for_bit(profile: xr.Dataset) -> None:
    profile["value"][1, 3, 4] = np.nan
    figure = figure_of("profile", profile).with_alt("Eleven maps of heads.")
    again = there_and_back(figure)
    assert again.alt == "Eleven maps of heads."
    for panel in figure.panels:
        if isinstance(panel, Heatmap):
            other = again.panel(panel.key)
            assert isinstance(other, Heatmap)
            np.testing.assert_array_equal(other.values, panel.values)
            np.testing.assert_array_equal(other.extras["low"], panel.extras["low"])
    assert to_payload(figure)["panels"][1]["values"][3][4] is None


def test_a_browser_needs_no_rule_of_its_own(profile: xr.Dataset) -> None:
    scale = to_payload(figure_of("profile", profile))["scales"]["sink"]
    assert scale["ticks"] == [[0.0, "0"], [0.5, "0.5"], [1.0, "1"]]
    assert scale["kind"] == "sequential"


def test_wrong_payloads_are_refused() -> None:
    with pytest.raises(DataError, match=r"not a figure of Headwise: its format is None, expected 'headwise.figure/1'"):
        from_payload({})
    with pytest.raises(DataError, match="'Pie' is no part of a figure"):
        from_payload({"format": "headwise.figure/1", "type": "Pie"})


def test_numbers_of_numpy_become_plain_ones() -> None:
    """A scale whose ends were computed holds numpy's numbers; JSON takes none of them."""
    panel = Heatmap("a", "A", np.zeros((1, 2)), Axis("Head", ("0", "1")), Axis("Layer", ("0",)), "s")
    scale = Scale("p", np.float64(1e-5), np.float32(1.0), under=np.bool_(True), log=True)
    written = json.dumps(to_payload(Figure("t", (panel,), 1, {"s": scale})), allow_nan=False)
    assert json.loads(written)["scales"]["s"]["under"] is True
