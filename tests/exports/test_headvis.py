"""An atlas as HeadVis' data folder: each file against a plain, obvious form."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest
from synthetic.patterns import patterns_dataset
from synthetic.profile import profile_dataset

from headwise.atlas import Atlas
from headwise.core.errors import AtlasError
from headwise.exports import PromptMaps, head_payload, write_headvis


@pytest.fixture(scope="module")
def atlas(tmp_path_factory):
    made = Atlas.create(tmp_path_factory.mktemp("headvis") / "atlas")
    made.add("profile", profile_dataset(4, 3, texts=4, randoms=2).assign_attrs(record='["value"]'))
    made.add("patterns", patterns_dataset(4, 3))
    return made


@pytest.fixture(scope="module")
def folder(atlas, tmp_path_factory):
    return write_headvis(atlas, tmp_path_factory.mktemp("out") / "data")


def read(folder, name):
    return json.loads((folder / name).read_text(encoding="utf-8"))


def test_the_files_are_those_of_the_format(folder):
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    heads = {f"heads/L{layer}H{head}.json" for layer in range(4) for head in range(3)}
    assert names == heads | {"config.json", "scatter_data.json", "server_config.json", "attributions/manifest.json"}
    assert read(folder, "server_config.json") == read(folder, "attributions/manifest.json") == {}


def test_the_config_names_heads_and_metrics(folder, atlas):
    config, rows = read(folder, "config.json"), read(folder, "scatter_data.json")
    assert config["heads"] == [[layer, head] for layer in range(4) for head in range(3)]
    assert (config["n_layers"], config["n_heads"], config["n_intervals"], config["has_umap"]) == (4, 3, 1, False)
    assert config["model_name"] == atlas.provenance("profile").model["id"]
    assert set(config["metrics"]) == set(config["metric_descriptions"]) >= set(rows[0]) - {"layer", "head"}
    assert config["pipeline_config"]["studies"]["profile"]["data"]["name"] == "passages"
    for entry in (*config["custom_plots"], *config["custom_tables"]):
        assert entry["key"] in read(folder, "heads/L0H0.json")


def test_metrics_are_the_numbers_of_the_record(folder, atlas):
    record = atlas.heads()
    for row in read(folder, "scatter_data.json"):
        values = record.loc[f"L{row['layer']}H{row['head']}"]
        assert row["self_attention_score"] == pytest.approx(values["profile.diagonal"], rel=1e-5)
        assert row["previous_token_score"] == pytest.approx(values["profile.previous"], rel=1e-5)
        assert row["qk_distance"] == pytest.approx(values["profile.distance"], rel=1e-5)
        assert row["induction_score"] == pytest.approx(values["profile.induction"], rel=1e-5)
        assert row["profile.sink"] == pytest.approx(values["profile.sink"], rel=1e-5)
        assert all(np.isfinite(value) for value in row.values())
        assert "pattern_entropy" not in row  # ours is a share, theirs in nats


def test_a_small_number_is_not_rounded_to_nought(tmp_path):
    made = Atlas.create(tmp_path / "atlas")
    dataset = profile_dataset(2, 2, texts=4, randoms=2).assign_attrs(record='["value"]')
    dataset["value"][0, 0, 0] = 3.25e-9
    made.add("profile", dataset)
    rows = read(write_headvis(made, tmp_path / "out"), "scatter_data.json")
    assert rows[0]["profile.entropy"] == pytest.approx(3.25e-9, rel=1e-4)


def test_attention_is_the_shown_map_in_places_and_values(folder, atlas):
    dense = atlas["patterns"]["shown"].isel(condition=0).values.astype(float)
    tokens = [str(token) for token in atlas["patterns"]["token_text"].values]
    for layer, head in ((0, 0), (3, 2)):
        payload = read(folder, f"heads/L{layer}H{head}.json")
        (sequence,) = payload["sequences"]
        size, expected = sequence["seq_len"], np.nan_to_num(dense[layer, head])
        assert sequence["tokens"] == tokens and size == len(tokens)
        found = np.zeros((size, size))
        for place, value in zip(sequence["attention_indices"], sequence["attention_values"], strict=True):
            found[place // size, place % size] = value
        for query in range(size):
            largest = sorted(expected[query], reverse=True)[:8]
            kept = [value for value in largest if value >= 0.005]
            assert sorted(found[query][found[query] > 0], reverse=True) == pytest.approx(kept, abs=1e-4)
        assert np.abs(np.where(found > 0, found - expected, 0)).max() < 1e-4
        best = max(expected[q, k] for q in range(1, size) for k in range(1, size))
        assert sequence["max_activation"] == pytest.approx(best, abs=1e-4)
        distances = [abs(place // size - place % size) for place in sequence["attention_indices"]]
        counted = payload["qk_distance_histogram"]
        edges = counted["bin_edges"]
        bins = [sum(low <= distance < high for distance in distances) for low, high in pairwise(edges)]
        assert counted["bin_values"] == bins and sum(bins) == len(distances)
        looked = {row["token"]: row["weight"] for row in payload["top_key_tokens"]}
        for token in set(tokens):
            total = sum(expected[:, k].sum() for k in range(size) if tokens[k] == token)
            assert looked[token] == pytest.approx(total, abs=1e-4)
        weights = [row["weight"] for row in payload["top_query_tokens"]]
        assert weights == sorted(weights, reverse=True)


def test_without_patterns_there_are_no_sequences(tmp_path):
    made = Atlas.create(tmp_path / "atlas")
    made.add("profile", profile_dataset(2, 2, texts=4, randoms=2).assign_attrs(record='["value"]'))
    payload = read(write_headvis(made, tmp_path / "out"), "heads/L1H1.json")
    assert payload["sequences"] == [] and payload["statistics"] == {"n_samples": 0}


def test_tokens_that_look_like_markup_stay_text(atlas):
    shown = PromptMaps.of(atlas["patterns"])
    odd = PromptMaps(("</script>", *shown.tokens[1:]), shown.maps)
    assert json.loads(json.dumps(head_payload(odd, 0, 0)))["sequences"][0]["tokens"][0] == "</script>"


def test_a_folder_that_is_not_empty_is_refused(folder, atlas):
    with pytest.raises(AtlasError, match=r"is not an empty folder; choose another with -o"):
        write_headvis(atlas, folder)


def test_an_atlas_without_numbers_is_refused(tmp_path):
    with pytest.raises(AtlasError, match="has no numbers per head"):
        write_headvis(Atlas.create(tmp_path / "empty"), tmp_path / "out")
