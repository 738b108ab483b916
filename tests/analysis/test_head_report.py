"""Everything known of one head: what is told is what the Datasets hold, and what is not known is said."""

import json
import time

import numpy as np
import pytest
from synthetic.atlas import salience_dataset, synthetic_atlas
from synthetic.function_masking import function_masking_dataset
from synthetic.functions import functions_dataset
from synthetic.patterns import patterns_dataset
from synthetic.profile import profile_dataset
from synthetic.relation_validation import relation_validation_dataset
from synthetic.relations import relations_dataset
from synthetic.spectral import spectral_dataset

from headwise.analysis import HeadReports, describe_head, head_report
from headwise.core.errors import DataError
from headwise.figures.tiles import HIDDEN

LAYERS, HEADS = 16, 8


@pytest.fixture(scope="module")
def studies():
    functions = functions_dataset(LAYERS, HEADS)
    masking = function_masking_dataset(LAYERS, HEADS)
    return {
        "profile": profile_dataset(LAYERS, HEADS, texts=8, randoms=6),
        "patterns": patterns_dataset(LAYERS, HEADS),
        "spectral": spectral_dataset(LAYERS, HEADS, examples=60),
        "relations": relations_dataset(LAYERS, HEADS, missing=2),
        "relation_validation": relation_validation_dataset(LAYERS, HEADS),
        "functions": functions,
        "function_masking": masking,
        "salience": salience_dataset(LAYERS, HEADS),
    }


@pytest.fixture(scope="module")
def every(studies):
    return HeadReports(studies)


def test_values_are_those_of_the_study(every, studies):
    one = every["L12H3"]
    value = next(value for value in one.values["profile"] if value.key == "profile.induction")
    own = studies["profile"].sel(statistic="induction", layer=12, head=3)
    for told, variable in (
        (value.value, "value"),
        (value.low, "low"),
        (value.high, "high"),
        (value.baseline, "uniform"),
    ):
        np.testing.assert_allclose(told, float(own[variable]), rtol=1e-6)
    others = studies["profile"]["value"].sel(statistic="induction").values.ravel()
    assert value.rank == 1 + (others > value.value).sum() and value.n_heads == LAYERS * HEADS
    np.testing.assert_allclose(value.percentile, 100 * (others < value.value).sum() / (len(others) - 1))
    assert value.baseline_name == "a uniform head" and "Induction" in value.label


def test_a_number_without_baseline_claims_none(every):
    moved = next(value for value in every["L1H1"].values["profile"] if value.key == "profile.output_norm_ratio")
    assert np.isnan(moved.baseline) and moved.baseline_name == ""


def test_spectral_has_its_tests(every, studies):
    value = next(v for v in every["L4H4"].values["spectral"] if v.key == "spectral.whole.laplacian.effect")
    own = studies["spectral"].sel(part="whole", feature="laplacian", layer=4, head=4)
    assert value.p == pytest.approx(float(own["p"])) and value.q == pytest.approx(float(own["q"]))
    assert value.baseline == 0.5


def test_relations_tell_the_pairs_that_are_right(every, studies):
    dataset, one = studies["relations"], every["L3H1"]
    assert one.categories == ("knowledge",)
    fact = one.relations[0]
    assert fact.over and fact.sign == "promotes" and fact.category == "knowledge"
    own = dataset.isel(example=dataset["relation_of"].values == fact.relation).sel(layer=3, head=1)
    right = own["mapped"].values
    assert (fact.right, fact.pairs) == (right.sum(), right.size)
    pairs = list(zip(own["source"].values.tolist(), own["target_word"].values.tolist(), strict=True))
    assert fact.examples == tuple(pair for pair, hit in zip(pairs, right, strict=True) if hit)[: len(fact.examples)]
    assert set(fact.missed) <= {pair for pair, hit in zip(pairs, right, strict=True) if not hit}
    assert fact.score == pytest.approx(fact.right / fact.pairs)
    assert [each.score for each in one.relations] == sorted((each.score for each in one.relations), reverse=True)


def test_suppression_is_told_as_such(every):
    fact = every["L5H0"].relations[0]
    assert fact.sign == "suppresses" and fact.category == "linguistic"


def test_functions_are_ranked_among_heads(every, studies):
    dataset = studies["functions"]
    for fact in every["L9H2"].functions:
        own = dataset.sel(function=fact.function)
        if fact.refused:
            assert np.isnan(fact.importance) and fact.rank == 0
            continue
        magnitude = own["magnitude"].values
        assert fact.rank == 1 + (magnitude > magnitude[9, 2]).sum()
        assert fact.chosen == bool(own["chosen"].values[9, 2])
        assert fact.importance == pytest.approx(float(own["importance"].values[9, 2]))


def test_masking_is_of_the_smallest_set_with_the_head(every, studies):
    masking = studies["function_masking"]
    function = next(str(f) for f in masking["function"].values if np.isfinite(masking["own"].sel(function=f).values[0]))
    heads = masking["heads"].sel(function=function)
    first, last = str(heads.values[0]).split(", ")[0], str(heads.values[-1]).split(", ")[-1]
    sizes = masking["removed"].values
    for name, place in ((first, 0), (last, len(sizes) - 1)):
        if name not in every:
            continue
        fact = next(fact for fact in every[name].functions if fact.function == function)
        inside = [p for p in range(len(sizes)) if name in str(heads.values[p]).split(", ")]
        assert fact.masking.size == sizes[min(inside)]
        assert fact.masking.own == pytest.approx(float(masking["own"].sel(function=function).values[min(inside)]))
        assert place in inside


def test_salient_tokens_and_patterns(every, studies):
    one = every["L2H3"]
    assert one.salient[0].text == " word5" and one.salient[0].targets == (" word5", " word6")
    maps = one.patterns.maps[0]
    shown = studies["patterns"]["shown"].values[0, 2, 3].astype(np.float32)
    hidden = np.isnan(shown)
    assert (maps.shown[hidden] == HIDDEN).all()
    np.testing.assert_allclose(maps.shown[~hidden] / 254, np.clip(shown[~hidden], 0, 1), atol=0.5 / 254 + 1e-6)
    assert len(one.patterns.tokens) == studies["patterns"].sizes["token"]


def test_a_head_that_a_study_did_not_measure_is_said(every):
    one = every["L2H3"]
    assert one.missing["relations"] == "this study did not measure this head" and one.relations == ()
    assert "headwise build --studies probing" in one.missing["probing"]
    assert "relations" not in every["L3H1"].missing


def test_weights_and_data_are_held_against_each_other(every):
    checks = {check.weights: check for check in every["L3H1"].consistency}
    knowledge = checks["relations.knowledge"]
    chosen = next(fact for fact in every["L3H1"].functions if fact.function == "Knowledge Recall")
    assert knowledge.verdict == ("agree" if chosen.chosen and chosen.q < 0.05 else "disagree")
    induction = next(check for check in every["L12H3"].consistency if check.data == "profile.induction")
    assert induction.verdict == "disagree" and "do not copy" in induction.text


def test_names_are_read_kindly_and_wrong_ones_refused(every):
    assert every["l3h1"].name == "L3H1"
    with pytest.raises(DataError, match="layers 0 to 15 with heads 0 to 7"):
        every["L16H0"]
    with pytest.raises(DataError, match="write it as L3H7"):
        every["head 3"]


def test_as_json_and_in_words(every):
    one = every["L3H1"]
    text = json.dumps(one.to_dict(), allow_nan=False)
    assert json.loads(text)["patterns"]["maps"][0]["shown"]["type"] == "Pixels"
    assert one.to_dict(maps=False)["patterns"] is None
    words = describe_head(one)
    assert one.summary in words.text() and all(number.text in words.text() for number in words.numbers)
    assert any(number.source.startswith("score promotes") for number in words.numbers)


def test_from_an_atlas_with_one_study(tmp_path):
    atlas = synthetic_atlas(tmp_path / "atlas", 4, 3, ("profile",))
    one = head_report(atlas, "L1H2")
    assert set(one.values) == {"profile"} and one.functions == () and one.consistency == ()
    assert "not in this atlas" in one.missing["relations"]
    assert np.isnan(one.neighbours[0].by_chance)


def test_many_heads_are_quick():
    wide = {"profile": profile_dataset(20, 16, texts=3, randoms=2), "relations": relations_dataset(20, 16)}
    start = time.process_time()
    every = HeadReports(wide)
    for name in every:
        every[name].to_dict()
    assert time.process_time() - start < 6  # 320 heads; about a second where nothing else runs
