from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from legibility import assert_legible
from synthetic.spectral import as_version_1

from headwise.core.errors import StudyError
from headwise.core.schema import check
from headwise.figures import Figure, Heatmap, save
from headwise.studies.present import figure_of
from headwise.studies.registry import dataset_spec

PAIR = ("attention_score", "laplacian")


def maps_of(figure: Figure) -> list[Heatmap]:
    return [panel for panel in figure.panels if isinstance(panel, Heatmap)]


def test_the_sheets_figure(spectral: xr.Dataset) -> None:
    """Two maps of p-values side by side, one scale from 0 to 1 for both, dark is 0, layer 0 on top."""
    figure = figure_of("spectral", spectral)
    left, right = maps_of(figure)
    assert figure.columns == 2
    assert (left.title, right.title) == ("AttnScore", "Laplacian eigenvalues")
    assert left.scale == right.scale == "p"
    (scale,) = figure.scales.values()
    assert (scale.low, scale.high, scale.colours, scale.label) == (0.0, 1.0, "viridis", "p-value")
    assert left.y.labels[0] == "0"
    np.testing.assert_array_equal(right.values, spectral["p"].sel(part="whole", feature="laplacian").values)
    assert figure.title == "Which heads differ between wrong and correct answers: SmolLM2-135M-Instruct"


def test_shares_above_the_maps_are_those_of_the_data(spectral: xr.Dataset) -> None:
    for panel in maps_of(figure_of("spectral", spectral, value="all")):
        key, row = panel.key.split()
        values = spectral[row].sel(part="whole", feature=key).values
        count = int((values > 0.5).sum() if row == "effect" else (values < 0.05).sum())
        what = "larger in wrong answers" if row == "effect" else f"{row} < 0.05"
        assert panel.subtitle == f"{what}: {count} of 270 heads ({100 * count / 270:.0f}\u00a0%)"


def test_notes_say_what_was_tested(spectral: xr.Dataset) -> None:
    (note,) = figure_of("spectral", spectral).notes
    assert "Two-sided Mann-Whitney U test, 96 wrong against 64 correct answers; 19 refused, excluded." in note
    assert "the mean of the ten largest; averaging them is our choice" in note
    high = 100 * float(spectral["null_high"].sel(part="whole", feature="laplacian"))
    assert f"{high:.2g} % (Laplacian eigenvalues) of the heads have p < 0.05" in note
    (note,) = figure_of("spectral", spectral, features="sink").notes
    assert "ten" not in note


def test_planted_heads_are_dark(spectral: xr.Dataset) -> None:
    for panel in maps_of(figure_of("spectral", spectral, value="q")):
        assert (panel.values[4:9, 2:6] < 0.05).all()
        assert (panel.values < 0.05).sum() <= 24


def test_all_adds_effect_size_and_q(spectral: xr.Dataset) -> None:
    figure = figure_of("spectral", spectral, value="all")
    assert [panel.key for panel in figure.panels] == [
        "attention_score p", "laplacian p", "attention_score effect", "laplacian effect",
        "attention_score q", "laplacian q",
    ]  # fmt: skip
    effect = figure.scales["effect"]
    assert effect.kind == "diverging"
    assert (effect.low + effect.high) / 2 == pytest.approx(0.5)
    assert "q: Benjamini-Hochberg" in figure.notes[0]


def test_rows_stand_below_each_other_unless_maps_are_tall(make_spectral: Callable[..., xr.Dataset]) -> None:
    assert figure_of("spectral", make_spectral(12, 12, examples=40), value="all").columns == 2
    assert figure_of("spectral", make_spectral(30, 9, examples=40), value="all").columns == 6


def test_other_features_parts_and_pairs(spectral: xr.Dataset) -> None:
    figure = figure_of("spectral", spectral, features=None, part="answer", matched=True)
    assert len(figure.panels) == 6
    assert "answer tokens only, answers of the same length" in figure.title
    assert "stratified test of wrong against correct answers of the same length (" in figure.notes[0]
    assert "Hatched: not measured." in figure.notes[0]
    lookback = figure.panel("lookback p")
    assert isinstance(lookback, Heatmap)
    assert lookback.subtitle == "not measured"
    sink = figure.panel("sink p")
    assert isinstance(sink, Heatmap)
    np.testing.assert_array_equal(sink.values, spectral["p_matched"].sel(part="answer", feature="sink").values)
    both = figure_of("spectral", spectral, value="all", matched=True)
    assert {panel.key.split()[1] for panel in both.panels} == {"p", "q"}


def test_alike_questions_compared(spectral: xr.Dataset) -> None:
    figure = figure_of("spectral", spectral, within=True, value="all")
    assert figure.title.startswith("Which heads differ between wrong and correct answers, similar questions compared")
    for panel in maps_of(figure):
        key, row = panel.key.split()
        np.testing.assert_array_equal(panel.values, spectral[f"{row}_within"].sel(part="whole", feature=key).values)
    (note,) = figure.notes
    assert (
        "Van Elteren's stratified test of wrong against correct answers within strata of topic (3 with both kinds, 160"
        in note
    )
    assert "an AUROC of 0.66 (or 1 minus it)" in note
    high = 100 * float(spectral["null_high_within"].sel(part="whole", feature="laplacian"))
    assert f"{high:.2g} % (Laplacian eigenvalues) of the heads have p < 0.05" in note


def test_the_footer_says_how_many_heads_remain_among_alike_questions(spectral: xr.Dataset) -> None:
    counts = [
        ", ".join(str(int((spectral[name].sel(part="whole", feature=key) < 0.05).sum())) for key in PAIR)
        for name in ("q", "q_within", "q_strict")
    ]
    (note,) = figure_of("spectral", spectral).notes
    assert (
        f"Heads with q < 0.05 (AttnScore, Laplacian eigenvalues): {counts[0]}; within strata of topic: {counts[1]}; "
        f"of topic x length band: {counts[2]}. With 80 % power" in note
    )


def test_a_dataset_of_the_first_version_can_still_be_drawn(spectral: xr.Dataset) -> None:
    old = as_version_1(spectral)
    check(old, dataset_spec("spectral").schema)
    assert "The question's own influence was not controlled for." in figure_of("spectral", old).notes[0]
    assert (
        "40 pairs of a wrong and a correct answer of the same length"
        in figure_of("spectral", old, matched=True).notes[0]
    )
    with pytest.raises(StudyError, match="headwise build --redo spectral"):
        figure_of("spectral", old, within=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"features": ["laplacan"]}, "no feature 'laplacan'. Did you mean 'laplacian'"),
        ({"features": []}, "No feature was chosen"),
        ({"part": "answr"}, "no part 'answr'. Did you mean 'answer'"),
        ({"value": "efect"}, "cannot show 'efect'. Did you mean 'effect'"),
        ({"value": "effect", "matched": True}, "leave out matched, or show p or q"),
        ({"within": True, "matched": True}, "give within or matched"),
    ],
)
def test_unknown_names_are_refused(spectral: xr.Dataset, options: dict[str, object], message: str) -> None:
    with pytest.raises(StudyError, match=message):
        figure_of("spectral", spectral, **options)


def test_a_logarithmic_scale_tells_small_p_values_apart(spectral: xr.Dataset, tmp_path: Path) -> None:
    linear, log = figure_of("spectral", spectral), figure_of("spectral", spectral, scale="log", value="all")
    assert (linear.scales["p"].low, linear.scales["p"].high, linear.scales["p"].log) == (0.0, 1.0, False)
    smallest = float(spectral["p"].sel(part="whole", feature=["attention_score", "laplacian"]).min())
    for row in ("p", "q"):
        scale = log.scales[row]
        assert scale.log and scale.high == 1.0 and [mark.value for mark in scale.marks] == [0.05]
    assert log.scales["p"].low <= max(smallest, 1e-6) and log.scales["p"].low >= 1e-6
    assert not log.scales["effect"].log
    assert "logarithmic" in log.notes[0] and "logarithmic" not in linear.notes[0]
    assert save(log, tmp_path / "log.png").stat().st_size > 5000


def test_without_pairs_matched_is_refused(spectral: xr.Dataset) -> None:
    with pytest.raises(StudyError, match="has no answers of the same length"):
        figure_of("spectral", spectral.drop_vars(["p_matched", "q_matched"]), matched=True)


@pytest.mark.parametrize("shape", [(30, 9), (12, 12), (32, 32), (1, 1), (3, 2)])
@pytest.mark.parametrize("value", ["p", "all"])
def test_figures_of_any_size_are_legible(
    make_spectral: Callable[..., xr.Dataset], shape: tuple[int, int], value: str
) -> None:
    assert_legible(figure_of("spectral", make_spectral(*shape, examples=30), value=value))


def test_nothing_measured_and_nothing_known(spectral: xr.Dataset, tmp_path: Path) -> None:
    for name in ("p", "q", "effect", "null_high"):
        spectral[name][:] = np.nan
    figure = figure_of("spectral", spectral.drop_attrs(), value="all")
    assert figure.title == "Which heads differ between wrong and correct answers"
    assert "wrong against correct answers. " in figure.notes[0]
    assert all(panel.subtitle == "not measured" for panel in maps_of(figure))
    assert save(figure, tmp_path / "empty.png").stat().st_size > 1000


def test_the_published_layout(spectral: xr.Dataset) -> None:
    figure = figure_of("spectral", spectral, style="paper", cap=0.5)
    assert [panel.title for panel in figure.panels] == ["AttnScore", "Laplacian eigenvalues"]
    for panel in figure.panels:
        assert isinstance(panel, Heatmap)
        assert (panel.x.name, panel.y.name, panel.subtitle) == ("Head index", "Layer index", "")
    scale = figure.scales["p"]
    assert (scale.low, scale.high, scale.over) == (0.0, 0.5, True)
    named = figure_of("spectral", spectral, axes="head,layer").panels[0]
    assert isinstance(named, Heatmap) and (named.x.name, named.y.name) == ("head", "layer")
    with pytest.raises(StudyError, match="axes takes two names, of the heads and of the layers, not 1"):
        figure_of("spectral", spectral, axes="head")
    for cap in (0.0, 1.5):
        with pytest.raises(StudyError, match=f"cap of the colour scale is {cap}"):
            figure_of("spectral", spectral, cap=cap)
    assert figure_of("spectral", spectral, scale="log", cap=0.1).scales["p"].high == 0.1
