"""head, heads, compare, and agreement as a user types them."""

import json

import pandas as pd
import pytest
from synthetic.atlas import synthetic_atlas

STUDIES = ("profile", "relations", "functions")


@pytest.fixture(scope="module")
def joined(tmp_path_factory):
    return synthetic_atlas(tmp_path_factory.mktemp("joined") / "atlas", 8, 6, STUDIES).path


def test_head_prints_everything_known(headwise, joined):
    result = headwise("head", joined, "L3H1")
    assert result.code == 0, result.err
    for word in (
        "L3H1",
        "Induction",
        "percentile",
        "country-capital",
        "Knowledge Recall",
        "similar heads",
        "not known",
    ):
        assert word in result.out
    assert "spectral: not in this atlas; add it with headwise build --studies spectral" in result.out.replace("\n", " ")


def test_head_as_json_and_in_files(headwise, joined, tmp_path):
    found = json.loads(headwise("head", joined, "l3h1", "--json").out)
    assert found["name"] == "L3H1" and found["relations"][0]["examples"]
    for suffix, start in ((".md", "# L3H1"), (".txt", "L3H1"), (".json", "{")):
        path = tmp_path / f"head{suffix}"
        assert headwise("head", joined, "L3H1", "-o", path).code == 0
        assert path.read_text(encoding="utf-8").startswith(start)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["head", "{atlas}", "L99H0"], "There is no head L99H0: the atlas has layers 0 to 7"),
        (["head", "{atlas}", "head3"], "write it as L3H7"),
        (["head", "{atlas}", "L1H1", "-o", "x.docx"], ".md, .txt, .json"),
        (["heads", "{atlas}", "--where", "layer", "==", "3"], '--where "layer == 3"'),
        (["heads", "{atlas}", "--where", "profile.sink"], "write it in quotes"),
        (["heads", "{atlas}", "more"], "takes one atlas"),
        (["heads", "{atlas}", "--sort", "spectral.whole.laplacian.q"], "headwise build --studies spectral -o {atlas}"),
        (["heads", "{atlas}", "--where", "probing.head_auroc > 0.6"], "the study probing is not in the atlas"),
        (["heads", "{atlas}", "--study", "circuits"], "the study circuits is not in the atlas"),
        (["heads", "{atlas}", "--where", "'x' in layer"], "no column of texts"),
        (["compare", "{atlas}", "nowhere"], "headwise build -o nowhere"),
        (["compare", "{atlas}", "{atlas}", "--study", "profil"], "Did you mean 'profile'?"),
        (["compare", "{atlas}", "{atlas}", "-o", "x.gif"], ".png, .pdf, .svg, .csv, .parquet, .json"),
    ],
)
def test_slips_are_told_in_one_sentence(headwise, joined, tmp_path, arguments, words):
    arguments = [argument.format(atlas=joined) for argument in arguments]
    assert words.format(atlas=joined) in headwise(*arguments, cwd=tmp_path).refused()


def test_an_unknown_column_names_those_of_its_study_only(headwise, joined):
    told = headwise("heads", joined, "--sort", "profile.inductoin").refused()
    assert "Did you mean 'profile.induction'?" in told and "functions." not in told


def test_heads_of_a_study_as_percentiles_and_with_text(headwise, joined):
    frame = pd.DataFrame(json.loads(headwise("heads", joined, "--study", "profile", "--percentiles", "--json").out))
    assert set(frame.columns) - {"name"} and all(name.startswith("profile.") for name in set(frame.columns) - {"name"})
    assert frame["profile.sink"].max() == 100 and frame["profile.sink"].min() == 0
    known = json.loads(headwise("heads", joined, "--where", "'knowledge' in relations.categories", "--json").out)
    assert {"L3H1", "L6H2", "L7H1"} <= {row["name"] for row in known}
    assert all("knowledge" in row["relations.categories"] for row in known)
    others = json.loads(headwise("heads", joined, "--where", "'knowledge' not in relations.categories", "--json").out)
    assert len(known) + len(others) == 48
    assert "none of the 48 heads is so" in headwise("heads", joined, "--where", "layer > 99").err


def test_percentiles_are_among_all_heads_also_when_filtered(headwise, joined):
    every = {row["name"]: row for row in json.loads(headwise("heads", joined, "--percentiles", "--json").out)}
    some = json.loads(headwise("heads", joined, "--where", "layer == 3", "--percentiles", "--json").out)
    assert len(some) == 6 and all(row["profile.sink"] == every[row["name"]]["profile.sink"] for row in some)


def test_agreement_is_drawn_and_told(headwise, joined, tmp_path):
    assert "head sets of relations, functions and profile" in headwise("describe", joined, "agreement").out
    path = tmp_path / "agreement.svg"
    assert headwise("show", joined, "agreement", "-o", path).code == 0
    assert "Do the studies agree?" in path.read_text(encoding="utf-8")


def test_compare_prints_words_and_a_table(headwise, joined, tmp_path):
    other = synthetic_atlas(tmp_path / "other", 8, 6, ("profile",)).path
    result = headwise("compare", joined, other, "--top", "3")
    assert result.code == 0, result.err
    assert "Only in A: functions and relations" in result.out and "noise" in result.out
    for name in ("change.svg", "heads.csv", "all.json"):
        assert headwise("compare", joined, other, "-o", tmp_path / name).code == 0
    assert len(pd.read_csv(tmp_path / "heads.csv")) == 48
    assert json.loads((tmp_path / "all.json").read_text(encoding="utf-8"))["same_shape"]
    assert len(json.loads(headwise("compare", joined, other, "--json", "--top", "2").out)["heads"]) == 2
