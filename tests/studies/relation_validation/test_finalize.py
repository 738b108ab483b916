"""Effects, spills and curves, against plain loops over outcomes."""

import numpy as np
import pytest
import xarray as xr
from scipy import stats

from headwise.studies.relation_validation.finalize import finalize

TASKS, STEPS, DRAWS, ROWS = ["a", "b", "c"], [1, 2, 4], 6, 12


def readings(seed: int = 0) -> tuple[xr.Dataset, xr.Dataset]:
    """Outcomes of three tasks with 12, 9 and 10 prompts; a has heads for two steps only. A fourth relation is no task."""
    rng = np.random.default_rng(seed)
    sizes, names = [12, 9, 10, 0], [*TASKS, "d"]
    own = np.full((4, ROWS, 3), np.nan, dtype=np.float32)
    random = np.full((4, DRAWS, ROWS, 3), np.nan, dtype=np.float32)
    others = np.full((4, 3, ROWS, 3), np.nan, dtype=np.float32)
    for task, size in enumerate(sizes[:3]):
        reach = 2 if task == 0 else 3
        own[task, :size, :reach] = rng.random((size, reach)) < 0.4
        random[task, :, :size, :reach] = rng.random((DRAWS, size, reach)) < 0.9
        for other in range(3):
            far = 2 if other == 0 else 3
            if other != task:
                others[task, other, :size, :far] = rng.random((size, far)) < 0.8
    shape = ("relation", "layer", "head")
    found = xr.Dataset(
        {
            "natural": (shape, rng.random((4, 2, 5))),
            "forced": (shape, rng.random((4, 2, 5))),
            "prompts": ("relation", [8, 8, 8, 8]),
            "own": (("relation", "example", "removed"), own),
            "random": (("relation", "draw", "example", "removed"), random),
            "others": (("relation", "control", "example", "removed"), others),
            "tried": ("relation", [20, 20, 20, 0]),
            "right": ("relation", [14, 9, 10, 0]),
            "asked": ("relation", sizes),
            "is_task": ("relation", [True, True, True, False]),
        },
        coords={"relation": names, "layer": [0, 1], "head": np.arange(5), "removed": STEPS, "control": TASKS},
    )
    maps = xr.Dataset(
        {"score": (shape, rng.random((4, 2, 5)))},
        coords={"relation": names, "layer": [0, 1], "head": np.arange(5), "category_of": ("relation", ["x"] * 4)},
    )
    return found, maps


@pytest.fixture(scope="module")
def both():
    found, maps = readings()
    return found, finalize(found, maps, least_solved=5, seed=0), maps


def test_accuracies_are_shares_of_the_prompts_asked(both):
    found, dataset, _ = both
    assert dataset["task"].values.tolist() == TASKS
    for task, size in zip(TASKS, (12, 9, 10), strict=True):
        own = found["own"].sel(relation=task).values[:size]
        np.testing.assert_allclose(dataset["own"].sel(task=task), own.mean(0), rtol=1e-6)
        drawn = found["random"].sel(relation=task).values[:, :size].mean(1)
        np.testing.assert_allclose(dataset["random_draws"].sel(task=task), drawn, rtol=1e-6)
        for step in range(2):
            t = stats.ttest_1samp(drawn[:, step], 0).confidence_interval()
            assert dataset["random_low"].sel(task=task).values[step] == pytest.approx(max(t.low, 0), abs=1e-6)
            assert dataset["random_high"].sel(task=task).values[step] == pytest.approx(min(t.high, 1), abs=1e-6)
    assert np.isnan(dataset["own"].sel(task="a", removed=4)) and np.isnan(dataset["random"].sel(task="a", removed=4))


def test_others_are_the_other_tasks_without_these_heads(both):
    found, dataset, _ = both
    for heads_of in TASKS:
        for control, size in zip(TASKS, (12, 9, 10), strict=True):
            expected = found["others"].sel(relation=control, control=heads_of).values[:size].mean(0)
            np.testing.assert_allclose(dataset["others"].sel(task=heads_of, control=control), expected, rtol=1e-6)


def test_effects_are_gaps_to_random_heads(both):
    found, dataset, _ = both
    for task, size, reach in zip(TASKS, (12, 9, 10), (2, 3, 3), strict=True):
        total, prompts, draws = 0.0, np.zeros(size), np.zeros(DRAWS)
        for draw in range(DRAWS):
            for prompt in range(size):
                for step in range(reach):
                    random = float(found["random"].sel(relation=task).values[draw, prompt, step])
                    gap = random - float(found["own"].sel(relation=task).values[prompt, step])
                    total += gap / (DRAWS * size * reach)
                    prompts[prompt] += gap / (DRAWS * reach)
                    draws[draw] += gap / (size * reach)
        error = prompts.var(ddof=1) / size + draws.var(ddof=1) / DRAWS
        assert float(dataset["effect"].sel(task=task)) == pytest.approx(total, abs=1e-6)
        half = float(dataset["effect_high"].sel(task=task)) - total
        assert 1.96 * error**0.5 < half < stats.t.ppf(0.975, DRAWS - 1) * error**0.5


def test_spills_are_means_over_the_other_tasks(both):
    found, dataset, _ = both
    for heads_of in TASKS:
        means, errors = [], []
        for control, size, reach in zip(TASKS, (12, 9, 10), (2, 3, 3), strict=True):
            if control == heads_of:
                continue
            steps = min(reach, 2 if heads_of == "a" else 3)
            random = found["random"].sel(relation=control).values[:, :size, :steps].mean(0)
            gaps = (random - found["others"].sel(relation=control, control=heads_of).values[:size, :steps]).mean(1)
            means.append(gaps.mean())
            errors.append(gaps.var(ddof=1) / size / 4)
        assert float(dataset["spill"].sel(task=heads_of)) == pytest.approx(np.mean(means), abs=1e-6)
        half = float(dataset["spill_high"].sel(task=heads_of)) - np.mean(means)
        assert 1.96 * sum(errors) ** 0.5 < half < 2.4 * sum(errors) ** 0.5


def test_correlations_and_their_control(both):
    found, dataset, maps = both
    flat = maps["score"].values.reshape(4, -1)
    for row, name in enumerate(dataset["relation"].values):
        natural = found["natural"].values[row].ravel()
        assert float(dataset["pearson_natural"].sel(relation=name)) == pytest.approx(
            np.corrcoef(natural, flat[row])[0, 1], abs=1e-5
        )
        others = [np.corrcoef(natural, flat[other])[0, 1] for other in range(4) if other != row]
        assert float(dataset["other_natural"].sel(relation=name)) == pytest.approx(np.mean(others), abs=1e-5)


def test_a_task_solved_too_rarely_is_named(both):
    found, _, maps = both
    dataset = finalize(found, maps, least_solved=10, seed=0)
    assert dataset["task"].values.tolist() == ["a", "c"]
    assert dataset.attrs["unsolved"] == '{"b": [9, 20]}'
    assert dataset.sizes["control"] == 2


def test_the_relations_heads_are_ranked_among_the_draws(both):
    """By the accuracy that is left, mean over the numbers of heads that there are."""
    found, dataset, _ = both
    for place, task in enumerate(TASKS):
        reach = 2 if task == "a" else 3
        size = int(dataset["asked"].sel(task=task))
        own = found["own"].values[place, :size, :reach].mean()
        draws = found["random"].values[place, :, :size, :reach].mean(axis=(1, 2))
        p = (1 + sum(one <= own + 1e-9 for one in draws)) / (1 + DRAWS)
        assert float(dataset["rank_p"].sel(task=task)) == pytest.approx(p, rel=1e-6)
    assert float(dataset["rank_q"].max()) <= 1 and (dataset["rank_q"] >= dataset["rank_p"] - 1e-6).all()
