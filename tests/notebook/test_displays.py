"""Results in a notebook's cell: escaped, small, without a style sheet or a script, readable without colours of their own."""

from __future__ import annotations

import base64
import html
import re
import shutil
from html.parser import HTMLParser
from io import BytesIO

import numpy as np
import pytest
import xarray as xr
from PIL import Image
from synthetic.profile import profile_dataset
from synthetic.relations import relations_dataset

from headwise.analysis import Comparison, head_report
from headwise.analysis.study_agreement import PAIRED, Agreement
from headwise.atlas import Atlas
from headwise.core.markup import Html, card, facts, listing, paragraph, table
from headwise.describe import Description
from headwise.figures import Figure, Heatmap, drawing
from headwise.figures.panels import Axis, Curve, Curves
from headwise.figures.scale import Scale
from headwise.figures.thumbnail import thumbnail
from headwise.seam.verify import Check, CheckReport
from headwise.studies.planning import Plan
from headwise.studies.present import figure_of
from headwise.watching import Score

EVIL = "<script>alert(1)</script>\"'&"
PLAN = Plan(
    "m", "float32", "cpu", {"profile": {"examples": 10, "tokens": 2000, "seconds": 95.0}}, ("mine",),
    {"weights": 538_000_000}, 538_000_000, 10**9, 12_000, 95.0, 5e10,
)  # fmt: skip


class Seen(HTMLParser):
    """The tags of a page, each closed in its turn, and its text."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(content)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        assert not any(name.startswith("on") for name, _ in attrs)
        if tag != "img":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def seen(result: object) -> Seen:
    """What a cell would show; holds for every result: no script, no style sheet, nothing from elsewhere."""
    content = result if isinstance(result, Html) else result._repr_html_()
    found = Seen(content)
    assert not {"script", "style", "link", "iframe", "svg"} & set(found.tags)
    assert not re.findall(r"(?:src|href)=\"(?!data:)", content)
    return found


def test_markup_escapes_text_and_keeps_markup():
    for made in (
        card(EVIL, note=EVIL),
        paragraph(EVIL),
        listing([EVIL]),
        facts({EVIL: EVIL}),
        table([[EVIL]], header=[EVIL]),
    ):
        found = Seen(made)
        assert isinstance(made, Html) and "script" not in found.tags and EVIL in found.text
    assert Seen(table([[paragraph("x")]])).tags.count("p") == 1
    assert "None" not in facts({"revision": None})


def test_an_atlas_shows_its_studies_with_words_and_pictures(atlas):
    found = seen(atlas)
    for study in atlas.studies:
        assert html.unescape(atlas.describe(study).short()) in found.text
    assert found.tags.count("img") == 2 and len(atlas._repr_html_()) < 20_000
    assert "Atlas of HuggingFaceTB/SmolLM2-135M-Instruct" in found.text


def test_an_atlas_that_changed_is_read_anew(tmp_path):
    atlas = Atlas.create(tmp_path / "atlas")
    assert "It is empty" in seen(atlas).text
    first = profile_dataset(4, 3, texts=4, randoms=2).assign_attrs(record='["value"]')
    atlas.add("profile", first)
    assert atlas.describe("profile").short() in seen(atlas).text
    other = profile_dataset(4, 3, texts=8, randoms=2, seed=5).assign_attrs(record='["value"]')
    atlas.add("profile", other)
    assert atlas.describe("profile").short() in seen(atlas).text


def test_a_damaged_study_says_so_in_the_card(atlas, tmp_path):
    shutil.copytree(atlas.path, tmp_path / "atlas")
    chunk = next(path for path in (tmp_path / "atlas/profile/value/c").rglob("*") if path.is_file())
    chunk.write_bytes(b"?")
    assert "is damaged" in seen(Atlas.open(tmp_path / "atlas")).text


def test_a_figure_is_one_picture_with_its_words(atlas):
    figure = atlas.figure("profile")
    content = figure._repr_html_()
    assert seen(content).tags == ["img"] and html.escape(figure.alt) in content and len(content) < 500_000
    assert repr(figure).startswith("<Figure 'Where each head attends") and len(repr(figure)) < 200


def test_a_small_figure_is_a_vector_drawing_and_a_large_one_pixels(monkeypatch):
    axes = Axis("Head", ("0", "1")), Axis("Layer", ("0",))
    panel = Heatmap("a", EVIL, np.array([[0.0, 1.0]]), *axes, scale="s")
    small = Figure(EVIL, (panel,), 1, {"s": Scale("x", 0, 1)}, alt=EVIL)
    assert "data:image/svg+xml;base64," in small._repr_html_() and "script" not in seen(small).tags
    monkeypatch.setattr(drawing, "MAX_SVG_BYTES", 100)
    kind, data, width = re.search(r'data:([\w/+]+);base64,([^"]+)".*width:(\d+)px', small._repr_html_()).groups()
    drawn = Image.open(BytesIO(base64.b64decode(data)))
    assert kind == "image/png" and int(width) == pytest.approx(drawn.width * 96 / 144, abs=1)


def test_a_thumbnail_is_the_first_map_pixel_by_pixel():
    values = np.array([[0.0, 0.5], [1.0, np.nan], [0.25, 0.75]])
    panel = Heatmap("a", "", values, Axis("Head", ("0", "1")), Axis("Layer", ("0", "1", "2")), scale="s")
    found = np.array(Image.open(BytesIO(thumbnail(Figure("t", (panel,), 1, {"s": Scale("x", 0, 1, "Greys")})))))
    assert found.shape == (2, 3, 3)  # the longer side across
    assert found[0, 0].tolist() == [255, 255, 255] and found[0, 1].tolist() == [0, 0, 0]
    assert found[1, 1].tolist() == [200, 200, 200]  # not measured
    assert found[1, 0, 0] > found[1, 2, 0]  # 0.5 is lighter than 0.75


def test_a_thumbnail_of_categories_and_of_tiles_and_none_of_curves(atlas):
    relations = figure_of("relations", relations_dataset())
    assert Image.open(BytesIO(thumbnail(relations))).size == (30, 9)
    assert Image.open(BytesIO(thumbnail(atlas.figure("patterns")))).mode == "RGB"
    curve = Curve("a", "a", np.array([0.0, 1.0]), np.array([0.0, 1.0]))
    assert thumbnail(Figure("t", (Curves("c", "c", (curve,), Axis("x"), Axis("y")),), 1)) is None


def test_words_show_all_their_sections(atlas):
    words = atlas.describe("profile")
    found = seen(words)
    for heading, entries in words.sections().items():
        assert heading in found.text and all(entry in found.text for entry in entries)
    assert "script" not in Seen(Description(EVIL, overview=(EVIL,), detail=(EVIL,))._repr_html_()).tags
    assert len(repr(words)) < 500


def test_a_head_report_shows_every_measured_value_and_the_maps(atlas):
    found = head_report(atlas, "L1H1")
    shown = seen(found)
    assert shown.tags.count("img") == len(found.patterns.maps) and found.summary in shown.text
    for values in found.values.values():
        assert all(value.label in shown.text for value in values if np.isfinite(value.value))
    assert "<script>alert(1)</script>" in shown.text  # a token of the shown prompt
    assert repr(found).startswith("<HeadReport L1H1 of ")


def test_an_agreement_shows_the_pairs_with_the_smallest_q_first():
    nan = float("nan")
    keys = ["a", "b", "c", "d", "x"]
    data = xr.Dataset(
        {name: (("head_set", "other_set"), np.full((5, 5), 0.1)) for name in PAIRED}
        | {"member": (("head_set", "place"), np.ones((5, 1), bool))},
        coords={"head_set": keys, "other_set": keys, "place": ["L0H0"], "study": ("head_set", [*"1111", "2"])},
    )
    data["q"][:, 4], data["correlation_q"][:, 4] = [0.5, nan, 0.9, 0.04, nan], [nan, nan, 0.01, 0.6, nan]
    data["correlation_within"][:] = nan
    data = data.assign_coords(label=data["head_set"], rule=data["head_set"])
    found = Agreement(data, EVIL, 100, 0, "within layers", 0.0, 0.0)
    rows = re.findall(r"<tr.*?</tr>", found._repr_html_())[1:]
    assert [Seen(row).text[0] for row in rows] == ["c", "d", "a", "b"] and "nan" not in "".join(rows)
    assert EVIL in seen(found).text and len(repr(found)) < 120


def test_a_comparison_shows_the_heads_that_changed_most():
    maps = ("column", "layer", "head")
    data = xr.Dataset(
        {"a": (maps, [[[0.0], [0.0]]]), "b": (maps, [[[1.0], [2.5]]]), "noise": (maps, np.ones((1, 2, 1)))},
        coords={"column": [EVIL], "study": ("column", ["mine"]), "label": ("column", ["Mine"])},
    )
    data = data.assign(change=data["b"] - data["a"], q=data["noise"], tested=("column", [2]), changed=("column", [0]))
    found = Comparison(data, "A", "B", warnings=(EVIL,))
    assert "Nothing changed beyond noise" in seen(found).text
    found = Comparison(data.assign(q=0 * data["q"], changed=2 * data["changed"] + 2), "A", "B", warnings=(EVIL,))
    text = seen(found).text
    assert text.index("L1H0") < text.index("L0H0") and text.count(EVIL) == 3
    other = Comparison(data.isel(layer=0, head=0, drop=True), "A", "B", "the shapes differ")
    assert "the shapes differ" in seen(other).text and "the shapes differ" in repr(other)


def test_a_model_and_its_card_show_what_they_are(tiny):
    assert tiny.card.id in seen(tiny.card).text and "2 layers" in seen(tiny.card).text
    assert "float32 on cpu" in seen(tiny).text
    assert len(repr(tiny.card)) < 120


def test_a_check_report_shows_every_check_and_refusal():
    report = CheckReport(
        "m", [Check("layers", True, "all"), Check("logits", False, EVIL, 0.5, 1e-3)], {3: "linear attention"}
    )
    text = seen(report).text
    assert "can NOT be measured correctly" in text and EVIL in text and "5.0e-01" in text and "linear attention" in text
    assert repr(report) == "<CheckReport m: NOT ok: logits>"


def test_a_plan_shows_memory_disk_and_time():
    text = seen(PLAN).text
    assert all(part in text for part in ("538 MB", "of 1 GB", "12 kB", "2 min", "not estimated", "It fits."))
    assert repr(PLAN) == "<Plan m in float32 on cpu: 538 MB of memory, 12 kB of disk, 2 min>"


@pytest.mark.parametrize(("probability", "told"), [(0.83, "0.83 that it is wrong"), (float("nan"), "has no score")])
def test_a_score_shows_question_answer_and_heads(probability, told):
    score = Score("x", EVIL, EVIL, probability, {"L3H4": 0.41}, {"spectral": -1.2}, ["length"])
    text = seen(score).text
    assert told in text and "+0.41" in text and "-1.20" in text and "Distrust" in text and text.count(EVIL) == 2
