"""The table of detectors in words: do probes find more than scores that need none?"""

from __future__ import annotations

import math

from headwise.core.dims import DETECTOR
from headwise.describe.writer import Writer, listed
from headwise.studies.probing.accessor import ProbingAccessor, with_ends

__all__ = ["baselines", "exact_only", "over_logprob"]

BEST_CELL, LENGTH, P_TRUE = "Probe, best cell", "Length", "p(True)"
PROBES_AT = {
    "Probe, exact answer": "at the exact answer",
    "Probe, last token": "at the last token",
    "Probe, end of question": "at the end of the question",
}


def baselines(writer: Writer, probing: ProbingAccessor) -> str:
    """Probes, the best score without one, p(True) and length, each with its interval."""

    def row(name: str) -> str:
        found = probing.row(name)
        assert found is not None
        return with_ends(writer, found, f"row {name}")

    names = probing.rows()
    scores = {
        name: value for name, value in probing.rows("score").items() if name != LENGTH and math.isfinite(value)
    }  # fmt: skip
    text = f"Answer length alone has an AUROC of {row(LENGTH)}." if LENGTH in names else ""
    probes = [name for name in PROBES_AT if name in names]
    if not scores or not probes:
        return text
    best = max(scores, key=lambda name: scores[name])
    against = (
        f"With the layer selected on other folds, a probe has an AUROC of "
        f"{listed(f'{row(name)} {PROBES_AT[name]}' for name in probes)}; the best score without a probe is {best}, "
        f"{row(best)}"
    )
    if P_TRUE in names and best != P_TRUE:
        against += f"; p(True) has {row(P_TRUE)}"
    return f"{against}. {text}".strip()


def over_logprob(writer: Writer, probing: ProbingAccessor) -> str:
    """The paired difference of probes from the strongest log-probability."""
    reference = str(probing.dataset.attrs.get("logprob_reference", ""))
    parts = []
    for name, where in {BEST_CELL: "at the best cell", **PROBES_AT}.items():
        if (found := probing.row(name, "table_over_logprob")) is None:
            continue
        p = float(probing.dataset["table_over_logprob_p"].sel({DETECTOR: name}))
        p_text = writer.number(p, f"p over {name}", digits=2)
        parts.append(f"{with_ends(writer, found, f'over {name}')} {where}{_verdict(found)} (p = {p_text})")
    if not parts:
        return ""
    return f"Paired by answer, a probe's AUROC minus that of {reference}, the strongest log-probability, is {listed(parts)}."


def _verdict(found: tuple[float, float, float]) -> str:
    _, low, high = found
    return ", a gain" if low > 0 else ", a loss" if high < 0 else ", no clear difference"


def exact_only(writer: Writer, probing: ProbingAccessor) -> str:
    """What the rows without an exact answer, read at their last token, contribute."""
    without = probing.without_exact()
    if not without or "has_exact" not in probing.dataset:
        return ""
    count = writer.count(without, "without exact", "answer")
    wrong = writer.count(probing.counts.get("without_exact_wrong", 0), "without exact wrong")
    text = f"In {count}, {wrong} of them wrong, no exact answer was found; they are read at their last token"
    parts = [
        f"{with_ends(writer, found, f'exact {name}')} {where}"
        for name, where in {BEST_CELL: "at the best cell", **PROBES_AT}.items()
        if (found := probing.row(name, "table_exact")) is not None
    ]
    return f"{text}. Without them, the same probes have an AUROC of {listed(parts)}." if parts else f"{text}."
