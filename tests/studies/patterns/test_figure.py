"""The figures of the patterns study: the right maps in the right places, nothing lost in pooling, small files."""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from legibility import assert_legible
from synthetic.circuits import circuits_dataset
from synthetic.patterns import CUT, MOVED, TOKENS, patterns_dataset

from headwise.core.errors import DataError, StudyError
from headwise.figures import Heatmap, Tiles, from_payload, save, to_payload
from headwise.figures.drawing.maps import tile_picture
from headwise.figures.scale import Scale
from headwise.figures.tiles import HIDDEN, pooled, pooled_levels, to_levels
from headwise.studies.patterns.figure import token_labels
from headwise.studies.present import figure_of


@pytest.fixture(scope="module")
def two() -> xr.Dataset:
    return patterns_dataset(4, 3)


@pytest.fixture(scope="module")
def wide() -> xr.Dataset:
    return patterns_dataset(30, 9)


def grid(dataset: xr.Dataset, **options: object) -> list[Tiles]:
    return [panel for panel in figure_of("patterns", dataset, **options).panels if isinstance(panel, Tiles)]


# ---- the grid -------------------------------------------------------------------------------------------------------


def test_one_panel_above_the_other_with_every_head_named(two: xr.Dataset) -> None:
    figure = figure_of("patterns", two)
    assert [panel.title for panel in figure.panels] == ["SmolLM2-135M-Instruct", "Sparse SmolLM2-135M-Instruct"]
    assert figure.columns == 1
    first = grid(two)[0]
    assert (first.columns, first.rows) == (4, 3)  # layers run across
    assert first.names[:5] == ("L0H0", "L1H0", "L2H0", "L3H0", "L0H1")
    assert (first.row_name, first.column_name) == ("Head", "Layer")


@pytest.mark.parametrize("shape", [(4, 3), (2, 5)])
def test_each_tile_is_the_map_of_the_head_it_names(shape: tuple[int, int]) -> None:
    dataset = patterns_dataset(*shape)
    scale = figure_of("patterns", dataset).scales["weight"]
    for place, panel in enumerate(grid(dataset)):
        for name, levels in zip(panel.names, panel.levels, strict=True):
            layer, head = (int(part) for part in name[1:].split("H"))
            expected = dataset["shown"].values[place, layer, head].astype(np.float32)
            np.testing.assert_array_equal(levels, to_levels(expected, scale.low, scale.high))


def test_the_mask_is_hidden_and_not_nought(two: xr.Dataset) -> None:
    levels = grid(two)[0].levels
    upper = np.triu(np.ones(levels.shape[1:], dtype=bool), 1)
    assert (levels[:, upper] == HIDDEN).all() and (levels[:, ~upper] < HIDDEN).all()


def test_heads_by_name_keep_their_order(two: xr.Dataset) -> None:
    assert grid(two, heads="L2H1, L0H0")[0].names == ("L2H1", "L0H0")
    with pytest.raises(DataError, match="no head L7H0 in these patterns: layers go from 0 to 3 and heads from 0 to 2"):
        grid(two, heads="L7H0")


def test_the_heads_that_changed_most_come_first(two: xr.Dataset) -> None:
    names = grid(two, top=3, by="change")[1].names
    assert grid(two, top=3, by="similarity")[1].names == names
    assert names[0] == f"L{MOVED[0]}H{MOVED[1]}"
    assert set(names[1:]) == {f"L{layer}H{head}" for layer, head in CUT}
    assert grid(two, top=1, by="diagonal_change")[0].names == names[:1]
    assert len(grid(two, by="peak")[0].names) == 12
    with pytest.raises(StudyError, match=r"cannot be ranked by 'pek'. Did you mean 'peak'"):
        grid(two, by="pek")
    with pytest.raises(StudyError, match="top must be at least 1, not 0"):
        grid(two, top=0)


def test_the_choice_of_heads_is_told(two: xr.Dataset) -> None:
    for options, told in (
        ({"top": 3}, "3 of 12 heads, those whose maps changed most (least similar first)"),
        ({"top": 2, "by": "peak"}, "2 of 12 heads, those with the largest “Peak” in"),
        ({"top": 2, "by": "peak_change"}, "2 of 12 heads, those whose “Peak” changed most, up or down"),
        ({"heads": "L0H0,L1H1"}, "2 of 12 heads, as requested"),
    ):
        figure = figure_of("patterns", two, **options)
        assert figure.subtitle.startswith(told) and f"Shown: {told}" in figure.notes[0]
    assert figure_of("patterns", two).subtitle == "" and "Shown:" not in figure_of("patterns", two).notes[0]


def test_a_tie_at_the_end_of_the_choice_is_told(two: xr.Dataset) -> None:
    level = two.copy(deep=True)
    level["value"].loc[{"statistic": "peak"}] = 0.5
    assert figure_of("patterns", level, top=2, by="peak").subtitle.endswith("others have the same value as the last")
    assert "others" not in figure_of("patterns", level, top=12, by="peak").subtitle


def test_one_model_alone_has_one_panel_and_no_change() -> None:
    alone = patterns_dataset(4, 3, two=False)
    assert len(grid(alone)) == 1
    with pytest.raises(StudyError, match="ranked by 'change'"):
        grid(alone, by="change")
    figure = figure_of("patterns", alone, numbers=True)
    assert len(figure.panels) == 6
    assert "Not drawn, because equal in every head: Open edges and Row sum" in figure.notes[0]
    assert len(figure_of("patterns", alone, statistics=["open"]).panels) == 1


def test_the_average_is_drawn_when_asked_for(two: xr.Dataset) -> None:
    figure = figure_of("patterns", two, average=True)
    assert figure.panels[0].levels.shape[1:] == (24, 24)  # type: ignore[union-attr]
    assert "average over 32 prompts of 128 tokens" in figure.notes[0]
    assert "mean over prompts" in figure.scales["weight"].label
    assert "The cat that the dog had chased" in figure_of("patterns", two).notes[0]


# ---- pixels ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tokens", "size"), [(64, 16), (61, 16), (33, 20), (10, 16)])
def test_a_single_bright_pixel_survives_pooling_and_painting(tokens: int, size: int) -> None:
    scale = Scale("weight", 0.0, 1.0, "Blues")
    dark = tile_picture(_tiles(np.full((1, 1, 1), 254, dtype=np.uint8)), scale, 12)[5, 5]
    for place in range(0, tokens * tokens, 173):
        one = np.zeros((1, tokens, tokens), dtype=np.float32)
        one.reshape(-1)[place] = 1.0
        small = to_levels(pooled(one, size), 0, 1)
        assert small.max() == 254
        for dots in (9, 17, 27, 72):
            picture = tile_picture(_tiles(small), scale, dots)
            assert (picture == dark).all(axis=-1).any(), (place, dots)


def test_hidden_pixels_stay_hidden_only_where_all_are() -> None:
    levels = np.full((1, 4, 4), HIDDEN, dtype=np.uint8)
    levels[0, 3, 0] = 7
    assert pooled_levels(levels, 2).tolist() == [[[255, 255], [7, 255]]]
    values = np.array([[np.nan, np.nan], [0.2, np.nan]])
    np.testing.assert_array_equal(pooled(values, 1), [[0.2]])


def test_the_mask_is_painted_as_a_texture() -> None:
    levels = np.zeros((1, 20, 20), dtype=np.uint8)
    levels[0][np.triu_indices(20, 1)] = HIDDEN
    picture = tile_picture(_tiles(levels), Scale("weight", 0.0, 1.0, "Blues"), 66)
    upper, lower = picture[5:20, 40:60].reshape(-1, 3), picture[40:60, 5:20].reshape(-1, 3)
    assert len(np.unique(upper, axis=0)) == 2 and len(np.unique(lower, axis=0)) == 1
    assert not set(map(tuple, upper.tolist())) & set(map(tuple, lower.tolist()))


def _tiles(levels: np.ndarray) -> Tiles:
    return Tiles("one", "", levels, tuple(f"L0H{place}" for place in range(len(levels))), 1, "weight")


# ---- one head, and the numbers --------------------------------------------------------------------------------------


def test_one_head_with_its_tokens_on_both_axes(two: xr.Dataset) -> None:
    figure = figure_of("patterns", two, head="L1H1")
    left, right = figure.panels
    assert isinstance(left, Heatmap) and isinstance(right, Heatmap)
    assert left.x.labels == left.y.labels == tuple(token.strip() for token in TOKENS)
    assert left.x.labels.count("the") == 4  # each its own row
    np.testing.assert_array_equal(right.values, two["shown"].values[1, 1, 1].astype(np.float32))
    assert "Similarity of the two maps" in figure.notes[0]
    assert_legible(figure)


def test_token_labels_are_readable(two: xr.Dataset) -> None:
    tokens = ["<s>", "\n", " ", "Ġé", "x" * 30, *TOKENS[5:]]
    labels = token_labels(two.assign_coords(token_text=("token", tokens)))
    assert labels[:5] == ("<s>", "\\n", "␣", "Ġé", "x" * 13 + "…")
    pooled_ = two.isel(query=slice(0, 7), key=slice(0, 7)).assign_coords(query=np.arange(7) * 3, key=np.arange(7) * 3)
    assert token_labels(pooled_)[:2] == ("<s>…cat", "that…dog")


def test_numbers_stand_side_by_side_with_their_change(two: xr.Dataset) -> None:
    figure = figure_of("patterns", two, statistics="peak,active".split(","))
    assert [panel.key for panel in figure.panels] == [
        "peak model", "peak reference", "peak change", "active model", "active reference", "active change",
    ]  # fmt: skip
    change = figure.panel("active change")
    assert isinstance(change, Heatmap)
    np.testing.assert_array_equal(change.values, two["change"].sel(statistic="active").values)
    count = int((two["q"].sel(statistic="active") < 0.05).sum())
    assert change.subtitle == f"q < 0.05: {count} of 12 heads"
    q = two["q"].sel(statistic="active").transpose("layer", "head").values
    assert {(mark.row, mark.column) for mark in change.marks} == set(map(tuple, np.argwhere(q < 0.05).tolist()))
    assert {mark.sign for mark in change.marks} == {"dot"} and "Dots: q < 0.05." in figure.notes[0]
    assert not figure.panels[0].marks  # type: ignore[union-attr]
    every = figure_of("patterns", two, numbers=True)
    assert {panel.key.split()[0] for panel in every.panels} == set(two["statistic"].values.tolist())
    assert figure.panels[0].scale == figure.panels[1].scale  # type: ignore[union-attr]
    with pytest.raises(StudyError, match="no statistic 'pek'"):
        figure_of("patterns", two, statistics="pek")


# ---- files ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"top": 12}, {"numbers": True}, {"head": "L3H1"}, {"heads": ["L0H0"]}])
def test_nothing_overlaps_at_thirty_by_nine(wide: xr.Dataset, options: dict[str, object]) -> None:
    assert_legible(figure_of("patterns", wide, **options))


def test_json_is_compact_and_comes_back(wide: xr.Dataset) -> None:
    figure = figure_of("patterns", wide)
    text = json.dumps(to_payload(figure), allow_nan=False)
    again = from_payload(json.loads(text))
    assert to_payload(again) == to_payload(figure)
    packed = json.loads(text)["panels"][0]["levels"]
    pixels = np.frombuffer(zlib.decompress(base64.b64decode(packed["deflated"])), np.uint8).reshape(packed["shape"])
    np.testing.assert_array_equal(pixels, figure.panels[0].levels)  # type: ignore[union-attr]
    assert len(text) < 400_000


@pytest.mark.parametrize("suffix", ["svg", "pdf"])
def test_files_are_small_and_always_the_same(two: xr.Dataset, tmp_path: Path, suffix: str) -> None:
    figure = figure_of("patterns", two)
    one, other = save(figure, tmp_path / f"a.{suffix}"), save(figure, tmp_path / f"b.{suffix}")
    assert one.read_bytes() == other.read_bytes()
    assert one.stat().st_size < 200_000
    if suffix == "svg":
        assert one.read_text().count("<image") == 2  # one picture a panel
        assert "L3H2" in one.read_text()  # names stay text


def test_a_model_of_eighty_by_sixty_four_stays_under_three_megabytes(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    dataset = patterns_dataset(4, 3)
    maps = np.where(np.tri(64) > 0, generator.gamma(0.1, 0.2, (1, 64, 64, 64)), np.nan).astype(np.float16)
    large = xr.Dataset(
        {"shown": (("condition", "layer", "head", "query", "key"), np.broadcast_to(maps, (2, 80, 64, 64, 64))),
         "value": (("condition", "statistic", "layer", "head"), np.ones((2, 1, 80, 64), dtype=np.float32))},
        coords={"statistic": ["peak"], "condition": ["model", "reference"], "name": ("condition", ["A", "B"]),
                "token_text": ("token", ["x"] * 64), "layer": np.arange(80), "head": np.arange(64)},
        attrs=dataset.attrs,
    )  # fmt: skip
    for suffix in ("pdf", "svg"):
        path = save(figure_of("patterns", large), tmp_path / f"large.{suffix}")
        assert path.stat().st_size < 3_000_000, suffix


def test_wrong_tiles_are_refused() -> None:
    with pytest.raises(DataError, match="one name for each of its tiles"):
        Tiles("t", "", np.zeros((2, 3, 3), dtype=np.uint8), ("a",), 1, "weight")
    with pytest.raises(DataError, match="2 rows of tiles and 1 names"):
        Tiles("t", "", np.zeros((2, 3, 3), dtype=np.uint8), ("a", "b"), 1, "weight", row_labels=("0",))


# ---- as published ---------------------------------------------------------------------------------------------------


def circuit_of(circuits: xr.Dataset, task: str, place: int) -> list[str]:
    """The heads of a circuit, from the definition: those of the largest effects, as many as are needed."""
    effect = np.abs(circuits[("effect", "reference_effect")[place]].sel(task=task).values)
    size = int(circuits["needed"].sel(task=task, unit="heads").values[place])
    cells = [(-effect[cell], cell) for cell in np.ndindex(effect.shape)]
    return [f"L{layer}H{head}" for _, (layer, head) in sorted(cells)[:size]]


@pytest.mark.parametrize("task", ["induction", "greater_than"])
def test_each_model_shows_the_heads_of_its_own_circuit(wide: xr.Dataset, task: str) -> None:
    circuits = circuits_dataset(30, 9)
    figure = figure_of("patterns", wide, by=f"circuits.{task}", others={"circuits": circuits})
    dense, sparse = figure.panels
    assert isinstance(dense, Tiles) and isinstance(sparse, Tiles)
    assert list(dense.names) == circuit_of(circuits, task, 0) and list(sparse.names) == circuit_of(circuits, task, 1)
    assert len(dense.names) > 2 * len(sparse.names) and dense.columns == sparse.columns
    scale = figure.scales["weight"]
    for place, panel in enumerate((dense, sparse)):
        layer, head = (int(part) for part in panel.names[0][1:].split("H"))
        expected = wide["shown"].values[place, layer, head].astype(np.float32)
        np.testing.assert_array_equal(panel.levels[0], to_levels(expected, scale.low, scale.high))
    assert (
        f"explain 90 %: {len(dense.names)} in SmolLM2-135M-Instruct and {len(sparse.names)} in Sparse"
        in figure.notes[0]
    )
    few = grid(wide, by=f"circuits.{task}", top=3, others={"circuits": circuits})
    assert [len(panel.names) for panel in few] == [3, 3]


def test_a_circuit_that_is_not_there_is_refused_with_the_reason(two: xr.Dataset) -> None:
    with pytest.raises(StudyError, match="no circuits; add them with headwise build --studies circuits"):
        grid(two, by="circuits.induction")
    circuits = circuits_dataset(4, 3)
    with pytest.raises(StudyError, match="no circuit of a task 'agreement'"):  # the second model does not solve it
        grid(two, by="circuits.agreement", others={"circuits": circuits})
    alone = circuits_dataset(4, 3, two=False)
    with pytest.raises(StudyError, match="build both with the same reference"):
        grid(two, by="circuits", others={"circuits": alone})
    assert len(grid(patterns_dataset(4, 3, two=False), by="circuits.agreement", others={"circuits": alone})) == 1


def test_the_published_layout(wide: xr.Dataset) -> None:
    """Two panels one above the other, sixteen named tiles to a row; the first circuit that both models have, or all heads."""
    circuits = circuits_dataset(30, 9)
    figure = figure_of("patterns", wide, style="paper", others={"circuits": circuits})
    assert [len(panel.names) for panel in figure.panels] == [len(circuit_of(circuits, "induction", i)) for i in (0, 1)]  # type: ignore[union-attr]
    assert figure.columns == 1 and {panel.columns for panel in figure.panels} == {16}  # type: ignore[union-attr]
    every = figure_of("patterns", wide, style="paper")
    assert every.panels[0].names == tuple(f"L{layer}H{head}" for layer in range(30) for head in range(9))  # type: ignore[union-attr]
    assert_legible(figure)


@pytest.mark.parametrize(
    "options", [{"by": "circuits"}, {"style": "paper"}, {"style": "paper", "heads": "L12H3,L29H8"}]
)
def test_names_are_on_the_tiles_where_they_fit(wide: xr.Dataset, tmp_path: Path, options: dict[str, object]) -> None:
    figure = figure_of("patterns", wide, others={"circuits": circuits_dataset(30, 9)}, **options)
    text = save(figure, tmp_path / "figure.svg").read_text()
    assert all(f">{name}<" in text for panel in figure.panels for name in panel.names)  # type: ignore[union-attr]


def test_two_lists_and_the_shape_of_the_grid(two: xr.Dataset) -> None:
    first, second = grid(two, heads="L2H1,L0H0,L1H1", reference_heads="L3H2", grid="2x5")
    assert (first.names, second.names) == (("L2H1", "L0H0", "L1H1"), ("L3H2",))
    assert first.columns == second.columns == 5
    assert grid(two, grid="3 x 4")[0].names[:4] == ("L0H0", "L0H1", "L0H2", "L1H0")
    assert (
        "3 and 1 of 12 heads, as requested"
        in figure_of("patterns", two, heads="L2H1,L0H0,L1H1", reference_heads="L3H2").notes[0]
    )
    for wrong, sentence in (("3", "rows x columns of tiles, such as 8x16, not '3'"), ("0x9", "rows x columns"),
                            ("3x3", "A grid of 3 x 3 has 9 places for 12 heads")):  # fmt: skip
        with pytest.raises(StudyError, match=sentence):
            grid(two, grid=wrong)
    with pytest.raises(StudyError, match="of one model; leave out reference_heads"):
        grid(patterns_dataset(4, 3, two=False), reference_heads="L0H0")
