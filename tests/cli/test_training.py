"""`headwise build --checkpoints` and `headwise emergence`."""

import json

import pandas as pd
import pytest
from planted_training import TEXTS, save_run


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("training")
    save_run(folder / "run", steps=(0, 8, 32))
    texts = [json.dumps({"id": item.id, "text": item.text}) for item in TEXTS.items]
    (folder / "texts.jsonl").write_text("\n".join(texts))
    return folder


def build(headwise, place, *more):
    few = ("--set", "profile.repeats=6", "--set", "profile.period=16", "--data", place / "texts.jsonl")
    return headwise("build", place / "run", "--studies", "profile", *few, "-o", place / "atlas", *more)


@pytest.fixture(scope="module")
def built(headwise, place):
    return build(headwise, place, "--checkpoints", "step-*")


def test_a_run_is_built_and_read(headwise, place, built):
    assert built.code == 0, built.err
    assert "3 checkpoints, steps 0 to 32" in built.out and "Induction in L1H4 by step 32" in built.out
    assert (place / "atlas-figures" / "emergence.png").exists()
    again = build(headwise, place, "--checkpoints", "step-0,step-8,step-32", "--json")
    facts = json.loads(again.out)
    assert facts["steps"] == [0, 8, 32] and facts["studies"] == ["profile"] and len(facts["files"]) == 3
    words = headwise("emergence", place / "atlas")
    assert words.code == 0 and "L0H3 rises from" in words.out and "between steps 8 and 32" in words.out
    one = headwise("describe", place / "atlas" / "step-32", "profile", "--short")
    assert one.code == 0 and "L0H3" in one.out


def test_files(headwise, place, built):
    assert built.code == 0
    assert headwise("emergence", place / "atlas", "-o", place / "all.csv").code == 0
    table = pd.read_csv(place / "all.csv")
    assert len(table) == 3 * 18 and {"step", "layer", "head", "profile.induction"} <= set(table)
    assert headwise("emergence", place / "atlas", "-o", place / "all.json").code == 0
    assert json.loads((place / "all.json").read_text())["steps"] == [0, 8, 32]
    drawn = headwise(
        "emergence", place / "atlas", "--columns", "profile.induction", "--frames", "0,32", "-o", place / "a.svg"
    )
    assert drawn.code == 0 and (place / "a.svg").read_text().startswith("<?xml")


def test_refusals(headwise, place, built):
    assert "two checkpoints" in build(headwise, place, "--checkpoints", "step-8").refused()
    assert "omit --revision" in build(headwise, place, "--checkpoints", "step-*", "--revision", "main").refused()
    assert "add -o FILE.png" in headwise("emergence", place / "atlas", "--frames", "0").refused()
    assert (
        "takes steps, such as"
        in headwise("emergence", place / "atlas", "--frames", "a", "-o", place / "b.png").refused()
    )
    assert "is not an atlas over training" in headwise("emergence", place / "atlas" / "step-8").refused()
    assert "headwise emergence" in headwise("describe", place / "atlas", "profile").refused()
    assert "There is no folder" in headwise("build", place / "runs", "--checkpoints", "step-*").refused()
