from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from legibility import assert_legible

from headwise.core.errors import StudyError
from headwise.figures import CategoryMap, Curves, Figure, Heatmap, Legend, save, to_payload
from headwise.studies.present import figure_of


def maps_of(figure: Figure) -> dict[str, CategoryMap]:
    return {panel.title: panel for panel in figure.panels if isinstance(panel, CategoryMap)}


def test_the_sheets_five_panels(relations: xr.Dataset) -> None:
    """All Categories with the legend right of it, then the four; x is the layer and y the head."""
    figure = figure_of("relations", relations)
    assert [panel.title for panel in figure.panels] == [
        "All Categories", "", "Algorithmic", "Knowledge", "Linguistic", "Translation",
    ]  # fmt: skip
    assert figure.columns == 2
    assert isinstance(figure.panels[1], Legend)
    for panel in maps_of(figure).values():
        assert (panel.x.name, panel.y.name) == ("Layer", "Head")
        assert panel.values.shape == (9, 30)
        assert panel.shape == "dot"


def test_colours_are_the_sheets(relations: xr.Dataset) -> None:
    figure = figure_of("relations", relations)
    legend = figure.panels[1]
    assert isinstance(legend, Legend)
    assert {entry.label: entry.colour for entry in legend.entries} == {
        "Algorithmic": "#1773ad",  # blue
        "Knowledge": "#ff8110",  # orange
        "Linguistic": "#25a039",  # green
        "Translation": "#d62728",  # red
        "2 categories": "#9c72cf",  # purple
        "3 categories": "#8c564b",  # brown
        "4 categories": "#e377c2",  # pink
        "Unclassified": "#dcdcdc",  # light grey
    }
    all_of_them = maps_of(figure)["All Categories"]

    def label(layer: int, head: int) -> str:
        return all_of_them.categories[all_of_them.values[head, layer]].label

    assert label(3, 1) == "Knowledge"
    assert label(5, 0) == "Linguistic"  # by suppression
    assert label(6, 2) == "3 categories"
    assert label(7, 1) == "4 categories"
    assert label(0, 0) == "Unclassified"


def test_marks_are_those_of_the_data(relations: xr.Dataset) -> None:
    figure = figure_of("relations", relations)
    either = relations["member"] | relations["member_suppression"]
    counts = either.sum("category").transpose("head", "layer").values
    every = maps_of(figure)["All Categories"]
    shown = np.vectorize(lambda place: every.categories[place].label)(every.values)
    np.testing.assert_array_equal(shown == "Unclassified", counts == 0)
    np.testing.assert_array_equal(shown == "2 categories", counts == 2)
    for category in relations["category"].values:
        panel = maps_of(figure)[category.title()]
        here = either.sel(category=category).transpose("head", "layer").values
        np.testing.assert_array_equal(panel.values, here.astype(int))
        assert panel.subtitle == f"{here.sum()} of 270 heads ({100 * here.sum() / 270:.0f}\u00a0%)"


def test_notes_say_the_rule_and_the_null(relations: xr.Dataset) -> None:
    (note,) = figure_of("relations", relations).notes
    assert "more than 15 % of the pairs" in note
    assert "7 of 8 relations, 340 pairs, k 1 or 10." in note
    rates = [float(relations[f"{sign}_false_positive"].mean()) for sign in ("score", "suppression")]
    assert f"With shuffled targets {100 * np.mean(rates):.2g} % of all head x relation scores pass." in note


def test_beyond_null_takes_heads_away(relations: xr.Dataset) -> None:
    relations["member_beyond_null"].loc[{"layer": 3, "head": 1}] = False
    strict = figure_of("relations", relations, beyond_null=True)
    assert maps_of(strict)["Knowledge"].values[1, 3] == 0
    assert maps_of(figure_of("relations", relations))["Knowledge"].values[1, 3] == 1
    assert "above each of 20 shuffles" in strict.notes[0]


@pytest.mark.parametrize("value", ["score", "suppression"])
def test_one_map_per_relation(relations: xr.Dataset, value: str) -> None:
    figure = figure_of("relations", relations, kind="relations", value=value)
    assert [panel.key for panel in figure.panels] == list(relations["relation"].values)
    (scale,) = figure.scales.values()
    assert scale.marks[0].value == 0.15
    for panel in figure.panels:
        assert isinstance(panel, Heatmap)
        np.testing.assert_array_equal(panel.values, relations[value].sel(relation=panel.key).values.T)
        count = int((panel.values > 0.15).sum())
        assert panel.subtitle.startswith(f"{count} head")
    one = figure_of("relations", relations, kind="relations", relations="antonym")
    assert len(one.panels) == 1


def test_counts_by_layer(relations: xr.Dataset) -> None:
    (panel,) = figure_of("relations", relations, kind="layers").panels
    assert isinstance(panel, Curves)
    either = relations["member"] | relations["member_suppression"]
    for curve in panel.curves[:-1]:
        np.testing.assert_array_equal(curve.y, either.sel(category=curve.key).sum("head").values)
    np.testing.assert_array_equal(panel.curves[-1].y, either.any("category").sum("head").values)


def test_a_layer_without_heads_is_not_called_unclassified(make_relations: Callable[..., xr.Dataset]) -> None:
    figure = figure_of("relations", make_relations(missing=2))
    assert (maps_of(figure)["All Categories"].values[:, 2] == -1).all()
    assert maps_of(figure)["All Categories"].subtitle.endswith("of 261 heads (2\u00a0%)")
    legend = figure.panels[1]
    assert isinstance(legend, Legend)
    assert legend.entries[-1].label == "No such head"


def test_a_users_own_category_gets_a_panel(relations: xr.Dataset) -> None:
    renamed = relations.assign_coords(category=["algorithmic", "own", "linguistic", "translation"])
    figure = figure_of("relations", renamed)
    assert "Own" in maps_of(figure)
    assert maps_of(figure)["Own"].categories[1].colour == "#17becf"
    alone = figure_of("relations", relations.isel(category=[1]))
    assert [panel.title for panel in alone.panels] == ["All Categories", "", "Knowledge"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "category"}, "no kind 'category'. Did you mean 'categories'"),
        ({"kind": "relations", "value": "supression"}, "no value 'supression'. Did you mean 'suppression'"),
        ({"kind": "relations", "relations": ["antonim"]}, "no relation 'antonim'. Did you mean 'antonym'"),
        ({"kind": "relations", "relations": []}, "No relation was chosen"),
    ],
)
def test_unknown_names_are_refused(relations: xr.Dataset, options: dict[str, object], message: str) -> None:
    with pytest.raises(StudyError, match=message):
        figure_of("relations", relations, **options)


@pytest.mark.parametrize("shape", [(30, 9), (12, 12), (80, 64), (8, 3), (1, 1)])
@pytest.mark.parametrize("kind", ["categories", "relations", "layers"])
def test_figures_of_any_size_are_legible(
    make_relations: Callable[..., xr.Dataset], shape: tuple[int, int], kind: str
) -> None:
    assert_legible(figure_of("relations", make_relations(*shape), kind=kind))


def test_it_is_drawn_and_sent(relations: xr.Dataset, tmp_path: Path) -> None:
    figure = figure_of("relations", relations)
    assert save(figure, tmp_path / "relations.svg").stat().st_size > 10_000
    assert to_payload(figure)["title"] == "What each head computes, from its weights: SmolLM2-135M-Instruct"


def test_the_published_layout_has_no_counts(relations: xr.Dataset) -> None:
    paper, full = figure_of("relations", relations, style="paper"), figure_of("relations", relations)
    assert [panel.title for panel in paper.panels] == [panel.title for panel in full.panels]
    assert not any(panel.subtitle for panel in paper.panels) and any(panel.subtitle for panel in full.panels)
