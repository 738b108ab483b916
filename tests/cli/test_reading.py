"""show, describe and heads: what a user reads from an atlas."""

import json
import shutil

import pandas as pd
import pytest
from synthetic.atlas import synthetic_atlas


@pytest.mark.parametrize("suffix", ["pdf", "svg", "png"])
def test_show_draws(headwise, atlas, tmp_path, suffix):
    path = tmp_path / f"figure.{suffix}"
    result = headwise("show", atlas, "profile", "-o", path)
    assert result.code == 0, result.err
    assert path.stat().st_size > 5000


def test_show_carries_the_words(headwise, atlas, tmp_path):
    path = tmp_path / "figure.svg"
    assert headwise("show", atlas, "profile", "-o", path).code == 0
    assert "maps of where the heads of" in path.read_text(encoding="utf-8")


def test_show_some_statistics(headwise, atlas, tmp_path):
    path = tmp_path / "some.svg"
    result = headwise("show", atlas, "profile", "--statistics", "induction,sink", "--relative", "-o", path)
    assert result.code == 0
    assert "Induction" in path.read_text(encoding="utf-8")
    assert "Delimiters" not in path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["show", "{atlas}", "profile", "-o", "x.gif"], ".pdf"),
        (["show", "{atlas}", "profil"], "Did you mean 'profile'?"),
        (["show", "{atlas}", "profile", "--statistics", "inductoin", "-o", "x.pdf"], "induction"),
        (["show", "nowhere", "profile"], "headwise build -o nowhere"),
        (["describe", "{atlas}", "spectra"], "There is no study"),
        (["show", "{atlas}", "answers"], "has no figure; read it with headwise answers {atlas}"),
        (["describe", "{atlas}", "salience"], "has no description; read it with headwise heads {atlas} --columns"),
        (["heads", "{atlas}", "--columns", "spectral.*"], "there is no column 'spectral.*'"),
        (["heads", "{atlas}", "--where", "profile.inductoin > 1"], "profile.induction"),
        (["heads", "{atlas}", "--where", "__import__('os').system('true')"], "may not contain"),
        (["heads", "{atlas}", "--sort", "nothing"], "nothing"),
        (["heads", "{atlas}", "--columns", "layer,hed"], "Did you mean 'head'?"),
        (["heads", "{atlas}", "-o", "heads.xlsx"], ".csv"),
    ],
)
def test_wrong_requests_are_refused_in_one_sentence(headwise, atlas, tmp_path, arguments, words):
    arguments = [argument.format(atlas=atlas) for argument in arguments]
    assert words.format(atlas=atlas) in headwise(*arguments, cwd=tmp_path).refused()


def test_describe(headwise, atlas):
    assert "95 % interval" in headwise("describe", atlas, "profile").out
    short = headwise("describe", atlas, "profile", "--short").out
    assert "maps of where the heads of" in short and len(short.split()) <= 40
    assert json.loads(headwise("describe", atlas, "profile", "--short", "--json").out) == {"headline": short.strip()}
    sections = json.loads(headwise("describe", atlas, "profile", "--json").out)
    assert sections


def test_heads(headwise, atlas, tmp_path):
    everything = json.loads(headwise("heads", atlas, "--json").out)
    assert {"name", "layer", "head", "profile.entropy"} <= everything[0].keys()
    path = tmp_path / "heads.csv"
    result = headwise("heads", atlas, "--where", "layer > 0", "--sort", "profile.sink", "-n", "3", "-o", path)
    assert result.code == 0, result.err
    frame = pd.read_csv(path)
    assert len(frame) == 3
    assert (frame["layer"] > 0).all()
    assert frame["profile.sink"].is_monotonic_decreasing
    assert "L0H0" in headwise("heads", atlas).out


def test_heads_fit_on_a_line_and_say_what_is_left_out(headwise, atlas):
    words = ["--sort", "profile.top1", "--where", "profile.output_norm_ratio>=0"]
    result = headwise("heads", atlas, *words, "-n", "2")  # lines of 160 characters, see conftest
    lines = result.out.splitlines()
    assert max(map(len, lines)) <= 160
    shown, every = lines[0].split(), len(json.loads(headwise("heads", atlas, "--json").out)[0]) - 1
    assert shown[:2] == ["profile.top1", "profile.output_norm_ratio"] and 3 < len(shown) < every
    assert not {"layer", "head"} & set(shown)
    assert f"{len(shown)} of {every} columns shown; choose others with --columns" in result.err


def test_columns_are_chosen_by_name_by_pattern_or_all(headwise, atlas):
    some = headwise("heads", atlas, "--columns", "name,layer,profile.s*", "-n", "1")
    assert some.out.split()[:4] == ["layer", "profile.sink", "profile.spread", "L0H0"]
    assert not some.err
    every = headwise("heads", atlas, "--columns", "all", "-n", "1")
    assert {"layer", "head", "profile.entropy", "profile.output_norm_ratio"} <= set(every.out.split())


def test_a_damaged_atlas_is_named(headwise, atlas, tmp_path):
    copy = shutil.copytree(atlas, tmp_path / "atlas")
    chunk = max((f for f in (copy / "profile" / "value").rglob("*") if f.name != "zarr.json" and f.is_file()),
                key=lambda f: f.stat().st_size)  # fmt: skip
    content = bytearray(chunk.read_bytes())
    content[len(content) // 2] ^= 0xFF
    chunk.write_bytes(content)
    message = headwise("describe", copy, "profile").refused()
    assert "--redo profile" in message


def test_something_that_is_no_atlas(headwise, tmp_path):
    assert "is not an atlas" in headwise("describe", tmp_path, "profile").refused()


def test_a_study_of_another_version_is_left_out_with_a_note(headwise, tmp_path):
    atlas = synthetic_atlas(tmp_path / "atlas", studies=("profile", "relations"))
    found = atlas["relations"]
    origin = json.loads(found.attrs["provenance"]) | {"study_version": 99}
    atlas.store.write("relations", found.assign_attrs(provenance=json.dumps(origin)))
    done = headwise("heads", atlas.path, "-n", "1", "--json")
    assert done.code == 0 and "name" in json.loads(done.out)[0]
    assert done.err.startswith(f"note: left out of {atlas.path}: relations: the numbers are of version 99")
    assert done.err.count("note:") == 1 and "Warning" not in done.err
