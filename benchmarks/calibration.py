"""Does every test of the package keep its level, and every interval its coverage? Simulated where the truth is known.

    python benchmarks/calibration.py                 all cases; writes docs/how-it-works/calibration.md (make calibrate)
    python benchmarks/calibration.py --only shuffle  cases whose name has this word; the other rows of the page stay
    python benchmarks/calibration.py --quick         as tests/stats/test_calibration.py runs them; nothing is written

Results are kept in calibration.json, from which the page is made.

A case (`calibration_cases`) draws data on which a test has nothing to find, or an interval a known value to cover, runs the
package's own function on them, and says whether it erred: found something, or missed the value. The rate of errors over many
draws comes with Wilson's interval at 99 %, which is the Monte-Carlo error.

    holds        the interval's lower end is at most the nominal rate
    near         above the nominal rate, within what the case allows for a stated reason
    exceeded     above both

Cases marked as broken (a superseded null, a plain test on confounded data) must be found exceeded: they show that the
number of draws can find a fault.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headwise.stats import wilson_interval

RESULTS = Path(__file__).with_name("calibration.json")
PAGE = Path(__file__).parents[1] / "docs" / "how-it-works" / "calibration.md"
MONTE_CARLO_LEVEL = 0.99

Draw = Callable[[np.random.Generator], float]
Interval = tuple[float, float, float]  # value, low, high


@dataclass(frozen=True)
class Case:
    """One simulation."""

    area: str
    """heading of the page"""
    name: str
    """the test, by the name of its function"""
    simulated: str
    """the data"""
    error: str
    """what counts as an error"""
    draw: Draw | Callable[[np.random.Generator], Interval]
    """one data set -> 1 (error), 0, or the share of errors; or an interval, whose true value is the mean over all draws"""
    quick: int = 300
    full: int = 4000
    nominal: float = 0.05
    limit: float = 0.05
    """what is allowed, above the nominal rate for a reason"""
    why: str = ""
    broken: bool = False


@dataclass(frozen=True)
class Outcome:
    """The rate of errors, and what it says."""

    case: Case
    draws: int
    rate: float
    low: float
    high: float
    seconds: float

    @property
    def verdict(self) -> str:
        """In a word."""
        if self.low <= self.case.nominal:
            return "holds"
        return "near" if self.low <= self.case.limit else "exceeded"

    @property
    def as_expected(self) -> bool:
        """Whether a sound test holds, and a broken one is found."""
        return (self.verdict == "exceeded") == self.case.broken


def run(case: Case, draws: int, seed: int = 0) -> Outcome:
    """Simulate one case; its random numbers depend on its name and the seed alone."""
    generator = np.random.default_rng([seed, *case.name.encode(), *case.simulated.encode()])
    start = time.process_time()
    found = np.array([case.draw(generator) for _ in range(draws)], dtype=np.float64)
    if found.ndim == 2:  # intervals of one unknown value
        value, low, high = found.T
        truth = value.mean()
        found = ((truth < low) | (truth > high)).astype(np.float64)
    rate = float(found.mean())
    return outcome_of(case, draws, rate, time.process_time() - start)


def outcome_of(case: Case, draws: int, rate: float, seconds: float) -> Outcome:
    """With the Monte-Carlo interval of the rate."""
    low, high = wilson_interval(rate, draws, level=MONTE_CARLO_LEVEL)
    return Outcome(case, draws, rate, float(low), float(high), seconds)


# ---- results and page --------------------------------------------------------------------------------------------

INTRODUCTION = """# Calibration

Does every test of Headwise keep its level, and every interval its coverage? Each row simulates data on which a test has
nothing to find (its complete null), or on which the true value of an interval is known, runs the package's own function, and
counts how often it errs: finds something, or misses the value. At most 5 % of draws should err (for the power statement: 20 %).

The numbers come from `make calibrate` ({minutes:.0f} minutes of one core, seed 0). Brackets hold Wilson's 99 % interval of the
rate, which is the Monte-Carlo error. **holds**: its lower end is at most that. **near**: above, within what the row explains.
The test suite runs the same cases with fewer draws (`tests/stats/test_calibration.py`), and fails where a rate lies above its
level by more than the Monte-Carlo error.

Most tests err less often than 5 %. That is safe and costs power: Benjamini-Hochberg on heads that are alike, exact tests of few
values, and intervals inflated for shared training rows are conservative.
"""

BROKEN = """
## Faults that the simulations find

A superseded null, and tests used against their assumptions. These rows show that the simulations can find a fault, and what
the rows above guard against.
"""


def stored(cases: Sequence[Case]) -> dict[str, Outcome]:
    """What is known of these cases, by name and data."""
    known = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    return {key_of(case): outcome_of(case, **known[key_of(case)]) for case in cases if key_of(case) in known}


def store(outcomes: Sequence[Outcome]) -> None:
    """Keep results, and write the page."""
    rows = {
        key_of(one.case): {"draws": one.draws, "rate": one.rate, "seconds": round(one.seconds, 2)} for one in outcomes
    }
    RESULTS.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(outcomes), encoding="utf-8")


def key_of(case: Case) -> str:
    """What tells a case from the others."""
    return f"{case.name}: {case.simulated}"


def page(outcomes: Sequence[Outcome]) -> str:
    """The page, as Markdown."""
    parts = [INTRODUCTION.format(minutes=max(1.0, sum(one.seconds for one in outcomes) / 60))]
    for area in dict.fromkeys(one.case.area for one in outcomes if not one.case.broken):
        parts.append(
            f"\n## {area}\n\n{_table([one for one in outcomes if one.case.area == area and not one.case.broken])}"
        )
    parts.append(BROKEN + "\n" + _table([one for one in outcomes if one.case.broken]))
    return "".join(parts)


def _table(outcomes: Sequence[Outcome]) -> str:
    lines = ["| test | simulated | an error is | errors | draws | |", "|---|---|---|---|---|---|"]
    for one in outcomes:
        case = one.case
        verdict = one.verdict + (f": {case.why}" if case.why and one.verdict == "near" else "")
        rate = f"{one.rate:.1%} ({one.low:.1%} to {one.high:.1%})".replace("%", " %")
        lines.append(f"| `{case.name}` | {case.simulated} | {case.error} | {rate} | {one.draws:,} | {verdict} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run, print, and write the page."""
    from calibration_cases import CASES

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    outcomes = stored(CASES)
    now = [case for case in CASES if given.only in key_of(case)]
    for case in now:
        outcomes[key_of(case)] = one = run(case, case.quick if given.quick else case.full, given.seed)
        mark = "" if one.as_expected else "   <-- not as expected"
        rate = f"{one.rate:7.4f} [{one.low:.3f}, {one.high:.3f}] {one.verdict:9}{one.seconds:6.1f} s"
        print(f"{rate}  {key_of(case)}{mark}", flush=True)
    if not given.quick:
        store([outcomes[key_of(case)] for case in CASES if key_of(case) in outcomes])
        print(f"written to {PAGE}")
    return 0 if all(outcomes[key_of(case)].as_expected for case in now) else 1


if __name__ == "__main__":
    sys.exit(main())
