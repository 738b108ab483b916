from __future__ import annotations

import numpy as np
import pytest

from headwise.core.errors import DataError
from headwise.figures import Axis, Category, CategoryMap, Curve, Figure, Heatmap, Intervals, Mark, Scale, Scatter

X, Y = Axis("Head", ("0", "1", "2")), Axis("Layer", ("0", "1"))


def heatmap(**changes: object) -> Heatmap:
    parts = {"key": "p", "title": "P", "values": np.zeros((2, 3)), "x": X, "y": Y, "scale": "s"} | changes
    return Heatmap(**parts)  # type: ignore[arg-type]


def test_arrays_are_kept_from_change() -> None:
    source = np.zeros((2, 3))
    panel = heatmap(values=source)
    source[0, 0] = 1
    assert panel.values[0, 0] == 0
    with pytest.raises(ValueError, match="read-only"):
        panel.values[0, 0] = 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"values": np.zeros((3, 2))}, "has 3 rows and 2 columns, but 2 labels for 'Layer' and 3 for 'Head'"),
        ({"values": np.zeros(3)}, "must be a map of rows and columns"),
        ({"marks": (Mark(2, 0),)}, "marks or frames a cell outside of its 2 x 3 cells"),
        ({"extras": {"low": np.zeros((1, 3))}}, r"'low' is \(1, 3\), the map is \(2, 3\)"),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        heatmap(**changes)


def test_unknown_signs_and_styles_are_refused() -> None:
    with pytest.raises(DataError, match="'star' is no sign of a mark; use one of ring, dot, cross, text"):
        Mark(0, 0, sign="star")
    with pytest.raises(DataError, match="no style of a curve"):
        Curve("c", "C", [1], [1], style="dots")
    with pytest.raises(DataError, match="equally long"):
        Curve("c", "C", [1, 2], [1])
    with pytest.raises(DataError, match="equally long"):
        Scatter("s", "S", [1, 2], [1, 2], X, Y, names=("a",))
    with pytest.raises(
        DataError, match="Intervals 'i': values, low, high, groups and the labels of 'Layer' must be equally"
    ):
        Intervals("i", "I", [1, 2], [1, 2], [1], X, Y)
    with pytest.raises(DataError, match=r"cells of category 0 to 1; with its 1 categories they may be -1"):
        CategoryMap("c", "C", [[0, 1, 0], [0, 0, 0]], (Category("a", "A"),), X, Y)


def test_figures_check_their_parts() -> None:
    with pytest.raises(DataError, match=r"asks for the scale 's'. Did you mean 'ss'"):
        Figure("F", (heatmap(),), 1, {"ss": Scale("", 0, 1)})
    with pytest.raises(DataError, match="two panels called 'p'"):
        Figure("F", (heatmap(), heatmap()), 2, {"s": Scale("", 0, 1)})
    with pytest.raises(DataError, match="0 panels in 1 columns"):
        Figure("F", (), 1)
    with pytest.raises(DataError, match=r"no panel 'q'. Known: p"):
        Figure("F", (heatmap(),), 1, {"s": Scale("", 0, 1)}).panel("q")
