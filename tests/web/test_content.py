"""What the pages hold: every number is the atlas's own, every path is JSON, and what is missing is said."""

import json
from functools import partial

import numpy as np
import pytest
from synthetic.atlas import MAKERS, SMALL, synthetic_atlas

from headwise.atlas import Provenance
from headwise.core.errors import DataError, HeadwiseError, StudyError
from headwise.figures import Heatmap, to_payload
from headwise.studies.present import figure_of, figures_on_page
from headwise.studies.registry import dataset_spec, datasets
from headwise.web.content import Content
from headwise.web.model_card import data_facts
from headwise.web.study_page import thumbnail

CHAPTERS = [name for name, spec in datasets().items() if spec.has_page]


@pytest.fixture(scope="module")
def atlas(tmp_path_factory):
    return synthetic_atlas(tmp_path_factory.mktemp("content") / "atlas", 6, 4, (*SMALL, "salience"))


@pytest.fixture(scope="module")
def content(atlas):
    return Content(atlas)


def test_every_path_is_json_without_nan(content):
    paths = list(content.paths())
    assert paths[0] == "atlas" and "head/L5H3" in paths and "study/profile" in paths
    for path in paths:
        json.dumps(content.at(path), allow_nan=False)


def test_the_opening_names_every_study_and_what_is_missing(content):
    opening = content.at("atlas")
    assert [study["key"] for study in opening["studies"]] == [key for key in CHAPTERS if key in SMALL]
    found = content.at("findings")["studies"]
    assert [(one["key"], one["title"]) for one in found] == [(one["key"], one["title"]) for one in opening["studies"]]
    assert all(one["short"] and one["thumbnail"] for one in found)
    assert {one["key"] for one in opening["missing"]} == set(CHAPTERS) - set(SMALL)
    assert opening["missing"][0]["command"].startswith("headwise build --studies ")
    assert (opening["model"]["layers"], opening["model"]["heads"]) == (6, 4)
    assert {fact["label"] for fact in opening["model"]["facts"]} >= {"Layers", "Heads per layer", "Key-value heads"}


def test_words_are_those_of_describe(content, atlas):
    words = atlas.describe("spectral")
    page = content.at("study/spectral")
    assert page["short"] == words.short()
    assert {**page["words"], "Caveats": page["caveats"]} == words.sections()


def test_a_figure_is_the_figure_of_the_atlas(content, atlas):
    listed = content.at("study/profile")["figures"]
    assert [one["key"] for one in listed] == ["value", "relative"]
    shown = content.at(listed[1]["path"])
    drawn = to_payload(figure_of("profile", atlas["profile"], relative=True))
    assert shown["panels"] == drawn["panels"] and shown["scales"] == drawn["scales"]
    assert shown["alt"] == atlas.describe("profile").short()


def test_the_table_of_heads_is_the_joined_record(content, atlas):
    table, frame = content.at("heads"), atlas.heads()
    assert table["names"] == list(frame.index)
    assert {column["name"] for column in table["columns"]} == set(frame.columns) - {"layer", "head"}
    for column in table["columns"]:
        own = frame[column["name"]]
        if column["kind"] == "text":
            assert column["values"] == [str(value) for value in own]
        else:
            shown = np.array([np.nan if value is None else value for value in column["values"]], dtype=np.float32)
            np.testing.assert_array_equal(shown, own.to_numpy(dtype=np.float32))
    kinds = {column["name"]: column["kind"] for column in table["columns"]}
    assert kinds["spectral.whole.laplacian.q"] == "test" and kinds["profile.sink"] == "number"


def test_columns_stand_in_the_order_of_the_chapters(content):
    studies = list(dict.fromkeys(column["study"] for column in content.at("heads")["columns"]))
    assert [study for study in studies if study in CHAPTERS] == [key for key in CHAPTERS if key in studies]


def test_a_head_is_its_dossier(content, atlas):
    head = content.at("head/L2H1")
    induction = next(one for one in head["values"]["profile"] if one["key"] == "profile.induction")
    own = float(atlas["profile"]["value"].sel(statistic="induction", layer=2, head=1))
    assert induction["value"] == pytest.approx(own, rel=1e-5)
    assert head["salient"][0]["text"] == " word3"
    assert "average" not in head["patterns"]["maps"][0]


def test_agreement_has_a_figure_and_words(content):
    found = content.at("agreement")
    assert found["figures"][0]["payload"]["format"] == "headwise.figure/1"
    assert found["words"]["Overview"]
    assert found["pairs"]


@pytest.mark.parametrize(
    ("path", "error", "words"),
    [
        ("study/spectal", StudyError, "Did you mean 'spectral'"),
        ("study/circuits", StudyError, "no page of a study 'circuits'"),
        ("study/nope", StudyError, r"in this atlas\. Known: (?!.*(circuits|salience))"),
        ("study/salience", StudyError, "shown on the heads' pages"),
        ("figure/profile/relativ", DataError, "Did you mean 'relative'"),
        ("head/L99H0", DataError, "no head L99H0"),
        ("head/nonsense", DataError, "not the name of a head"),
        ("nowhere", DataError, "nothing at 'nowhere'"),
        ("study/", DataError, "nothing at"),
        ("../secret", DataError, "nothing at"),
    ],
)
def test_what_is_not_there_is_refused(content, path, error, words):
    with pytest.raises(error, match=words):
        content.at(path)


def test_an_atlas_of_one_study_has_its_pages(tmp_path):
    content = Content(synthetic_atlas(tmp_path / "one", 4, 3, ["profile"]))
    assert [study["key"] for study in content.at("atlas")["studies"]] == ["profile"]
    for path in content.paths():
        json.dumps(content.at(path), allow_nan=False)
    assert content.at("agreement")["figures"] == []
    assert content.at("agreement")["short"]


@pytest.mark.parametrize("study", sorted(MAKERS))
def test_every_variant_can_be_drawn(study):
    dataset = MAKERS[study](6, 4)
    drawn = [variant.key for variant, _ in figures_on_page(study, dataset)]
    wanted = [variant.key for variant in dataset_spec(study).variants]
    if study == "probing":
        assert drawn[: len(dataset["site"])] == [str(site) for site in dataset["site"].values]
        wanted = wanted[1:]
    assert [key for key in drawn if key in wanted] == wanted
    small = thumbnail(next(figures_on_page(study, dataset))[1])
    assert small is not None
    json.dumps(small, allow_nan=False)


def test_a_variant_the_data_cannot_give_is_left_out():
    dataset = MAKERS["spectral"](6, 4).drop_vars(["p_matched", "q_matched"])
    drawn = [variant.key for variant, _ in figures_on_page("spectral", dataset)]
    assert "matched" not in drawn and "p" in drawn
    with pytest.raises(HeadwiseError):
        figure_of("spectral", dataset, matched=True)


def test_a_small_map_has_the_colours_of_the_large_one():
    dataset = MAKERS["profile"](6, 4)
    figure = figure_of("profile", dataset)
    small = thumbnail(figure)
    one = small["maps"][0]
    levels = np.array(one["levels"]) / 254
    shares = {
        panel.scale: np.clip(figure.scales[panel.scale].share(panel.values), 0, 1)
        for panel in figure.panels
        if isinstance(panel, Heatmap)
    }
    scale = next(key for key, share in shares.items() if np.allclose(share, levels, atol=0.002))
    assert one["scale"]["stops"] == to_payload(figure)["scales"][scale]["stops"]


def test_data_of_another_size_have_a_line_of_their_own():
    origin = partial(Provenance, study_version=1, model={}, parameters={}, seed=0)
    told = data_facts({
        "profile": origin("profile", data={"name": "texts", "size": 84, "digest": "d"}),
        "patterns": origin("patterns", data={"name": "texts", "size": 32, "digest": "d"}),
        "spectral": origin("spectral", data={"name": "asked", "size": 492, "digest": "a"}),
        "detection": origin("detection", data={"name": "asked", "size": 492, "digest": "a"}),
        "mine": origin("mine", data={"name": "asked", "size": 7, "digest": "a"}),
    })  # fmt: skip
    assert [(one["size"], one["counted"], one["studies"]) for one in told] == [
        (84, "passages", ["profile"]), (32, "prompts", ["patterns"]), (492, "answers", ["spectral", "detection"]),
        (7, "", ["mine"]),
    ]  # fmt: skip
