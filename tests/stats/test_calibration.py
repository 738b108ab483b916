"""Every test of the package under its complete null, every interval against a known value; see benchmarks/calibration.py.

Draws are few, and the lower end of the rate's 99 % interval must not exceed the level. The null that was in the package
until 0.1.0 was published errs in 40 % of draws and is found; so are tests used against their assumptions.
"""

import sys
from importlib import import_module
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))  # the scripts import each other by their bare names
calibration = import_module("calibration")
CASES = import_module("calibration_cases").CASES


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.name}: {case.simulated}")
def test_errors_are_as_rare_as_promised(case):
    outcome = calibration.run(case, case.quick)
    assert outcome.as_expected, (
        f"{outcome.rate:.3f} of {outcome.draws} draws err ({outcome.low:.3f} to {outcome.high:.3f}), "
        f"allowed are {case.limit:.3f}{', and this fault should be found' if case.broken else ''}"
    )


def test_every_public_test_and_interval_has_a_case():
    """Functions of `headwise.stats` that return p, q or an interval."""
    covered = " ".join(f"{case.name} {case.simulated}" for case in CASES) + " ".join(
        name for case in CASES for name in _called(case.draw)
    )
    import headwise.stats as stats

    plain = {  # no test and no interval: effect sizes, helpers, classes
        "auroc_rows", "correlation_table", "minimum_detectable_gain",
        "minimum_detectable_share", "rank_vectors", "spearman",
    }  # fmt: skip
    functions = {name for name in stats.__all__ if name[0].islower()} - plain
    assert not {name for name in functions if name not in covered}


def _called(draw):
    function = getattr(draw, "func", draw)
    parts = [function, *getattr(draw, "keywords", {}).values()]
    return {name for part in parts if hasattr(part, "__code__") for name in part.__code__.co_names}


def test_a_rate_is_judged_by_its_monte_carlo_interval():
    def case(rate, limit=0.05, broken=False):
        return calibration.Case(
            "", "name", str(rate), "", lambda random: random.random() < rate, limit=limit, broken=broken
        )

    assert calibration.run(case(0.03), 2000).verdict == calibration.run(case(0.055), 500).verdict == "holds"
    assert calibration.run(case(0.2), 300).verdict == "exceeded"
    assert calibration.run(case(0.1, limit=0.12), 2000).verdict == "near"
    assert calibration.run(case(0.2, broken=True), 300).as_expected
    assert not calibration.run(case(0.03, broken=True), 300).as_expected


def test_intervals_of_an_unknown_value_are_compared_with_its_mean():
    def interval(random):
        value = 3.0 + random.normal()
        return value, value - 1.6449, value + 1.6449  # 90 %

    outcome = calibration.run(calibration.Case("", "z", "", "", interval), 3000)
    assert outcome.rate == pytest.approx(0.1, abs=0.02) and outcome.verdict == "exceeded"
    assert calibration.run(outcome.case, 50).rate == calibration.run(outcome.case, 50).rate  # seeded


def test_the_page_has_a_row_for_every_case():
    outcomes = [calibration.Outcome(case, 100, 0.04, 0.01, 0.09, 60.0) for case in CASES]
    page = calibration.page(outcomes)
    assert all(f"| `{case.name}` | {case.simulated} |" in page for case in CASES)
    assert page.count("4.0 % (1.0 % to 9.0 %)") == len(CASES) and f"({len(CASES)} minutes" in page


def test_the_page_is_made_of_the_stored_results():
    known = calibration.stored(CASES)
    missing = [case.name for case in CASES if calibration.key_of(case) not in known]
    assert not missing, "run: make calibrate, or benchmarks/calibration.py --only NAME"
    assert calibration.PAGE.read_text(encoding="utf-8") == calibration.page(list(known.values()))
    assert all(outcome.as_expected and outcome.draws == outcome.case.full for outcome in known.values())
