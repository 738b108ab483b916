from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from legibility import assert_legible
from synthetic.probing import probing_dataset as make_probing

from headwise.core.errors import StudyError
from headwise.figures import Heatmap, Intervals, save
from headwise.studies.present import figure_of

KINDS = ("tokens", "within", "heads", "transfer", "table")


@pytest.fixture
def probing() -> xr.Dataset:
    return make_probing()


def test_the_sheets_figure(probing: xr.Dataset) -> None:
    """Layer x token, 0 at the top, AUROC 0.5 to 1 in blue, the exact-answer columns framed, the site named."""
    figure = figure_of("probing", probing)
    left, right = figure.panels
    assert isinstance(left, Heatmap) and isinstance(right, Heatmap)
    assert left.y.labels[0] == "0" and left.x.labels[0] == "last_q" and left.x.labels[-1] == "-1"
    assert left.x.labels[7:10] == ("-8*", "-7*", "-6*")
    scale = figure.scales["auroc"]
    assert (scale.low, scale.high, scale.colours) == (0.5, 1.0, "Blues")
    np.testing.assert_array_equal(left.values, probing["auroc"].sel(site="mlp_in").values)
    np.testing.assert_array_equal(right.values, probing["received"].values)
    assert "MLP input" in left.title
    (frame,) = left.frames
    assert (frame.first_column, frame.last_column) == (3, 6)
    best = probing["auroc"].sel(site="mlp_in").values[:, 3:7].max(axis=1)
    near = np.flatnonzero(best >= best.max() - 0.02)
    assert (frame.first_row, frame.last_row) == (near[0], near[-1])
    (ring,) = left.marks
    assert left.values[ring.row, ring.column] == np.nanmax(left.values)
    high = float(probing["best_high"].sel(site="mlp_in"))
    assert f"{int((left.values > high).sum())} of 450 cells" in left.subtitle


def test_site_positions_and_layers_are_chosen_by_plain_words(probing: xr.Dataset) -> None:
    figure = figure_of("probing", probing, site="residual", positions="-1,last_q, exact_answer_last", layers="3-9")
    left = figure.panels[0]
    assert isinstance(left, Heatmap)
    assert "residual stream" in left.title
    assert left.x.labels == ("last_q", "exact_answer_last", "-1")
    (frame,) = left.frames
    assert (frame.first_row, frame.last_row, frame.first_column, frame.last_column) == (3, 9, 1, 1)
    assert figure_of("probing", probing, positions=["last_q"]).panels[0].frames == ()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"site": "mlp_out"}, "did not probe the site 'mlp_out'. .*mlp_in"),
        ({"positions": "last"}, "knows no token position 'last'. Did you mean 'last_q'"),
        ({"kind": "head"}, "has no kind 'head'. Did you mean 'heads'"),
        ({"layers": "20-90"}, "takes a range from 0 to 29, such as 3-29, not '20-90'"),
        ({"layers": "late"}, "not 'late'"),
    ],
)
def test_unknown_choices_have_a_guess(probing: xr.Dataset, options: dict[str, str], message: str) -> None:
    with pytest.raises(StudyError, match=message):
        figure_of("probing", probing, **options)


def test_nothing_is_framed_where_nothing_was_found() -> None:
    figure = figure_of("probing", make_probing(strength=0.0))
    assert all(panel.frames == () for panel in figure.panels if isinstance(panel, Heatmap))
    assert "nothing at the exact answer is beyond chance" in figure.notes[0]


def test_the_other_kinds(probing: xr.Dataset) -> None:
    heads = figure_of("probing", probing, kind="heads").panels[0]
    assert isinstance(heads, Heatmap)
    found = int((probing["head_q"] < 0.05).sum())
    assert heads.values.shape == (30, 9) and f"{found} of 270 heads" in heads.subtitle
    inside = figure_of("probing", probing, kind="heads").panels[1]
    assert f"{int((probing['head_within_q'] < 0.05).sum())} of 270 heads" in inside.subtitle
    raw, gain = figure_of("probing", probing, kind="transfer").panels
    assert isinstance(raw, Heatmap) and isinstance(gain, Heatmap)
    np.testing.assert_allclose(raw.values - probing["transfer_logprob"].values, gain.values, atol=1e-6)
    table = figure_of("probing", probing, kind="table").panels[0]
    assert isinstance(table, Intervals)
    assert table.y.labels[0] == "Probe, exact answer"
    assert table.y.labels[-3:] == ("Question: topic, difficulty, length", "Question: topic", "Question: words")
    _, inside, gain = figure_of("probing", probing, kind="table").panels
    at = inside.y.labels.index("Probe, best cell")
    assert inside.values[at] == pytest.approx(0.6) and gain.values[at] == pytest.approx(0.07, abs=1e-6)
    assert "(Question: topic, difficulty, length)" in figure_of("probing", probing, kind="table").notes[0]
    with pytest.raises(StudyError, match="no cross-topic matrix"):
        figure_of("probing", probing.drop_vars(["transfer", "transfer_gain"]), kind="transfer")


def test_the_map_within_strata_stands_next_to_the_plain_one(probing: xr.Dataset) -> None:
    figure = figure_of("probing", probing, kind="within", site="residual")
    plain, within = figure.panels
    np.testing.assert_array_equal(within.values, probing["within"].sel(site="residual").values)
    np.testing.assert_array_equal(plain.values, probing["auroc"].sel(site="residual").values)
    count = int((probing["within_q"].sel(site="residual") < 0.05).sum())
    assert f"q < 0.05: {count} of 450 cells" in within.subtitle and "topic x difficulty (60 strata)" in figure.notes[0]
    assert "Within topic x difficulty (60 strata)" in figure_of("probing", probing).notes[0]


def test_a_dataset_of_the_first_version_is_still_drawn(probing: xr.Dataset) -> None:
    new = (
        "within",
        "head_within",
        "table_within",
        "table_gain",
        "table_over",
        "table_exact",
        "has_exact",
        "auroc_exact",
    )
    names = [name for name in probing.data_vars if str(name).startswith((*new, "nested_within", "stratum"))]
    old = probing.drop_vars(names)
    for kind in ("tokens", "heads", "table"):
        assert len(figure_of("probing", old, kind=kind).panels) == {"tokens": 2, "heads": 2, "table": 1}[kind]
    with pytest.raises(StudyError, match=r"has no map within strata.*--redo probing"):
        figure_of("probing", old, kind="within")


@pytest.mark.parametrize("size", [(30, 9), (80, 64), (4, 2)])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_legible_at_every_size(size: tuple[int, int], kind: str, tmp_path: Path) -> None:
    figure = figure_of("probing", make_probing(*size), kind=kind)
    assert_legible(figure)
    if size == (30, 9):
        assert save(figure, tmp_path / "figure.svg").stat().st_size > 1000


def test_the_published_layout_is_the_map_alone(probing: xr.Dataset) -> None:
    figure = figure_of("probing", probing, style="paper")
    (panel,) = figure.panels
    assert isinstance(panel, Heatmap)
    np.testing.assert_array_equal(panel.values, probing["auroc"].sel(site="mlp_in").values)
    assert panel.frames and not panel.marks and not panel.subtitle and not figure.scales["auroc"].marks
    assert panel.x.labels == tuple(probing["token"].values)
    assert not any(word in figure.notes[0] for word in ("ring:", "Pointer", "Hatched", "*"))
    assert_legible(figure)


def test_the_frame_takes_the_columns_that_are_asked_for(probing: xr.Dataset) -> None:
    figure = figure_of("probing", probing, frame="exact_answer_first,exact_answer_last", layers="3-9")
    (frame,) = figure.panels[0].frames  # type: ignore[union-attr]
    assert (frame.first_column, frame.last_column, frame.first_row, frame.last_row) == (4, 5, 3, 9)
    assert "Frame: exact_answer_first, exact_answer_last, layers 3 to 9" in figure.notes[0]
    with pytest.raises(StudyError, match="next to each other, not last_q, -1"):
        figure_of("probing", probing, frame="-1,last_q")
    with pytest.raises(StudyError, match="no token position 'exact'"):
        figure_of("probing", probing, frame="exact")
