"""head, heads, compare, and agreement as a user types them."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from synthetic.atlas import synthetic_atlas
from synthetic.profile import profile_dataset

from headwise.atlas import Atlas

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
        "not measured",
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
        (["heads", "{atlas}", "--where", "'x' in layer"], "not a column of text"),
        (
            ["show", "{atlas}", "agreement", "--foo", "1"],
            "agreement has no option 'foo'. It has none; omit the option.",
        ),
        (["show", "{atlas}", "agrement"], "There is no study 'agrement'. Did you mean 'agreement'? Known: agreement, "),
        (["describe", "{atlas}", "agrement"], "Did you mean 'agreement'?"),
        (["compare", "{atlas}", "nowhere"], "headwise build -o nowhere"),
        (["compare", "{atlas}", "{atlas}", "--study", "profil"], "Did you mean 'profile'?"),
        (["compare", "{atlas}", "{atlas}", "-o", "x.gif"], ".png, .pdf, .svg, .csv, .json, .parquet"),
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
    assert "none of the 48 heads matches" in headwise("heads", joined, "--where", "layer > 99").err


def test_names_alone_are_printed(headwise, joined):
    assert headwise("heads", joined, "--where", "layer == 3", "--columns", "name").out.split() == [
        f"L3H{head}" for head in range(6)
    ]
    assert "none of the 48 heads matches" in headwise("heads", joined, "--where", "layer > 99", "--columns", "name").err
    assert "takes a whole number of at least 1" in headwise("heads", joined, "-n", "0").refused()


def test_a_plain_table_opens_on_what_tells_heads_apart(headwise, joined):
    header = headwise("heads", joined, "-n", "2").out.splitlines()[0].split()
    assert {"profile.induction", "profile.sink", "relations.categories", "relations.best"} <= set(header)


def test_text_against_a_number_is_told_in_one_sentence(headwise, joined):
    told = headwise("heads", joined, "--where", "relations.best > 3").refused()
    assert "compares text with a number" in told and "array" not in told and "instances" not in told


def test_what_is_the_same_for_all_heads_is_only_named(headwise, tmp_path):
    atlas = synthetic_atlas(tmp_path / "atlas", 8, 6, ())
    profile = profile_dataset(8, 6)
    for name in ("value", "low", "high"):
        profile[name].loc[{"statistic": "sink"}] = 1.0
    atlas.add("profile", profile.assign_attrs(record='["value"]', title="profile"))
    out = headwise("head", atlas.path, "L3H1").out
    label = str(profile["label"].sel(statistic="sink").item())
    assert f"The same for all heads: {label} 1." in out
    assert not any(line.strip().startswith(label) for line in out.splitlines())


def test_percentiles_are_among_all_heads_also_when_filtered(headwise, joined):
    every = {row["name"]: row for row in json.loads(headwise("heads", joined, "--percentiles", "--json").out)}
    some = json.loads(headwise("heads", joined, "--where", "layer == 3", "--percentiles", "--json").out)
    assert len(some) == 6 and all(row["profile.sink"] == every[row["name"]]["profile.sink"] for row in some)


def test_agreement_is_drawn_and_told(headwise, joined, tmp_path):
    assert "head sets of profile, relations and functions" in headwise("describe", joined, "agreement").out
    path = tmp_path / "agreement.svg"
    assert headwise("show", joined, "agreement", "-o", path).code == 0
    assert "Do the studies agree?" in path.read_text(encoding="utf-8")


def test_compare_takes_the_former_name_of_an_option(headwise, joined):
    for option in ("--different-data", "--unlike"):
        assert headwise("compare", joined, joined, option).code == 0
    assert "--unlike" not in headwise("compare", "--help").out


def test_compare_prints_words_and_a_table(headwise, joined, tmp_path):
    other = Atlas.create(tmp_path / "other")
    changed = profile_dataset(8, 6)
    for name in ("per_example", "value"):
        changed[name] = changed[name] + np.float32(0.2) * (changed["layer"] == 3).astype("float32")
    other.add("profile", changed.assign_attrs(record='["value"]'))
    other = other.path
    result = headwise("compare", joined, other, "--top", "3")
    assert result.code == 0, result.err
    assert "Only in A: functions and relations" in result.out and "noise" in result.out
    assert "3 of 48 heads; --top shows more" in result.out and "nan" not in result.out
    for name in ("change.svg", "heads.csv", "all.json"):
        assert headwise("compare", joined, other, "-o", tmp_path / name).code == 0
    assert len(pd.read_csv(tmp_path / "heads.csv")) == 48
    assert json.loads((tmp_path / "all.json").read_text(encoding="utf-8"))["same_shape"]
    assert len(json.loads(headwise("compare", joined, other, "--json", "--top", "2").out)["heads"]) == 2


@pytest.mark.parametrize("width", [50, 90])
def test_no_number_is_cut_in_a_narrow_terminal(headwise, joined, monkeypatch, width):
    wide = headwise("head", joined, "L1H2").out
    monkeypatch.setattr("headwise.cli.heads.console", lambda: Console(width=width, highlight=False))
    narrow = headwise("head", joined, "L1H2").out
    assert "…" not in narrow and max(map(len, narrow.splitlines())) <= width
    numbers = re.compile(r"\d[\d.e-]*")
    assert set(numbers.findall(narrow)) == set(numbers.findall(wide))
