"""Do studies agree? The test against plain forms, planted pairs, depth as a trap, and what chance gives."""

import json

import numpy as np
import pytest
import xarray as xr
from scipy.stats import hypergeom
from synthetic.causal import causal_dataset
from synthetic.functions import functions_dataset
from synthetic.probing import probing_dataset
from synthetic.profile import profile_dataset
from synthetic.relations import relations_dataset
from synthetic.spectral import spectral_dataset

from headwise.analysis import agreement_figure, describe_agreement
from headwise.analysis.permutation import HeadStrata, permutation_test, rank_vectors_within
from headwise.analysis.study_agreement import agreement_of
from headwise.core.errors import DataError, StudyError
from headwise.figures import from_payload, to_payload
from headwise.stats.correlation import rank_vectors, spearman
from headwise.studies import head_sets
from headwise.studies.head_sets import HeadSetMap, head_set_maps

LAYERS, HEADS = 20, 8
STRATA = HeadStrata(np.repeat(np.arange(LAYERS), HEADS), np.arange(LAYERS * HEADS))


def pair(sides: np.ndarray, *, within: bool, count: int = 3000):
    return permutation_test(np.array([0]), np.array([1]), sides, STRATA, count, 0, within=within)


def test_overlap_over_all_heads_is_hypergeometric():
    rng = np.random.default_rng(0)
    sets = np.zeros((2, LAYERS * HEADS))
    for row, size in enumerate((30, 25)):
        sets[row, rng.choice(sets.shape[1], size, replace=False)] = 1
    sets[1, np.flatnonzero(sets[0])[:9]] = 1
    found = pair(sets, within=False, count=20_000)
    law = hypergeom(sets.shape[1], int(sets[0].sum()), int(sets[1].sum()))
    shared = int((sets[0] * sets[1]).sum())
    away = abs(shared - law.mean())
    exact = sum(law.pmf(k) for k in range(31) if abs(k - law.mean()) >= away - 1e-9)
    assert found.observed[0] == shared
    assert abs(found.expected[0] - law.mean()) < 0.05
    assert abs(found.p[0] - exact) < 0.01


def test_overlap_within_layers_is_expected_layer_by_layer():
    rng = np.random.default_rng(1)
    sets = (rng.random((2, LAYERS * HEADS)) < np.repeat(np.linspace(0, 0.6, LAYERS), HEADS)).astype(float)
    by_layer = sets.reshape(2, LAYERS, HEADS).sum(2)
    found = pair(sets, within=True, count=8000)
    assert abs(found.expected[0] - (by_layer[0] * by_layer[1] / HEADS).sum()) < 0.1
    assert found.low[0] <= found.expected[0] <= found.high[0]


def test_correlation_is_spearmans_and_within_takes_layers_off():
    rng = np.random.default_rng(2)
    maps = rng.normal(size=(2, LAYERS * HEADS)) + np.repeat(np.arange(LAYERS), HEADS)
    one = rank_vectors(maps)
    np.testing.assert_allclose(one[0] @ one[1], spearman(maps[0], maps[1]), atol=1e-9)
    inside = rank_vectors_within(maps, STRATA.stratum)
    plain = [
        row.argsort().argsort() - np.repeat(row.argsort().argsort().reshape(LAYERS, HEADS).mean(1), HEADS)
        for row in maps
    ]
    np.testing.assert_allclose(inside[0] @ inside[1], np.corrcoef(plain)[0, 1], atol=1e-9)


def test_depth_alone_passes_over_all_heads_and_not_within_layers():
    rng = np.random.default_rng(3)
    maps = rank_vectors(rng.normal(size=(2, LAYERS * HEADS)) + np.repeat(np.arange(LAYERS), HEADS))
    assert pair(maps, within=False).p[0] < 0.001
    assert pair(maps, within=True).p[0] > 0.05


def test_unrelated_maps_pass_as_often_as_they_should():
    rng = np.random.default_rng(4)
    maps = rank_vectors(rng.normal(size=(40, LAYERS * HEADS)))
    first, second = np.triu_indices(40, 1)
    found = permutation_test(first, second, maps, STRATA, 1000, 0, within=True)
    assert 0.03 < np.mean(found.p < 0.05) < 0.07
    assert (found.q < 0.05).sum() <= 2 and found.by_chance < 2


def test_what_cannot_be_shuffled_is_not_tested():
    sets = np.zeros((2, LAYERS * HEADS))
    sets[0, :5] = 1
    found = pair(sets, within=True)
    assert np.isnan(found.p[0]) and np.isnan(found.q[0])


@pytest.fixture(scope="module")
def studies():
    """A tenth of the heads are induction heads, and a tenth previous-token heads; probing is made to follow induction."""
    profile, probing = profile_dataset(LAYERS, HEADS, texts=8, randoms=6), probing_dataset(LAYERS, HEADS, examples=40)
    for statistic in ("induction", "previous"):
        score = profile["value"].sel(statistic=statistic)
        raised = xr.where(score > score.quantile(0.9), 0.5, 0.0).values
        for name in ("value", "low", "high"):
            profile[name].loc[{"statistic": statistic}] += raised
    induction = profile["value"].sel(statistic="induction").values
    probing["head_auroc"].values[:] = 0.5 + 0.3 * induction
    probing["head_q"].values[:] = 0.001
    return {
        "relations": relations_dataset(LAYERS, HEADS),
        "functions": functions_dataset(LAYERS, HEADS),
        "spectral": spectral_dataset(LAYERS, HEADS, examples=60),
        "probing": probing,
        "profile": profile,
    }


@pytest.fixture(scope="module")
def found(studies):
    return agreement_of(studies, permutations=6000)


def test_planted_agreement_is_found(found):
    planted = found.pair("probing.head_auroc", "profile.induction")
    assert planted.count == planted.first_size == planted.second_size
    assert planted.q < 0.05 and planted.correlation_q < 0.05 and planted.correlation > 0.99
    assert planted.odds_ratio > 100
    others = [one for one in found.pairs if {one.first, one.second} != {planted.first, planted.second}]
    assert np.mean([one.q < 0.05 for one in others]) < 0.1
    assert found.by_chance < 1


def test_the_dataset_holds_every_pair_twice_and_says_what_each_variable_is(found):
    data = found.dataset
    assert all(array.long_name for array in data.data_vars.values())
    for one in found.pairs:
        for first, second in ((one.first, one.second), (one.second, one.first)):
            cell = data.sel(head_set=first, other_set=second)
            assert float(cell["count"]) == one.count and float(cell["expected"]) == one.expected
    assert int(data["count"].notnull().sum()) == 2 * len(found.pairs)
    assert data["member"].sum("place").values.tolist() == [len(one.heads) for one in found.sets]


def test_sets_are_what_their_rules_say(studies, found):
    sets = {one.key: set(one.heads) for one in found.sets}
    assert {"L3H1", "L6H2", "L7H1"} <= sets["relations.knowledge"]
    tenth = round(0.1 * LAYERS * HEADS)
    assert {"L12H3", "L14H7"} <= sets["profile.induction"] and len(sets["profile.induction"]) == tenth
    assert sets["profile.duplicate"] == {"L5H1"}  # as many as have the role, not a tenth
    assert all(len(heads) <= tenth for key, heads in sets.items() if key.split(".")[0] in ("spectral", "probing"))
    auroc = studies["probing"]["head_auroc"].values
    inside = np.sort(auroc.ravel())[-tenth]
    assert all(auroc[int(n[1:].split("H")[0]), int(n.split("H")[1])] >= inside for n in sets["probing.head_auroc"])


def test_a_refused_function_is_left_out_and_said(found):
    assert not any("Semantic" in one.key for one in found.sets)
    assert any("Semantic Understanding" in text for text in found.left_out)


def test_heads_that_one_study_did_not_measure_are_left_out(studies):
    less = dict(studies, relations=relations_dataset(LAYERS, HEADS, missing=2))
    fewer = agreement_of(less, permutations=50)
    assert fewer.heads == (LAYERS - 1) * HEADS
    assert any(f"{HEADS} heads" in text for text in fewer.left_out)
    assert not any(name.startswith("L2H") for one in fewer.sets for name in one.heads)


def test_shared_keys_stay_together(found):
    assert "share keys and values" in found.permuted  # the synthetic model has fewer kv heads than heads
    assert "within layers" in found.permuted


def test_pairs_are_of_unlike_studies_only(found):
    assert all(one.first.split(".")[0] != one.second.split(".")[0] for one in found.pairs)
    with pytest.raises(DataError, match="belong to the same study"):
        found.pair("profile.sink", "profile.induction")
    with pytest.raises(DataError, match=r"Did you mean 'profile.sink'"):
        found.pair("profile.snk", "relations.knowledge")


def test_one_study_is_refused(studies):
    with pytest.raises(StudyError, match="needs two studies with head sets"):
        agreement_of({"profile": studies["profile"]}, permutations=10)


def test_a_map_of_nothing_is_no_set(studies):
    dataset = studies["profile"].copy(deep=True)
    dataset["value"].loc[{"statistic": "sink"}] = np.nan
    maps, out = head_set_maps({"profile": dataset})
    assert "profile.sink" not in [one.key for one in maps] and any("sink" in text for text in out)


def test_figure_and_words_say_the_numbers(found):
    figure = agreement_figure(found)
    assert to_payload(from_payload(json.loads(json.dumps(to_payload(figure), allow_nan=False)))) == to_payload(figure)
    overlap = figure.panel("overlap")
    rows = [one.key for one in found.sets]
    place = rows.index("probing.head_auroc"), rows.index("profile.induction")
    planted = found.pair("probing.head_auroc", "profile.induction")
    np.testing.assert_allclose(
        overlap.values[place], np.log2((planted.count + 0.5) / (planted.expected + 0.5)), rtol=1e-5
    )
    assert (place[0], place[1]) in {(frame.first_row, frame.first_column) for frame in overlap.frames}
    words = describe_agreement(found)
    passed = next(number for number in words.numbers if number.source == "overlap q < 0.05")
    assert passed.value == sum(one.q < 0.05 for one in found.pairs)
    assert all(number.text in words.text() for number in words.numbers)
    json.dumps(found.to_dict(), allow_nan=False)


@pytest.fixture(scope="module")
def apart(studies):
    """Knowledge heads only in layers without a head of Probe, the first half of the model."""
    probing = studies["probing"].copy(deep=True)
    probing["head_auroc"].values[:10] = 0.4
    relations = relations_dataset(LAYERS, HEADS)
    return agreement_of({"relations": relations, "probing": probing}, permutations=500)


def test_an_overlap_that_no_shuffle_changes_is_drawn_and_marked(apart):
    keys = [one.key for one in apart.sets]
    row, column = keys.index("relations.knowledge"), keys.index("probing.head_auroc")
    pair = apart.pair(keys[row], keys[column])
    layers = [{int(name[1:].split("H")[0]) for name in apart.sets[place].heads} for place in (row, column)]
    assert all(layers) and not layers[0] & layers[1]
    assert np.isnan(pair.p) and np.isfinite(pair.p_all) and pair.expected == pair.count == 0
    panel = agreement_figure(apart).panel("overlap")
    assert panel.values[row, column] == 0
    marks = {(mark.row, mark.column): mark for mark in panel.marks if mark.sign == "dot"}
    assert marks[row, column].text == marks[column, row].text == "cannot be tested within layers"
    assert "more cannot be tested" in panel.subtitle
    entries = {entry.key: entry for entry in agreement_figure(apart).panel("legend").entries}
    assert "cannot be tested within layers" in entries["untested"].label and entries["untested"].sign == "dot"
    assert entries["sure"].sign == "frame"


def test_an_empty_set_has_no_odds_and_no_colour(studies):
    probing = studies["probing"].copy(deep=True)
    probing["head_q"].values[:] = 1.0
    found = agreement_of({"relations": studies["relations"], "probing": probing}, permutations=50)
    pair = found.pair("relations.knowledge", "probing.head_auroc")
    assert pair.second_size == 0 or pair.first_size == 0
    assert np.isnan(pair.odds_ratio) and found.to_dict()["pairs"][0]["odds_ratio"] is None
    panel = agreement_figure(found).panel("overlap")
    place = [one.key for one in found.sets].index("probing.head_auroc")
    assert np.isnan(panel.values[place]).all() and not any(mark.row == place for mark in panel.marks)


def test_q_of_correlation_is_of_the_correlation_within_layers():
    """Every shuffle within layers leaves depth's part as it is: the test of either correlation is one test."""
    rng = np.random.default_rng(6)
    maps = rng.normal(size=(2, LAYERS * HEADS)) + np.repeat(np.arange(LAYERS), HEADS)
    maps[1] += 0.5 * maps[0]
    whole, left = pair(rank_vectors(maps), within=True), pair(rank_vectors_within(maps, STRATA.stratum), within=True)
    np.testing.assert_allclose(whole.p, left.p, atol=1e-3)


def test_a_plugin_declares_its_sets(studies, monkeypatch):
    """As a plug-in does, by ``head_sets`` in its spec."""

    class Spec:
        def load(self, role):
            assert role == "head_sets"
            return lambda dataset: [
                HeadSetMap(
                    "mine.all", "mine", "All", "every head", np.ones((LAYERS, HEADS)), np.ones((LAYERS, HEADS), bool)
                )
            ]

    known = head_sets.dataset_specs()
    monkeypatch.setattr(head_sets, "dataset_specs", lambda: known | {"mine": Spec()})
    maps, _ = head_set_maps({"profile": studies["profile"], "mine": studies["profile"]})
    assert maps[-1].key == "mine.all" and maps[0].study == "profile"


def test_heads_that_the_model_needs_are_told_for_every_set(studies):
    """The heads of one statistic are made those that the model needs; no other set gets more than chance."""
    causal = causal_dataset(studies["profile"].sizes["layer"], studies["profile"].sizes["head"])
    previous = studies["profile"]["value"].sel(statistic="previous", drop=True).transpose("layer", "head")
    member = (previous > previous.quantile(0.9)).values
    causal = causal.assign(
        excess_low=causal["excess"].copy(data=np.where(member, 0.1, -0.1).astype(np.float32)),
        effect=causal["effect"].where(False, previous.astype(np.float32)),
    )
    found = agreement_of({**studies, "causal": causal}, permutations=2000)
    rows = {one.key: one for one in found.needed}
    assert set(rows) == {one.key for one in found.sets if one.study != "causal"}
    one = rows["profile.previous"]
    assert (
        one.more == one.heads and one.share == 1 and one.share_low > 0.5 and one.q < 0.05 and one.correlation_q < 0.05
    )
    assert one.correlation == pytest.approx(found.pair("profile.previous", "causal.all").correlation_within)
    others = [row for key, row in rows.items() if key != "profile.previous"]
    assert sum(row.q < 0.05 for row in others) <= 1
    text = describe_agreement(found).text()
    assert f"Previous token (profile) {one.more} of {one.heads} (100 %" in text
    panels = {panel.key: panel for panel in agreement_figure(found).panels}
    assert {"needed", "causal"} <= set(panels) and len(panels["causal"].values) == len(rows)
    assert not agreement_of(studies, permutations=50).needed
