"""The spectral study on planted readings: planted heads differ by label, and exactly those are found."""

import json

import numpy as np
import pytest
import xarray as xr
from scipy.stats import mannwhitneyu

from headwise.core.errors import DataError
from headwise.instruments import PARTS
from headwise.stats import minimum_detectable_auroc
from headwise.studies.spectral import detection, measure
from headwise.studies.spectral.measure import FEATURE_INFO, head_tests
from headwise.studies.spectral.spec import SpectralOptions

LAYERS, HEADS, K, N = 12, 8, 20, 240
PLANTED = [(2, 3), (2, 4), (5, 0), (7, 7), (9, 1), (11, 6)]


def answers_of(wrong, rng):
    lengths = rng.integers(2, 9, len(wrong))
    names = [f"q{i}" for i in range(len(wrong))]
    return xr.Dataset(
        {
            "label": ("example", np.where(wrong, "wrong", "correct")),
            "answer_tokens": ("example", lengths),
            "topic": ("example", np.array(["rivers", "kings"])[rng.integers(0, 2, len(wrong))]),
            "logprob_mean": ("example", rng.normal(-1, 0.3, len(wrong)) - 0.2 * wrong),
            "logprob_min": ("example", rng.normal(-2, 0.5, len(wrong))),
        },
        coords={"example": names},
    )


def readings_of(wrong, rng, *, strength=1.5):
    shape = (len(wrong), LAYERS, HEADS)
    shift = np.zeros(shape)
    for layer, head in PLANTED:
        shift[:, layer, head] = strength * wrong

    def numbers(*tail):
        return rng.normal(size=(*shape, *tail)) * 0.1 + 0.1 * shift.reshape(*shape, *[1] * len(tail))

    ranked = -np.sort(-numbers(K), axis=-1)
    dims = ("example", "layer", "head")
    variables = {name: ((*dims, "part"), numbers(2)) for name, _, _ in FEATURE_INFO.values()}
    variables |= {"laplacian": ((*dims, "rank"), ranked), "attention": ((*dims, "rank"), ranked.copy())}
    variables["hidden"] = (("example", "layer", "width"), rng.normal(size=(len(wrong), LAYERS, 16)))
    coords = {"example": [f"q{i}" for i in range(len(wrong))], "layer": np.arange(LAYERS), "head": np.arange(HEADS)}
    return xr.Dataset(variables, coords=coords).astype(np.float32)


@pytest.fixture(scope="module")
def planted():
    rng = np.random.default_rng(5)
    wrong = rng.random(N) < 0.6
    return readings_of(wrong, rng), answers_of(wrong, rng)


def test_exactly_the_planted_heads_reach_significance(planted):
    maps = head_tests(*planted, SpectralOptions())
    for feature in ("attention_score", "laplacian"):
        q = maps["q"].sel(feature=feature, part="whole").values
        found = {(int(layer), int(head)) for layer, head in zip(*np.nonzero(q < 0.05), strict=True)}
        assert found == set(PLANTED)
    effect = maps["effect"].sel(feature="laplacian", part="whole")
    assert all(float(effect.sel(layer=layer, head=head)) > 0.75 for layer, head in PLANTED)
    share = maps["share"].sel(feature="laplacian", part="whole")
    assert float(share) > float(maps["null_high"].sel(feature="laplacian", part="whole"))


def test_without_a_difference_nothing_is_found():
    rng = np.random.default_rng(6)
    wrong = rng.random(N) < 0.5
    maps = head_tests(readings_of(wrong, rng, strength=0.0), answers_of(wrong, rng), SpectralOptions())
    assert float((maps["q"] < 0.05).sum()) <= 1
    assert abs(float(maps["share"].mean()) - 0.05) < 0.03
    assert float(maps["null_p"].min()) > 0.001


def test_the_dataset_says_what_it_holds(planted):
    maps = head_tests(*planted, SpectralOptions())
    assert maps["p"].dims == ("part", "feature", "layer", "head")
    assert maps["part"].values.tolist() == list(PARTS)
    counts = json.loads(maps.attrs["counts"])
    assert counts["wrong"] + counts["correct"] == N
    strata = json.loads(maps.attrs["strata"])
    assert strata["within"] == {"kind": "topic", "strata": 2, "answers": N} and strata["matched"]["strata"] == 7
    assert bool((maps["effect_low"] <= maps["effect"]).all())
    assert bool((maps["effect"] <= maps["effect_high"]).all())


def test_heads_that_carry_only_the_topic_show_nothing_among_alike_questions():
    """The planted heads follow how often a topic is answered wrongly, and nothing of the single answer."""
    rng = np.random.default_rng(8)
    topic = rng.integers(0, 12, N * 2)
    hard = np.linspace(-2, 2, 12)[topic]
    wrong = rng.random(N * 2) < 1 / (1 + np.exp(-hard))
    answers = answers_of(wrong, rng).assign(topic=("example", [f"topic {one}" for one in topic]))
    maps = head_tests(readings_of(hard, rng, strength=1.0), answers, SpectralOptions())
    for feature in ("attention_score", "laplacian"):
        found = maps.sel(feature=feature, part="whole")
        assert all(float(found["q"].sel(layer=layer, head=head)) < 1e-4 for layer, head in PLANTED)
        assert int((found["q_within"] < 0.05).sum()) <= 1  # a false discovery in one of twenty maps
        assert float(found["null_p"]) < 0.05 < float(found["null_p_within"])
        inside = [float(found["effect_within"].sel(layer=layer, head=head)) for layer, head in PLANTED]
        assert np.mean(inside) == pytest.approx(0.5, abs=0.03)
        assert abs(float(found["effect"].sel(layer=2, head=3)) - 0.5) > 0.15


def test_heads_that_carry_the_error_show_it_among_alike_questions():
    rng = np.random.default_rng(9)
    topic = rng.integers(0, 12, N)
    wrong = rng.random(N) < 1 / (1 + np.exp(-np.linspace(-1.5, 1.5, 12)[topic]))
    answers = answers_of(wrong, rng).assign(topic=("example", [f"topic {one}" for one in topic]))
    maps = head_tests(readings_of(wrong, rng), answers, SpectralOptions())
    planted_here = np.zeros((LAYERS, HEADS), dtype=bool)
    planted_here[tuple(np.transpose(PLANTED))] = True
    for name in ("q", "q_within", "q_strict", "q_matched"):
        found = maps[name].transpose(..., "layer", "head").values < 0.05  # in twelve maps, each drawn for itself
        assert found[..., planted_here].all(), name
        false = (found & ~planted_here).sum((-2, -1)) / found.sum((-2, -1))
        assert false.mean() < 0.1, name  # at most 5 % are expected
    truth = 0.855  # of a shift of 1.5 standard deviations: Φ(1.5 / √2)
    inside = maps["effect_within"].sel(feature="laplacian", part="whole")
    assert np.mean([float(inside.sel(layer=layer, head=head)) for layer, head in PLANTED]) == pytest.approx(
        truth, abs=0.04
    )


def test_what_could_have_been_found_is_that_of_these_answers(planted):
    readings, answers = planted
    maps = head_tests(readings, answers, SpectralOptions())
    wrong = answers["label"].values == "wrong"
    expected = minimum_detectable_auroc(wrong.sum(), (~wrong).sum(), tests=LAYERS * HEADS)
    assert maps["detectable"].values == pytest.approx(expected, rel=1e-5)
    assert (maps["detectable_within"] >= maps["detectable"]).all()


def test_the_detectors_tell_the_planted_difference(planted):
    readings, answers = planted
    table = detection.finalize(readings, answers, seed=0)
    auroc = table["auroc"].to_series()
    assert auroc["LapEigvals"] > 0.9
    assert 0.35 < auroc["Hidden state"] < 0.65
    assert 0.35 < auroc["Length"] < 0.65
    detector = detection.fit_best(readings, answers, table, seed=0)
    name, members = detection.best_members(table)
    known = {**detection.feature_sets(readings), **detection.baselines(readings, answers)}
    heads = detector.explain({member: known[member] for member in members})["per_head"]
    drive = np.abs(heads).mean("example").values
    strongest = np.argsort(-drive, axis=None)[: len(PLANTED)]
    found = {tuple(int(i) for i in np.unravel_index(index, drive.shape)) for index in strongest}
    assert len(found & set(PLANTED)) >= len(PLANTED) - 1, name


def test_scores_join_the_answers_by_name(planted):
    readings, answers = planted
    table = detection.finalize(readings, answers, seed=0)
    more = xr.concat([answers, answers.isel(example=[0]).assign_coords(example=["refused"])], dim="example")
    shuffled = more.isel(example=np.random.default_rng(0).permutation(N + 1))
    joined = shuffled.assign(score=table["score"].sel(detector="Length").reset_coords(drop=True))
    assert np.isnan(joined["score"].sel(example="refused"))  # an answer that was not scored
    known = joined["score"].notnull()
    assert int(known.sum()) == N
    np.testing.assert_array_equal(joined["score"][known], joined["answer_tokens"][known])


@pytest.mark.parametrize(("label", "words"), [("correct", "wrong"), ("wrong", "correct")])
def test_one_class_only_is_refused(label, words):
    answers = answers_of(np.zeros(60, dtype=bool), np.random.default_rng(0))
    answers["label"] = ("example", np.full(60, label))
    with pytest.raises(
        DataError, match=f"none of the 60 answers is {words}, and at least 20 {words} answers are needed"
    ):
        measure.judged_answers(answers)


def test_the_tests_of_single_ranks_combine_to_the_planted_heads(planted):
    readings, answers = planted
    maps = head_tests(readings, answers, SpectralOptions())
    wrong = answers["label"].values == "wrong"
    for name in ("p_cauchy", "p_min"):
        found = maps[name].sel(part="whole", feature="laplacian").values
        assert sorted(map(tuple, np.argwhere(found < 1e-6))) == PLANTED
        assert np.isnan(maps[name].sel(part="answer")).all()
        assert np.isnan(maps[name].sel(feature="entropy")).all()
    layer, head = 3, 3
    single = [
        mannwhitneyu(*(readings["laplacian"].values[side, layer, head, rank] for side in (wrong, ~wrong))).pvalue
        for rank in range(10)
    ]
    smallest = 1 - (1 - min(single)) ** 10
    assert float(maps["p_min"].sel(part="whole", feature="laplacian")[layer, head]) == pytest.approx(smallest, rel=1e-3)


@pytest.mark.parametrize(("shortest", "wanted", "k"), [(54, None, 50), (300, None, 100), (3, None, 3), (54, 54, 54)])
def test_as_many_ranks_as_every_answer_has(shortest, wanted, k):
    assert measure.eigenvalues_of(lengths_of(shortest), wanted) == k


@pytest.mark.parametrize("wanted", [0, 55])
def test_more_ranks_than_the_shortest_answer_has_are_refused(wanted):
    with pytest.raises(DataError, match=f"k={wanted} eigenvalues.*'short'.*has 54 tokens.*k from 1 to 54"):
        measure.eigenvalues_of(lengths_of(54), wanted)


def lengths_of(shortest):
    prompts, said = [400, shortest - 2], [7, 2]
    return xr.Dataset(
        {"prompt_tokens": ("example", prompts), "answer_tokens": ("example", said)},
        coords={"example": ["long", "short"]},
    )
