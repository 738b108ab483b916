"""What the calibration draws: one function per test and kind of data, which says whether the test erred.

Heads are simulated as alike as they are in models: one factor common to all and a few of their own, so that their p-values
rise and fall together. Sizes are small where a test is slow, since a level does not improve with less data.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import torch
import xarray as xr
from calibration import Interval
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import norm

from headwise.analysis.changes import change_error
from headwise.analysis.columns import Column
from headwise.analysis.permutation import HeadStrata, permutation_test, rank_vectors_within
from headwise.probes.cell_maps import probe_cells, significance
from headwise.probes.crossvalidation import assign_folds, out_of_fold
from headwise.probes.generalisation import transfer
from headwise.probes.linear import fit_linear
from headwise.probes.table import TableOptions, compare_rows, detector_table
from headwise.stats import (
    auprc,
    auroc,
    auroc_by_fold,
    auroc_within,
    benjamini_hochberg,
    combine_ranks,
    correlation,
    delong_test,
    drift_test,
    false_alarm_threshold,
    friedman_nemenyi,
    grouped_share_interval,
    mann_whitney_maps,
    mean_interval,
    mean_of_intervals,
    minimum_detectable_auroc,
    paired_changes,
    permutation_null,
    rank_p,
    rank_vectors,
    reliability,
    risk_coverage,
    risk_threshold,
    share_change,
    shuffle_test,
    sum_of_means_half_width,
    t_half_width,
    van_elteren_maps,
    wilson_interval,
)
from headwise.stats.permutation import permuted_labels
from headwise.studies.function_masking.finalize import gap
from headwise.studies.functions.finalize import own_q
from headwise.studies.functions.probe_quality import single_head_probes
from headwise.studies.samples.error_types import type_probes
from headwise.studies.samples.selection import bootstrap

Generator = np.random.Generator
Floats = NDArray[np.float64]
ALPHA = 0.05


# ---- data -----------------------------------------------------------------------------------------------------------


def heads(random: Generator, rows: int, cells: int, alike: float = 0.5) -> Floats:
    """(row, cell): noise with a factor common to all cells and three that some share."""
    common, some = random.normal(size=(rows, 1)), random.normal(size=(rows, 3)) @ random.normal(size=(3, cells))
    own = random.normal(size=(rows, cells))
    return np.sqrt(alike) * common + np.sqrt((1 - alike) / 2) * (some / np.sqrt(3) + own)


def answers(random: Generator, rows: int, share: float = 0.6) -> NDArray[np.bool_]:
    """Which are wrong."""
    return random.permutation(np.arange(rows) < share * rows)


def confounded(random: Generator, rows: int, cells: int) -> tuple[Floats, NDArray[np.bool_], NDArray[np.int64]]:
    """Values and wrong answers that both depend on the topic, and on nothing else in common."""
    topic = random.integers(0, 12, rows)
    wrong = random.random(rows) < np.linspace(0.1, 0.9, 12)[topic]
    values = heads(random, rows, cells) + 1.5 * topic[:, None] / 12
    return values, wrong, topic


def found(p: object, alpha: float = ALPHA) -> float:
    """1 where any value is below alpha."""
    return float(np.nanmin(np.asarray(p, dtype=np.float64)) < alpha)


def missed(truth: float, low: object, high: object) -> float:
    """1 where the interval does not contain the truth."""
    return float(not float(np.asarray(low)) <= truth <= float(np.asarray(high)))


# ---- maps of heads --------------------------------------------------------------------------------------------------


def mann_whitney(random: Generator, alike: float) -> float:
    values = heads(random, 120, 90, alike).reshape(120, 10, 9)
    return found(mann_whitney_maps(values, answers(random, 120)).q)


def plain_on_confounded(random: Generator) -> float:
    values, wrong, _ = confounded(random, 240, 30)
    return found(mann_whitney_maps(values.reshape(240, 5, 6), wrong).q)


def van_elteren(random: Generator, per_stratum: int) -> float:
    """Values and wrong answers both follow the topic; strata are topics, or small parts of one."""
    values, wrong, topic = confounded(random, 240, 30)
    strata = topic * 1000
    for one in np.unique(topic):
        own = np.flatnonzero(topic == one)
        strata[own] += np.arange(len(own)) // per_stratum
    return found(van_elteren_maps(values.reshape(240, 5, 6), wrong, strata).q)


def within_strata(random: Generator, truth: float) -> float:
    """Forty strata of four to eight answers, each at its own level."""
    strata = np.repeat(np.arange(40), random.integers(4, 9, 40))
    wrong = random.random(len(strata)) < random.uniform(0.2, 0.8, 40)[strata]
    score = random.normal(size=len(strata)) + np.sqrt(2) * norm.ppf(truth) * wrong + random.normal(size=40)[strata]
    area = auroc_within(score, wrong, strata)
    return missed(truth, area.low, area.high)


def overlooked(random: Generator) -> float:
    """An effect of the size that 80 % of tests should find."""
    wrong = np.arange(120) < 70
    shift = np.sqrt(2) * norm.ppf(minimum_detectable_auroc(70, 50))
    return float(mann_whitney_maps((random.normal(size=120) + shift * wrong)[:, None, None], wrong).p.item() >= ALPHA)


def null_of_shares(random: Generator, within: bool) -> float:
    values, wrong, topic = confounded(random, 160, 30)
    if not within:
        wrong = random.permutation(wrong)
    shuffled = permutation_null(
        values.reshape(160, 5, 6),
        wrong,
        shuffles=200,
        seed=int(random.integers(1 << 30)),
        within=topic if within else None,
    )
    return found(shuffled.p)


def wilcoxon(random: Generator) -> float:
    before, after = (xr.DataArray(heads(random, 40, 60), dims=("example", "head")) for _ in range(2))
    return found(paired_changes(before, after, maps=()).q)


def ranks(random: Generator, method: str, alike: float) -> float:
    z = np.sqrt(alike) * random.normal() + np.sqrt(1 - alike) * random.normal(size=10)
    return found(combine_ranks(xr.DataArray(2 * norm.sf(np.abs(z)), dims="rank"), method))  # type: ignore[arg-type]


# ---- few shuffles ---------------------------------------------------------------------------------------------------


def shuffled_maps(random: Generator, shuffles: int, alike: float, *, skewed: bool = False) -> float:
    units = heads(random, shuffles + 1, 270, alike)
    if skewed:
        units = np.exp(0.7 * units)
    return found(shuffle_test(units[0], units[1:], two_sided=not skewed).q)


def shuffled_classes(random: Generator) -> float:
    """Eight maps of one shuffle that nearly sum to 0, as the logits of eight classes do: the share of maps with a finding."""
    units = heads(random, 21 * 8, 270).reshape(21, 8, 270)
    units -= 0.95 * units.mean(axis=1, keepdims=True)
    q = shuffle_test(units[0], units[1:], two_sided=True).q
    return float((q.min(axis=1) < ALPHA).mean())


def shared_heads(random: Generator) -> float:
    """Three of 60 heads matter as much to two of three functions: is one of them called a function's own?"""
    units = heads(random, 21 * 3, 60).reshape(21, 3, 60)
    units[0, :2, :3] += 6.0
    return float((own_q(units[0], units[1:])[:2, :3] < ALPHA).any())


def shuffled_discoveries(random: Generator, alike: float) -> float:
    """A tenth of the heads have an effect: the share of false ones among those found."""
    units = heads(random, 41, 270, alike)
    units[0, :27] += 6.0
    significant = shuffle_test(units[0], units[1:]).q < ALPHA
    return float(significant[27:].sum() / max(1, significant.sum()))


def superseded_pool(random: Generator, shuffles: int) -> float:
    """Null values standardised by moments that contain them, the observed ones by moments that do not."""
    units = heads(random, shuffles + 1, 270)
    null = units[1:]
    mean, deviation = null.mean(axis=0), null.std(axis=0, ddof=1)
    pooled, z = np.sort(np.abs((null - mean) / deviation), axis=None), np.abs((units[0] - mean) / deviation)
    p = (1 + pooled.size - np.searchsorted(pooled, z)) / (1 + pooled.size)
    return found(benjamini_hochberg(p))


def probe_map(random: Generator, shuffles: int) -> float:
    """Probes on noise, from the fits on."""
    wrong, fold_of = _folds(random, 80)
    features = torch.from_numpy(random.normal(size=(80, 12)).astype(np.float32) @ random.normal(size=(6, 12, 10)))
    permuted = permuted_labels(wrong, fold_of, sets=shuffles, seed=int(random.integers(1 << 30)))
    return found(significance(probe_cells(features.float(), wrong, fold_of, permuted)).q)


def single_heads(random: Generator) -> float:
    """Each head's probe of three functions on noise: the share of functions with a finding."""
    z, labels = random.normal(size=(90, 12, 6)).astype(np.float32), random.permutation(np.arange(90) % 3)
    q = single_head_probes(z, labels, np.arange(90), 3, permutations=20, seed=int(random.integers(1 << 30))).q
    return float((q.min(axis=1) < ALPHA).mean())


def error_type(random: Generator) -> float:
    """Questions with their greedy answer and three samples each, whose activations are alike."""
    greedy = random.normal(size=(80, 12)).astype(np.float32)
    samples = (greedy[:, None] + random.normal(size=(80, 3, 12))).astype(np.float32)
    seed = int(random.integers(1 << 30))
    (one,) = type_probes(greedy, samples, answers(random, 80)[:, None], shuffles=50, seed=seed)
    return float(one.auroc > one.null_high)


# ---- detectors ------------------------------------------------------------------------------------------------------


def _folds(random: Generator, rows: int, share: float = 0.6) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    wrong = answers(random, rows, share)
    return wrong, assign_folds(wrong, seed=int(random.integers(1 << 30)))


def delong_interval(random: Generator, truth: float, wrong: int, right: int) -> float:
    labels = np.arange(wrong + right) < wrong
    area = auroc(random.normal(size=len(labels)) + np.sqrt(2) * norm.ppf(truth) * labels, labels)
    return missed(truth, area.low, area.high)


def delong_groups(random: Generator) -> float:
    """Forty questions with five answers of similar scores each, mostly all wrong or all right."""
    group = np.repeat(np.arange(40), 5)
    labels = random.random(200) < np.where(random.random(40) < 0.5, 0.85, 0.15)[group]
    area = auroc(random.normal(size=40)[group] + 0.5 * random.normal(size=200), labels, groups=group)
    return missed(0.5, area.low, area.high)


def delong_paired(random: Generator) -> float:
    wrong = answers(random, 150)
    signal = random.normal(size=150) + wrong
    one, other = (auroc(signal + 0.7 * random.normal(size=150), wrong) for _ in range(2))
    return found(delong_test(one, other).p)


def learnt_interval(random: Generator, effect: float, features: int) -> Interval:
    wrong, fold_of = _folds(random, 200)
    points = random.normal(size=(200, features))
    points[:, :3] += effect * wrong[:, None]
    area, _ = auroc_by_fold(out_of_fold(points, wrong, fold_of, components=None), wrong, fold_of)
    return float(area.value), float(area.low), float(area.high)


def learnt_difference(random: Generator) -> float:
    """Two detectors, each with the same signal and noise of its own."""
    wrong, fold_of = _folds(random, 200)
    signal = random.normal(size=(200, 3)) + 0.5 * wrong[:, None]
    areas = []
    for _ in range(2):
        points = np.concatenate([signal, random.normal(size=(200, 20))], axis=1)
        areas.append(auroc_by_fold(out_of_fold(points, wrong, fold_of, components=None), wrong, fold_of)[0])
    return found(delong_test(*areas).p)


def applied_difference(random: Generator) -> float:
    """One detector, applied to two sets of readings with the same signal and noise of their own."""
    wrong, fold_of = _folds(random, 200)
    signal = random.normal(size=(200, 3)) + 0.5 * wrong[:, None]
    first, second = (np.concatenate([signal, random.normal(size=(200, 20))], axis=1) for _ in range(2))
    scores = np.empty((2, 200))
    for fold in np.unique(fold_of):
        linear = fit_linear(first[fold_of != fold], wrong[fold_of != fold])
        for own, points in zip(scores, (first, second), strict=True):
            own[fold_of == fold] = linear(points[fold_of == fold])
    areas = [auroc_by_fold(own, wrong, fold_of)[0] for own in scores]
    return found(delong_test(*areas).p)


def table_gain(random: Generator) -> float:
    """Heads of noise against a score of noise: does the table report a gain?"""
    wrong = answers(random, 100)
    options = TableOptions(details=(), seed=int(random.integers(1 << 30)))
    table = detector_table(
        {"heads": random.normal(size=(100, 2, 6))}, wrong, {"score": random.normal(size=100)}, options=options
    )
    return found(compare_rows(table, "heads", "score").p)


def stacked_gain(random: Generator) -> float:
    """A good score alone against the same stacked with heads of noise."""
    wrong = answers(random, 100)
    score = random.normal(size=100) + wrong
    options = TableOptions(details=(), seed=int(random.integers(1 << 30)))
    table = detector_table(
        {"heads": random.normal(size=(100, 2, 6))},
        wrong,
        {"score": score},
        combine={"both": ("heads", "score")},
        options=options,
    )
    gain = compare_rows(table, "both", "score")
    return float(gain.value > 0 and gain.p < 2 * ALPHA)


def transferred(random: Generator, refits: int) -> float:
    """Two sets, each with a signal of its own: does a detector of one separate the other's answers?"""
    labels, sets = answers(random, 200), np.repeat(["one", "other"], 100)
    points = random.normal(size=(200, 20))
    points[:100, 0] += 1.5 * labels[:100]
    points[100:, 1] += 1.5 * labels[100:]
    matrix = transfer(points, labels, sets, refits=refits)
    return missed(0.5, matrix["low"].values[0, 1], matrix["high"].values[0, 1])


# ---- means, shares, correlations ------------------------------------------------------------------------------------


def student(random: Generator) -> float:
    interval = mean_interval(xr.DataArray(random.normal(size=8), dims="example"), "example")
    return missed(0.0, interval["low"], interval["high"])


def wilson(random: Generator, share: float, size: int) -> float:
    return missed(share, *wilson_interval(random.binomial(size, share) / size, size))


def _shares(
    random: Generator, controls: int, changed: float, loss: float = 0.0
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """60 questions, of which some are answered otherwise under every change; without the head of interest more are lost."""
    correct = random.random(60) < 0.6
    own, others = correct ^ (random.random(60) < changed), correct[:, None] ^ (random.random((60, controls)) < changed)
    return own & (random.random(60) >= loss), others


def share_p(random: Generator, controls: int, changed: float) -> float:
    return found(share_change(*_shares(random, controls, changed)).p)


def share_interval(random: Generator, controls: int, changed: float, loss: float) -> Interval:
    return share_change(*_shares(random, controls, changed, loss))[:3]


def grouped_share(random: Generator, groups: int, share: float, alike: float) -> float:
    """Members of a group share one draw with probability ``alike``, so a group's share has mean ``share``."""
    sizes = random.integers(1, 4, groups)
    together = random.random(groups) < alike
    hits = np.where(together, sizes * (random.random(groups) < share), random.binomial(sizes, share))
    return missed(share, *grouped_share_interval(hits, sizes))


def satterthwaite(random: Generator) -> float:
    """A mean over 20 prompts plus one over 5 draws of another spread."""
    prompts, draws = random.normal(size=20), 0.5 * random.normal(size=5)
    half = sum_of_means_half_width([prompts, draws])
    return missed(0.0, prompts.mean() + draws.mean() - half, prompts.mean() + draws.mean() + half)


def bootstrapped(random: Generator) -> float:
    """Gains of a strategy over 100 questions: -1, 0 or 1."""
    gains = random.choice([-1.0, 0.0, 1.0], p=[0.1, 0.75, 0.15], size=100)
    interval = bootstrap(gains, draws=500, seed=int(random.integers(1 << 30)))
    return missed(0.05, interval.low, interval.high)


def correlated(random: Generator, heavy: bool) -> float:
    """Of 270 heads with a correlation of 0.5 in the population."""
    a, b = random.normal(size=(2, 270))
    if heavy:  # most near 0, some large: products of a normal and a common scale
        scale = np.exp(random.normal(size=270) * 0.7)
        a, b = a * scale, b * scale
    one = correlation(a, 0.5 * a + np.sqrt(0.75) * b, draws=300, seed=int(random.integers(1 << 30)))
    return missed(0.5, one.low, one.high)


def masking(random: Generator, own: float) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Fifty steps of different difficulty, right or wrong with a set of heads masked, and with 20 control sets.

    ``own``: by how much the set raises the log-odds of a right answer; control sets differ by 0.6.
    """
    step, controls = random.normal(size=50), 0.6 * random.normal(size=(20, 1))
    return random.random(50) < expit(step + own), random.random((20, 50)) < expit(step + controls)


def masked_rank(random: Generator) -> float:
    """A function's heads that matter no more than the controls."""
    own, controls = masking(random, 0.6 * random.normal())
    return found(rank_p(float(own.mean()), controls.mean(axis=1)))


def masked_gap(random: Generator) -> float:
    """The accuracy lost to one set, a good deal worse than the controls: does the interval cover the true loss?"""
    _, low, high = gap(*masking(random, -0.9))
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    weights = weights / weights.sum()
    accuracy = weights @ expit(nodes[:, None] + 0.6 * nodes) @ weights
    return missed(float(accuracy - weights @ expit(nodes - 0.9)), low, high)


def gap_as_test(random: Generator) -> float:
    """The same interval read as a test of whether the set is more than another control."""
    _, low, high = gap(*masking(random, 0.6 * random.normal()))
    return missed(0.0, low, high)


# ---- studies against each other -------------------------------------------------------------------------------------


def agreement(random: Generator, *, depth: bool, within: bool) -> float:
    """Four maps of 10 layers x 6 heads, which may all rise with depth: any pair that correlates?"""
    layer = np.repeat(np.arange(10), 6)
    maps = random.normal(size=(4, 60)) + 0.5 * layer * depth
    rows = rank_vectors_within(maps, layer) if within else rank_vectors(maps)
    first, second = np.triu_indices(4, 1)
    strata, seed = HeadStrata(stratum=layer, group=np.arange(60)), int(random.integers(1 << 30))
    return found(permutation_test(first, second, rows, strata, 400, seed, within=within).q)


def _change(random: Generator, kind: Callable[[Generator], tuple[xr.Dataset, Column]]) -> float:
    (one, a), (other, b) = kind(random), kind(random)
    return found(benjamini_hochberg(change_error(a, b, one, other).p))


def examples(random: Generator) -> tuple[xr.Dataset, Column]:
    """Thirty texts that two runs share."""
    values = heads(random, 30, 60).reshape(30, 1, 10, 6)
    dims = ("example", "statistic", "layer", "head")
    read = xr.DataArray(values, dims=dims, coords={"statistic": ["sink"], "example": np.arange(30)})
    mean = values.mean(axis=(0, 1))
    return xr.Dataset({"per_example": read, "value": read.mean("example")}), Column(
        "profile.sink", "profile", "Sink", mean
    )


def hits(random: Generator) -> tuple[xr.Dataset, Column]:
    """Forty pairs that two models were asked, each head right on a third of them."""
    right = random.random((40, 10, 6)) < 0.33
    dataset = xr.Dataset({"mapped": (("example", "layer", "head"), right)}, coords={"example": np.arange(40)})
    dataset["relation_of"] = ("example", np.full(40, "capital"))
    column = Column(
        "relations.capital.score", "relations", "capital, score", right.mean(axis=0),
        entry="capital", hits="mapped", hits_of="relation_of",
    )  # fmt: skip
    return dataset, column


def intervals(random: Generator) -> tuple[xr.Dataset, Column]:
    """Means of 40 examples with Student's interval, of two different samples."""
    values = heads(random, 40, 60).reshape(40, 10, 6)
    half = t_half_width(values)
    mean = values.mean(axis=0)
    return xr.Dataset(), Column("spectral.x", "spectral", "X", mean, low=mean - half, high=mean + half)


# ---- answering only what is trusted, and rankings over data sets -----------------------------------------------------


@cache
def selective_truth(wrong: float, apart: float, rejection: float) -> dict[str, float]:
    """AURC, PRR and AUPRC of normal scores that lie ``apart`` for wrong answers, by integration over the score."""
    score = np.linspace(-9, 12, 200_001)
    step = score[1] - score[0]
    coverage = (1 - wrong) * norm.cdf(score) + wrong * norm.cdf(score - apart)
    weight = -np.log(np.maximum(coverage, max(1 - rejection, 1e-300))) / rejection
    aurc = wrong * float(norm.pdf(score - apart) @ weight) * step
    last = 1 - wrong * (1 - (np.arange(200_000) + 0.5) / 200_000)  # the oracle's places of wrong answers
    oracle = wrong * float(-np.log(np.maximum(last, 1 - rejection)).mean()) / rejection
    alarms = (1 - wrong) * norm.sf(score) + wrong * norm.sf(score - apart)
    auprc = float(norm.pdf(score - apart) @ (wrong * norm.sf(score - apart) / np.maximum(alarms, 1e-300))) * step
    return {"aurc": aurc, "prr": (wrong - aurc) / (wrong - oracle), "auprc": auprc}


def kept(random: Generator, what: str, size: int, wrong: float, apart: float, rejection: float = 1.0) -> float:
    """Whether an interval misses the true value of a score."""
    labels = random.random(size) < wrong
    score = random.normal(size=size) + apart * labels
    made = risk_coverage(score, labels, max_rejection=rejection)
    found = {"aurc": made.aurc, "prr": made.prr, "auprc": auprc(score, labels)}[what]
    return missed(selective_truth(wrong, apart, rejection)[what], found.low, found.high)


def kept_groups(random: Generator, grouped: bool) -> float:
    """PRR of scores of five similar answers to each of 60 questions."""
    question = np.repeat(np.arange(60), 5)
    labels = random.random(60)[question] < 0.4
    score = np.sqrt(0.8) * random.normal(size=60)[question] + np.sqrt(0.2) * random.normal(size=300) + labels
    made = risk_coverage(score, labels, groups=question if grouped else None).prr
    return missed(selective_truth(0.4, 1.0, 1.0)["prr"], made.low, made.high)


def kept_risk(random: Generator) -> float:
    """The risk of the half of 100 answers that are kept, at the score where they end."""
    labels = random.random(100) < 0.4
    score = random.normal(size=100) + labels
    made = risk_coverage(score, labels)
    end = np.sort(score)[50]  # the first that is not kept
    wrong, right = 0.4 * norm.cdf(end - 1), 0.6 * norm.cdf(end)
    return missed(wrong / (wrong + right), made.risk_low[49], made.risk_high[49])


def mean_auroc(random: Generator) -> float:
    """Five sets, some harder than others."""
    truth, labels = np.linspace(0.6, 0.9, 5), np.arange(100) < 40
    scores = random.normal(size=(100, 5)) + np.sqrt(2) * norm.ppf(truth) * labels[:, None]
    area = auroc(scores, labels)
    _, low, high = mean_of_intervals(area.value, area.low, area.high)
    return missed(float(truth.mean()), low, high)


def ranked(random: Generator, what: str, sets: int, methods: int, variants: bool = False) -> float:
    """Methods that are equally good in the mean; variants of one another are close on every data set."""
    values = heads(random, sets, methods, alike=0.3) if variants else random.normal(size=(sets, methods))
    made = friedman_nemenyi(values)
    if what == "p":
        return found(made.p)
    if what == "pairs":
        return found(made.pairwise_p[np.triu_indices(methods, 1)])
    return missed((methods + 1) / 2, made.low[0], made.high[0])


# ---- thresholds, probabilities and logs -----------------------------------------------------------------------------


def false_alarm(random: Generator, size: int, digits: int = 9) -> float:
    """The share of new correct answers above the threshold of 5 %."""
    scores = random.normal(size=(2, 1000)).round(digits)
    return float((scores[1] > false_alarm_threshold(scores[0, :size], 0.05).value).mean())


def risky(random: Generator, size: int, risk: float, base: float, area: float) -> float:
    """Whether more of the answers let through are wrong than promised."""
    apart = norm.ppf(area) * np.sqrt(2)
    wrong = random.random(size) < base
    value = risk_threshold(random.normal(size=size) + apart * wrong, wrong, risk).value
    if value == -np.inf:
        return 0.0
    let_wrong, let_right = base * norm.cdf(value - apart), (1 - base) * norm.cdf(value)
    return float(let_wrong / (let_wrong + let_right) > risk)


def risky_levels(random: Generator) -> float:
    """The same where the third of five scores lies just above the risk."""
    share, wrong_at = np.array([0.3, 0.25, 0.2, 0.15, 0.1]), np.array([0.1, 0.18, 0.25, 0.4, 0.6])
    level = random.choice(5, 400, p=share)
    value = risk_threshold(level, random.random(400) < wrong_at[level], 0.165).value
    through = np.arange(5) <= value
    return float(through.any() and (share * wrong_at)[through].sum() / share[through].sum() > 0.165)


def reliable(random: Generator, size: int, what: str, slope: float = 1.0) -> float:
    """Probabilities p of answers that are wrong with a probability of 1/2 + slope (p - 1/2); ECE is |1 - slope| / 4."""
    p = random.random(size)
    made = reliability(p, random.random(size) < 0.5 + slope * (p - 0.5), draws=400, seed=int(random.integers(2**31)))
    if what == "p":
        return found(made.p)
    if what == "ece":
        return missed(abs(1 - slope) / 4, made.ece_low, made.ece_high)
    brier = 0.25 - (2 * slope - 1) / 12  # the mean of q (1 - q) + (p - q)² with q = 1/2 + slope (p - 1/2)
    return missed(brier, made.brier_low, made.brier_high)


def reliable_groups(random: Generator, grouped: bool) -> float:
    """Right probabilities, but the answers to a question are mostly wrong together."""
    question = np.repeat(np.arange(100), 5)
    p = random.random(100)[question]
    luck = np.where(random.random(500) < 0.7, random.random(100)[question], random.random(500))
    made = reliability(p, luck < p, groups=question if grouped else None, draws=400, seed=int(random.integers(2**31)))
    return found(made.p)


def logged(random: Generator, size: int) -> dict[str, Floats]:
    """Four quantities of a log, some of which go together."""
    score = random.normal(size=size)
    length = random.poisson(30, size) + np.round(5 * score)
    return {"score": score, "alarm": score > 1.3, "unusual": random.random(size) < 0.03, "length": length}


def undrifted(random: Generator, before: int, after: int) -> float:
    """Whether any quantity or window drifts where nothing does."""
    new = logged(random, after)
    return float(drift_test(logged(random, before), new, follow="score", shares=("alarm", "unusual")).drifted)


def repeated(random: Generator) -> float:
    """The same where questions are asked again."""
    before, after = ({"score": np.repeat(random.normal(size=40), 5) + 0.2 * random.normal(size=200)} for _ in range(2))
    return float(drift_test(before, after, follow="score").drifted)


def share_shift(random: Generator) -> float:
    """Newcombe's interval of no difference."""
    before, after = ({"score": random.normal(size=n), "alarm": random.random(n) < 0.1} for n in (100, 300))
    shift = drift_test(before, after, follow="score", shares=("alarm",)).shifts[1]
    return missed(0.0, shift.low, shift.high)
