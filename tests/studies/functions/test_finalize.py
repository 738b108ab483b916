"""Planted activations: the heads that carry a function come first, and a probe that knows nothing is refused."""

from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from numpy.typing import NDArray
from planted_steps import CARRIES, planted_readings
from scipy import stats

from headwise.atlas import Provenance
from headwise.core.errors import StudyError
from headwise.core.schema import check
from headwise.probes.joint import JointFits, JointTraining, fit_joint
from headwise.studies.functions.finalize import _importance, depth_of_wording, direction, elbow, finalize, own_q
from headwise.studies.functions.heads import head_sets
from headwise.studies.functions.probe_quality import ProbeData, question_folds, single_head_probes
from headwise.studies.functions.spec import FunctionsOptions
from headwise.studies.registry import dataset_spec

NAMES = ("alpha", "beta", "gamma")
OPTIONS = FunctionsOptions(seeds=3, shuffles=20)


@pytest.fixture(scope="module")
def maps() -> xr.Dataset:
    return finalize(planted_readings(strength=4.0), NAMES, OPTIONS)


def test_the_planted_heads_and_no_others_come_first(maps):
    for name in NAMES:
        own = {f"L{layer}H{head}" for layer, head in CARRIES[name]}
        assert set(maps["ranked"].sel(function=name).values[: len(own)]) == own
        flags = maps["beyond_null"].sel(function=name)
        assert all(bool(flags.sel(layer=layer, head=head)) for layer, head in CARRIES[name])
        assert all(float(maps["importance"].sel(function=name, layer=at, head=head)) > 0 for at, head in CARRIES[name])


def test_heads_that_know_nothing_are_rarely_beyond_chance(maps):
    """In layers where no head carries anything: next to one that does, the layer's mean knows a little too."""
    assert float(maps["beyond_null"].sel(layer=[4, 5]).mean()) < 0.15


def test_the_sets_are_the_carriers(maps):
    """A carrier of one function is beyond the null of the others too, as what says alpha says not beta."""
    shared = [maps["beyond_null"].sel(function=NAMES[0]).values[place] for place in CARRIES[NAMES[1]]]
    assert any(shared)
    sets = {one.label: {tuple(place) for place in np.argwhere(one.member)} for one in head_sets(maps)}
    assert sets == {name: set(CARRIES[name]) for name in NAMES}
    older = {one.label: one for one in head_sets(maps.drop_vars("own_q"))}
    assert "elbow" in older[NAMES[0]].rule and all(older[NAMES[0]].member[place] for place in CARRIES[NAMES[0]])


def test_a_head_that_matters_as_much_to_two_functions_is_the_own_of_neither():
    rng = np.random.default_rng(0)
    null, mean = rng.normal(size=(40, 3, 20)), rng.normal(size=(3, 20))
    mean[0, 0] = 12.0  # one function
    mean[:2, 1] = 12.0, -12.0  # two, with either sign
    mean[1, 2], mean[2, 2] = 12.0, 4.0  # one more than the other
    found = own_q(mean, null) < 0.05
    assert {tuple(place) for place in np.argwhere(found)} == {(0, 0), (1, 2)}
    mean[2] = np.nan  # refused: it takes part in nothing
    assert (own_q(mean, null)[:2] < 0.05)[[0, 1], [0, 2]].all() and np.isnan(own_q(mean, null)[2]).all()
    mean[1] = np.nan
    assert np.isnan(own_q(mean, null)).all()  # no other function to compare with


@pytest.mark.parametrize("layer_mean", [True, False])
def test_the_mean_of_a_layer_names_neighbours_which_the_sets_leave_out(layer_mean):
    """With the published features, heads that know nothing matter in the layers of those that know."""
    found = finalize(planted_readings(strength=4.0), NAMES, replace(OPTIONS, layer_mean=layer_mean))
    carries = {place for name in NAMES for place in CARRIES[name]}
    own = {(int(layer), int(head)) for _, layer, head in np.argwhere((found["own_q"] < 0.05).values)}
    assert own > carries if layer_mean else own == carries
    assert {layer for layer, _ in own - carries} <= {layer for layer, _ in carries}
    assert {tuple(place) for one in head_sets(found) for place in np.argwhere(one.member)} == carries


def test_each_head_alone_agrees(maps):
    for name in NAMES:
        best = maps["single_head_auroc"].sel(function=name).values
        top = np.argsort(-best.ravel())[: len(CARRIES[name])]
        assert {divmod(int(place), 5) for place in top} == set(CARRIES[name])
        assert (maps["single_head_q"].sel(function=name).values[tuple(zip(*CARRIES[name], strict=True))] < 0.05).all()
    assert (maps["rank_correlation_low"] <= maps["rank_correlation"]).all()
    assert float(maps["rank_correlation"].mean()) > 0.2


def test_the_probe_beats_chance_and_says_what_chance_is(maps):
    assert float(maps["probe_accuracy_low"]) > float(maps["permuted_high"]) and float(
        maps["majority"]
    ) == pytest.approx(1 / 3, abs=0.02)
    assert not maps["refused"].any() and (maps["reason"] == "").all()
    np.testing.assert_allclose(maps["confusion"].sum("predicted"), 1, atol=1e-6)
    np.testing.assert_allclose(np.diag(maps["confusion"]), maps["recall"], atol=1e-6)
    assert float(maps["seed_accuracy"].mean()) == pytest.approx(float(maps["probe_accuracy"]))


def test_the_answers_form_tells_nothing_where_all_answers_look_alike(maps):
    assert (maps["confound_auroc_low"] <= 0.5).all()
    assert float(maps["confound_accuracy"]) < float(maps["probe_accuracy_low"])


def test_means_spreads_and_curves_are_those_of_the_seeds(maps):
    seeds = maps["importance_seeds"].values.astype(np.float64)
    np.testing.assert_allclose(maps["importance"], seeds.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(maps["importance_sd"], seeds.std(axis=0, ddof=1), rtol=1e-4)
    half = stats.t.ppf(0.975, 2) * seeds.std(axis=0, ddof=1) / np.sqrt(3)
    np.testing.assert_allclose(maps["importance_high"], seeds.mean(axis=0) + half, rtol=1e-4, atol=1e-8)
    np.testing.assert_array_equal(maps["magnitude"], np.abs(maps["importance"]))
    for place in range(3):
        flat = np.sort(maps["magnitude"].values[place].ravel())[::-1]
        np.testing.assert_array_equal(maps["sorted"].values[place], flat)
        assert int(maps["chosen"].values[place].sum()) == int(maps["elbow"].values[place])


def test_the_dataset_is_as_promised(maps):
    origin = Provenance("functions", 4, {"id": "m", "digest": "d"}, {"name": "n", "digest": "d"}, {}, 0)
    check(maps.assign_attrs(origin.to_attrs()), dataset_spec("functions").schema)


def null_data(seed: int) -> ProbeData:
    """Steps of three functions of which no head knows anything."""
    whole = planted_readings(strength=0.0, per_function=20, seed=seed)
    return ProbeData(whole.isel(layer=slice(0, 2)), NAMES)


def beyond_in(data: ProbeData, fits: JointFits) -> NDArray[np.bool_]:
    """(function,): whether a head of the map has q < .05."""
    found = _importance(data, fits, np.zeros(len(data.functions), dtype=bool))
    return (found["q"] < 0.05).any(("layer", "head")).values


def test_probes_that_know_nothing_have_a_map_beyond_the_null_no_more_often_than_one_in_twenty():
    """The study's own fits on data without an effect: 30 studies of three maps; P(more than 5) is 0.3 % at a level of .05."""
    studies = []
    for seed in range(30):
        data = null_data(seed)
        fits = fit_joint(
            data.features(), data.labels, data.trains, data.groups, classes=3, seeds=2, shuffles=20, seed=seed,
            training=JointTraining(max_epochs=1),
        )  # fmt: skip
        studies.append(beyond_in(data, fits))
    assert (np.sum(studies, axis=0) <= 5).all()


@pytest.mark.parametrize("shared", [0.0, 0.7, 1.0])
def test_maps_without_an_effect_stay_at_their_level_however_much_functions_and_heads_depend(shared):
    """Simulated fits, 300 studies: with `shared` of the variance common to all functions and heads of a shuffle."""
    rng, data = np.random.default_rng(7), null_data(0)
    heads = int(data.there.sum())

    def maps(count: int) -> NDArray[np.float32]:
        common, own = rng.standard_normal((count, 1, 1)), rng.standard_normal((count, 3, heads))
        return (np.sqrt(shared) * common + np.sqrt(1 - shared) * own).astype(np.float32)

    logits = np.zeros((2, 1, 3), dtype=np.float32)
    studies = []
    for _ in range(300):
        real = np.repeat(maps(1), 2, axis=0)  # two seeds that agree, the least conservative case
        studies.append(
            beyond_in(data, JointFits(logits, real, real, logits, np.zeros((20, 1), np.int64), maps(20), 1, (0.0,)))
        )
    assert (np.sum(studies, axis=0) <= 26).all()  # P(more than 26 of 300) is 0.2 % at a level of .05


def test_fewer_than_twenty_shuffles_are_refused():
    with pytest.raises(StudyError, match="at least 20"):
        FunctionsOptions(shuffles=19)


def test_training_steps_rank_the_planted_heads_too(maps):
    for name in NAMES:
        best = np.argsort(-np.abs(maps["train_importance"].sel(function=name).values).ravel())[: len(CARRIES[name])]
        assert {divmod(int(place), 5) for place in best} == set(CARRIES[name])


def test_a_wording_that_heads_read_is_told_in_its_layers_and_the_function_in_its_own():
    """Planted: alpha in all heads of layer 1, how a step begins in all heads of layer 5."""
    readings = planted_readings(strength=4.0)
    z, rng = readings["z"].values.copy(), np.random.default_rng(0)
    begins = rng.random(len(z)) < 0.5
    z[begins, 5] += 4 * rng.standard_normal((5, 8))
    z[readings["function_of"].values == "alpha", 1] += 4 * rng.standard_normal((5, 8))
    words = np.where(begins, "The word is ...", "A word is ...").astype(object)
    found = depth_of_wording(
        ProbeData(readings.assign(z=(readings["z"].dims, z), subquestion=("example", words)), NAMES), 0
    )
    wording, function = found["wording_by_layer"].values, found["function_by_layer"].values
    assert (wording[:, 5] > 0.95).all() and (np.abs(wording[:, :5] - 0.5) < 0.15).all()
    assert (np.abs(function[:, 4:] - 0.5) < 0.15).all() and function[0, 1] > 0.95
    most = [max(begins[of].sum(), (~begins[of]).sum()) for of in (readings["function_of"].values == n for n in NAMES)]
    np.testing.assert_array_equal(found["with_first_word"], most)
    assert set(found["first_word"].values) <= {"the", "a"}


def test_a_function_always_worded_alike_has_no_other_label():
    found = depth_of_wording(ProbeData(planted_readings(), NAMES), 0)  # every subquestion is "word"
    assert found["wording_by_layer"].isnull().all() and (found["without_first_word"] == 0).all()


def test_a_probe_at_chance_is_refused():
    with pytest.raises(StudyError, match="distinguishes no function from the others"):
        finalize(planted_readings(strength=0.0), NAMES, FunctionsOptions(seeds=2))


def test_a_function_that_is_not_told_has_no_map():
    readings = planted_readings(strength=4.0, per_function=50)
    z, of = readings["z"].values.copy(), readings["function_of"].values
    rows = np.flatnonzero((of == "beta") | (of == "gamma"))
    shuffled = np.random.default_rng(3).permutation(rows)  # beta and gamma exchange their activations: alpha stays
    z[rows] = z[shuffled]
    readings = readings.assign(z=(readings["z"].dims, z))
    names = ("alpha", "beta", "gamma")
    found = finalize(readings, names, FunctionsOptions(seeds=2, max_epochs=6))
    assert not bool(found["refused"].sel(function="alpha"))
    for place, name in enumerate(names):
        refused = bool(found["refused"].values[place])
        assert refused == bool(found["reason"].values[place])
        assert bool(found["importance"].sel(function=name).isnull().all()) == refused
        assert (int(found["elbow"].values[place]) == 0) == refused or not refused


def test_features_are_z_and_the_mean_of_the_layer():
    readings = planted_readings()
    z = readings["z"].values.copy()
    z[:, 1, 3] = np.nan  # a head that the layer does not have
    data = ProbeData(readings.assign(z=(readings["z"].dims, z)), NAMES)
    np.testing.assert_array_equal(data.features(layer_mean=False)[0, 7], z[0, 1, 2])  # nothing of other heads
    found = data.features()
    assert found.shape == (len(data.labels), 29, 16)
    np.testing.assert_allclose(
        found[0, 7], np.concatenate([z[0, 1, 2], z[0, 1, [0, 1, 2, 4]].mean(axis=0)]), rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(found[2, 1], np.concatenate([z[2, 0, 1], z[2, 0].mean(axis=0)]), rtol=1e-5, atol=1e-6)


def test_answers_without_a_token_are_left_out():
    readings = planted_readings()
    tokens = readings["key_tokens"].values.copy()
    tokens[:6] = 0
    rows = ProbeData(readings.assign(key_tokens=("example", tokens)), NAMES)
    assert len(rows.labels) == readings.sizes["example"] - 6


def test_too_few_answers_are_refused():
    readings = planted_readings()
    none = (readings["function_of"].values != "gamma").astype(np.int64)
    with pytest.raises(StudyError, match="'gamma'"):
        ProbeData(readings.assign(key_tokens=("example", none)), NAMES)


@pytest.mark.parametrize("curve", [[10, 9, 8, 1, 0.9, 0.8, 0.7, 0.6, 0.5, 0], [5, 1, 1, 1, 1, 1], [4, 3, 2, 1, 0]])
def test_the_elbow_is_the_point_furthest_from_the_chord(curve):
    values = np.array(curve, dtype=float)
    places = np.arange(len(values)) / (len(values) - 1)
    height = (values - values[-1]) / (values[0] - values[-1])
    distance = [(1 - x - y) / np.sqrt(2) for x, y in zip(places, height, strict=True)]  # from the line x + y = 1
    assert elbow(values) == (int(np.argmax(distance)) + 1 if max(distance) > 1e-9 else 0)


def test_a_direction_is_one_deviation_from_wrong_to_right():
    rng = np.random.default_rng(0)
    z, right = rng.standard_normal((20, 2, 3, 4)), np.arange(20) % 2 == 0
    z[right, 1, 2] += [3.0, 0, 0, 0]
    found = direction(z, right)
    gap = z[right, 1, 2].mean(axis=0) - z[~right, 1, 2].mean(axis=0)
    unit = gap / np.linalg.norm(gap)
    np.testing.assert_allclose(found[1, 2], unit * (z[:, 1, 2] @ unit).std(), rtol=1e-5)
    assert np.isnan(direction(z, np.zeros(20, dtype=bool))).all()


def test_folds_hold_whole_questions_and_a_head_that_knows_all_is_right():
    labels, groups = np.arange(90) % 3, np.arange(90) // 3
    fold_of = question_folds(labels, groups, 0)
    assert len(set(fold_of)) == 5 and all(len(set(fold_of[groups == one])) == 1 for one in range(30))
    z = np.random.default_rng(0).standard_normal((90, 2, 3)).astype(np.float32)
    z[:, 1] = np.eye(3)[labels] + 0.01 * z[:, 1]
    found = single_head_probes(z, labels, groups, 3)
    assert found.accuracy[1] == 1.0 and found.accuracy[0] < 0.6 and found.auroc[:, 1].min() == 1.0
    assert found.q[:, 1].max() < 0.05 < found.q[:, 0].min()
