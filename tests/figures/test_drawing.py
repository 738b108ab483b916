from __future__ import annotations

import runpy
import zlib
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
import xarray as xr
from legibility import assert_legible
from matplotlib.axes import Axes
from matplotlib.image import imread

from headwise.core.errors import DataError
from headwise.figures import Axis, Curve, Curves, Figure, Heatmap, Panel, Scale, drawing, save
from headwise.figures.layout import lay_out
from headwise.studies.present import figure_of

GALLERY = runpy.run_path(str(Path(__file__).with_name("gallery.py")))["gallery"]()
SIZES = [(6, 4), (12, 12), (30, 9), (32, 32), (80, 64)]


@pytest.mark.parametrize("shape", [*SIZES, (1, 1), (1, 12), (12, 1), (126, 128)])
@pytest.mark.parametrize("relative", [False, True])
def test_profiles_of_any_size_are_legible(
    make_profile: Callable[..., xr.Dataset], shape: tuple[int, int], relative: bool
) -> None:
    assert_legible(figure_of("profile", make_profile(*shape, texts=6, randoms=4), relative=relative))


def test_long_labels_are_wrapped(profile: xr.Dataset) -> None:
    long = [f"{label}, as a share of what is seen" for label in profile["label"].values]
    assert_legible(figure_of("profile", profile.assign_coords(label=("statistic", long))))


@pytest.mark.parametrize("name", GALLERY)
def test_figures_of_the_other_studies_are_legible(name: str) -> None:
    assert_legible(GALLERY[name])


@pytest.mark.parametrize("shape", SIZES)
def test_panels_do_not_overlap(make_profile: Callable[..., xr.Dataset], shape: tuple[int, int]) -> None:
    page = lay_out(figure_of("profile", make_profile(*shape, texts=3, randoms=2)))
    boxes = [box for slot in page.slots for box in (slot.box, slot.bar) if box is not None]
    for one, other in combinations(boxes, 2):
        apart = one.right <= other.left or other.right <= one.left or one.top <= other.bottom or other.top <= one.bottom
        assert apart
    assert min(box.left for box in boxes) > 0
    assert max(box.right for box in boxes) < page.width
    assert min(box.bottom for box in boxes) > 0
    assert max(box.top for box in boxes) < page.height
    assert len({round(slot.box.width, 6) for slot in page.slots[:-1]}) == 1
    assert page.width <= 7.21


def test_a_narrow_map_is_as_wide_as_the_longest_word_above_it() -> None:
    """A model of four heads has maps a centimetre wide, and "Decision-mak / ing" above one is no title."""
    titles = ("Decision-making", "Semantic Understanding", "Retrieval", "Inference")
    axes = {"x": Axis("Head", tuple("0123")), "y": Axis("Layer", tuple(map(str, range(18))))}
    panels = tuple(Heatmap(title, title, np.zeros((18, 4)), scale="score", **axes) for title in titles)
    page = lay_out(Figure("A small model", panels, columns=4, scales={"score": Scale("score", 0.0, 1.0)}))
    assert {word for slot in page.slots for line in slot.title for word in line.split()} == set(
        " ".join(titles).split()
    )


def test_png_svg_and_pdf_are_valid_and_carry_their_words(profile: xr.Dataset, tmp_path: Path) -> None:
    figure = figure_of("profile", profile).with_alt("Maps of 270 heads & what they do.")
    png, svg, pdf = (save(figure, tmp_path / f"profile.{suffix}") for suffix in ("png", "svg", "pdf"))
    assert imread(png).shape[1] == 2160
    assert b"Maps of 270 heads" in png.read_bytes()
    tree = ElementTree.parse(svg)
    space = "{http://www.w3.org/2000/svg}"
    assert tree.getroot().get("role") == "img"
    assert tree.findtext(f"{space}title") == figure.title
    assert tree.findtext(f"{space}desc") == "Maps of 270 heads & what they do."
    assert "Induction" in {element.text for element in tree.iter(f"{space}text")}  # text stays text
    content = pdf.read_bytes()
    assert content.startswith(b"%PDF-")
    assert content.rstrip().endswith(b"%%EOF")
    assert b"Maps of 270 heads" in content


@pytest.mark.parametrize("suffix", ["pdf", "svg"])
def test_large_maps_stay_small_and_vector(make_profile: Callable[..., xr.Dataset], tmp_path: Path, suffix: str) -> None:
    path = save(figure_of("profile", make_profile(80, 64, texts=3, randoms=2)), tmp_path / f"large.{suffix}")
    content = path.read_bytes()
    assert len(content) < {"pdf": 1_000_000, "svg": 5_000_000}[suffix]
    assert b"/Subtype /Image" not in content
    assert b"<image" not in content


@pytest.mark.parametrize("suffix", [".pdf", ".svg", ".png"])
def test_the_same_figure_gives_the_same_bytes(suffix: str) -> None:
    figure = GALLERY["spectral"]
    assert drawing.render(figure, suffix) == drawing.render(figure, suffix)


def test_colours_are_those_of_the_scale(tmp_path: Path) -> None:
    """The cell of the lowest value has the scale's first colour, the highest its last, the missing one neither."""
    figure = GALLERY["spectral"]
    values = np.array(figure.panel("laplacian").values)
    picture = imread(save(figure, tmp_path / "spectral.png"))
    slot = lay_out(figure).slots[1]

    def pixel(row: int, column: int) -> np.ndarray:
        x = slot.box.left + (column + 0.5) * slot.box.width / values.shape[1]
        y = slot.box.top - (row + 0.5) * slot.box.height / values.shape[0]
        return picture[round(picture.shape[0] - y * 300), round(x * 300), :3]

    viridis = matplotlib.colormaps["viridis"]
    for place in (np.nanargmin(values), np.nanargmax(values)):
        row, column = divmod(int(place), values.shape[1])
        np.testing.assert_allclose(pixel(row, column), viridis(float(values[row, column]))[:3], atol=0.02)
    missing = pixel(3, 4)
    assert missing.max() - missing.min() < 0.02  # grey: no colour of the scale is


def test_nothing_measured_is_texture_not_zero(profile: xr.Dataset, tmp_path: Path) -> None:
    profile["value"][:] = np.nan
    profile["low"][:] = profile["high"][:] = np.nan
    content = save(figure_of("profile", profile), tmp_path / "empty.pdf").read_bytes()
    assert b"/PatternType 1" in content  # the hatching
    assert_legible(figure_of("profile", profile))


def test_global_state_is_left_alone(tmp_path: Path) -> None:
    before = dict(matplotlib.rcParams)
    save(GALLERY["companions"], tmp_path / "a.png", dpi=72)
    assert dict(matplotlib.rcParams) == before


def test_the_users_style_does_not_leak_in() -> None:
    plain = drawing.render(GALLERY["spectral"], ".svg")
    with matplotlib.rc_context({"axes.facecolor": "black", "font.size": 30, "image.cmap": "jet"}):
        assert drawing.render(GALLERY["spectral"], ".svg") == plain


def test_dollars_and_underscores_are_plain_text() -> None:
    figure = Figure("Costs $5 or $6 a_b", GALLERY["spectral"].panels, 2, GALLERY["spectral"].scales)
    assert "Costs $5 or $6 a_b" in drawing.render(figure, ".svg").decode()


def test_wrong_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot be written as 'a.jpg'; end the name with one of .pdf, .png, .svg"):
        save(GALLERY["spectral"], tmp_path / "a.jpg")
    with pytest.raises(
        DataError, match=r"There is no folder .*nowhere; create it first, or choose another path with -o"
    ):
        save(GALLERY["spectral"], tmp_path / "nowhere" / "a.pdf")
    assert list(tmp_path.iterdir()) == []


def test_pdf_streams_can_be_read(tmp_path: Path) -> None:
    content = save(GALLERY["functions"], tmp_path / "functions.pdf").read_bytes()
    streams = [part.split(b"\nendstream")[0] for part in content.split(b"stream\n")[1:]]
    opened = [zlib.decompress(stream) for stream in streams if stream[:1] == b"x"]
    assert any(b" re" in stream or b" l\n" in stream for stream in opened)


def drawn(panel: Panel) -> list[Axes]:
    with matplotlib.style.context(["default", drawing.STYLE]):
        canvas = drawing.draw(Figure("One", (panel,), 1, {"s": Scale("value", 0.0, 1.0)}))
        canvas.draw_without_rendering()
    return list(canvas.axes)


def test_a_map_without_a_number_says_why() -> None:
    axis = Axis("Head", tuple(str(place) for place in range(9)))
    values = np.full((9, 9), np.nan)
    panel = Heatmap(
        "m", "M", values, axis, axis, "s", missing="No map: the probe does not tell it from the others " * 3
    )
    (text,) = [text.get_text() for text in drawn(panel)[0].texts]
    assert text.replace("\n", " ") == panel.missing.strip() and "\n" in text
    values[0, 0] = 0.5
    assert not drawn(Heatmap("m", "M", values, axis, axis, "s", missing="No map"))[0].texts


def test_leaves_of_a_tree_are_named() -> None:
    names = ("Knowledge Recall", "Retrieval", "Syntactic Understanding")
    tree = Curve("tree", "tree", [0, 0.4, 0.4, 0], [0, 0, 1, 1])
    panel = Curves("t", "Tree", (tree,), Axis("distance", low=0), Axis("", names, low=2.5, high=-0.5))
    axes = drawn(panel)[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == list(names)
    assert axes.get_ylim() == (2.5, -0.5)
    assert_legible(Figure("One", (panel,), 1))


def test_the_first_and_last_step_are_as_wide_as_the_others() -> None:
    counts = Curve("heads", "heads", [0, 1, 2], [3, 0, 5], style="step")
    axes = drawn(Curves("c", "Counts", (counts,), Axis("Layer"), Axis("Heads")))[0]
    x, y = axes.lines[0].get_data()
    assert (x[0], x[-1], y[0], y[-1]) == (-0.5, 2.5, 3, 5)


def test_counts_have_whole_ticks() -> None:
    counts = Curve("heads", "heads", [0, 1, 2], [3, 0, 9])
    axes = drawn(Curves("c", "Counts", (counts,), Axis("Layer"), Axis("Heads", low=0, high=9.4)))[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["0", "5"]


def test_a_point_without_neighbours_is_drawn_although_a_line_has_no_length_there() -> None:
    gap = Curve("g", "", [1, 2, 3, 4, 5], [0.5, np.nan, 0.2, 0.3, np.nan], [0.4] + 4 * [0.1], [0.6] + 4 * [0.4])
    one = Curve("o", "", [2], [0.44], [0.3], [0.6], style="dashed")
    axes = drawn(Curves("c", "Accuracy", (gap, one), Axis("Heads removed"), Axis("Accuracy")))[0]
    dots = [line for line in axes.lines if line.get_marker() == "o"]
    assert [line.get_xdata().tolist() for line in dots] == [[1], [2]]
    whiskers = [path.vertices[:, 1] for lines in axes.collections for path in lines.get_paths() if len(path) == 2]
    np.testing.assert_allclose(whiskers, [[0.4, 0.6], [0.3, 0.6]], rtol=1e-6)
