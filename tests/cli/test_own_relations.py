"""`headwise build --relations FILE`: a user's own pairs of words."""

import json

import numpy as np
import pytest
import xarray as xr
from planted_relations import CAPITAL, NAMES, planted_relations, planted_relations_model


def test_own_relations_from_a_file(headwise, tmp_path):
    """The head that maps countries to capitals by construction is found from a file of pairs, in any of its formats."""
    model = planted_relations_model()
    model.hf.save_pretrained(tmp_path / "model")
    model.tokenizer.save_pretrained(tmp_path / "model")
    relations = planted_relations()
    pairs = {name: {"category": relations[name].category, "pairs": relations[name].pairs} for name in NAMES}
    (tmp_path / "pairs.json").write_text(json.dumps(pairs), encoding="utf-8")
    lines = [f"{name},{item['category']},{s},{t}" for name, item in pairs.items() for s, t in item["pairs"]]
    (tmp_path / "pairs.csv").write_text("\n".join(["relation,category,source,target", *lines]), encoding="utf-8")
    maps = []
    for kind in ("json", "csv"):
        output = tmp_path / kind
        words = ["--studies", "relations", "--relations", tmp_path / f"pairs.{kind}", "--set", "relations.salience=no"]
        result = headwise("build", tmp_path / "model", *words, "-o", output)
        assert result.code == 0, result.err
        maps.append(xr.open_datatree(output, engine="zarr")["relations"].ds.load())
    for found in maps:
        assert sorted(found["relation"].values) == sorted(NAMES)
        score = found["score"].sel(relation="country-capital")
        assert float(score[CAPITAL]) == 1.0 and int((score > 0.15).sum()) == 1
        assert str(found["categories"][CAPITAL].values) == "knowledge"
    for name in NAMES:
        np.testing.assert_array_equal(*(one["score"].sel(relation=name) for one in maps))


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("pairs.json", '{"capital": 3}', "capital"),
        ("pairs.xls", "x", "has the suffix '.xls'"),
        (None, "", "there is no such file or folder"),
    ],
)
def test_files_of_relations_that_cannot_be_read(headwise, tiny, tmp_path, name, content, words):
    path = tmp_path / (name or "nowhere.json")
    if name is not None:
        path.write_text(content, encoding="utf-8")
    result = headwise("build", tiny, "--studies", "relations", "--relations", path, "-o", tmp_path / "atlas")
    assert words in result.refused()
    assert not (tmp_path / "atlas").exists()
