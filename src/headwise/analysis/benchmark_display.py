"""The detection benchmark in figures and words.

**Scores**: AUROC of every score, mean over sets, with its interval; and the critical-difference diagram: the mean rank of every
score with half of Nemenyi's critical difference to either side, so that two scores differ where their lines do not overlap.
**Risk**: for each set, the share of wrong answers among those that are kept, of the best fitted score, the best score that is
not fitted, the smallest log-probability and the question alone. **Cost**: AUROC against seconds over a plain answer.

The words say what wins, where nothing beats the smallest log-probability or the question, and what could have been seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr

from headwise.analysis.detection_benchmark import ALPHA, ENDS, QUESTION, DetectionBenchmark, rows_of
from headwise.core.dims import COVERAGE, DETECTOR, QUESTION_SET
from headwise.describe.writer import Description, Writer, listed
from headwise.figures import Axis, Category, Curve, Curves, Figure, Guide, Intervals, Panel, Scatter

COLOURS = {  # kind: what the legend says, colour
    "score": ("score", "#6b6b6b"),
    "supervised": ("fitted", "#376180"),
    "combined": ("combined", "#b5500b"),
    "probe": ("probe", "#30a073"),
    QUESTION: ("question", "#a33a5c"),
}
LOGPROB, LOGPROB_COLOUR = "Log-probability, min", "#3d3d3d"
CHANCE, FLOOR = 0.5, 0.4
NAMED = 5  # scores


def benchmark_figures(found: DetectionBenchmark) -> dict[str, Figure]:
    """The figures by name: scores, risk and cost.

    Args:
        found: from `pooled_benchmark`.

    Returns:
        Figures as data, for `headwise.figures.save`.

    Examples:
        >>> from headwise.analysis import pooled_benchmark
        >>> figures = benchmark_figures(pooled_benchmark({"first": uncertainty, "second": uncertainty}))
        >>> {name: len(figure.panels) for name, figure in figures.items()}
        {'scores': 2, 'risk': 2, 'cost': 1}
    """
    words = describe_benchmark(found)
    made = {"scores": _scores(found), "risk": _risk(found), "cost": _cost(found)}
    return {name: figure.with_alt(words.short()) for name, figure in made.items() if figure is not None}


def _scores(found: DetectionBenchmark) -> Figure:
    frame = found.frame()
    rows = Axis("", tuple(map(str, frame.index)))
    groups, categories = _groups(frame["kind"])
    values, lows, highs = (frame[f"auroc{end}"].to_numpy() for end in ENDS)
    low = min(FLOOR, float(np.floor(10 * np.nanmin(lows)) / 10))
    panels: list[Panel] = [
        Intervals(
            "auroc", "AUROC, mean over sets", values, lows, highs,
            Axis("AUROC, 95 % interval", low=max(low, 0.0), high=1.0), rows, groups, categories, guides=(Guide("x", CHANCE),),
        )
    ]  # fmt: skip
    sets = f"{len(found.sets)} question set{'' if len(found.sets) == 1 else 's'} ({', '.join(found.sets)})"
    notes = [f"{sets}. Intervals are about other questions of the same sets. Fitted scores are cross-validated."]
    if "mean_rank" in found.table:
        ranked = frame[np.isfinite(frame["mean_rank"])].sort_values("mean_rank", kind="stable")
        ranks = ranked["mean_rank"].to_numpy()
        half = found.table.attrs["critical_difference"] / 2
        groups, categories = _groups(ranked["kind"])
        categories = tuple(replace(each, label="") for each in categories)  # the first panel names the colours
        panels.append(
            Intervals(
                "ranks", "Critical-difference diagram", ranks, ranks - half, ranks + half,
                Axis("Mean rank over sets (1 is the best)"), Axis("", tuple(map(str, ranked.index))), groups, categories,
                subtitle="two scores differ where their lines do not overlap (Nemenyi, 5 %)",
            )
        )  # fmt: skip
        notes.append(
            f"Critical difference {2 * half:.1f} of {len(ranked) - 1} ranks; Friedman's test: p = "
            f"{found.table.attrs['friedman_p']:.2g}."
        )
        if 2 * half >= len(ranked) - 1:
            notes.append(f"With {len(found.sets)} sets no two scores can be distinguished by their ranks.")
    return Figure(f"Scores of wrong answers: {found.model}", tuple(panels), len(panels), notes=(" ".join(notes),))


def _risk(found: DetectionBenchmark) -> Figure:
    panels: list[Panel] = []
    for name in found.sets:
        one = found.table.sel({QUESTION_SET: name})
        base = int(one["n_wrong"]) / int(one["n_wrong"] + one["n_right"])
        curves = tuple(_curve(one, score, colour, style) for score, colour, style in _shown(found, name))
        panels.append(
            Curves(
                f"risk {name}", name, curves, Axis("Share of answers kept", low=0.0, high=1.0),
                Axis("Wrong among them", low=0.0, high=1.0), subtitle=f"{int(one['n_wrong'])} of "
                f"{int(one['n_wrong'] + one['n_right'])} answers are wrong", guides=(Guide("y", base),),
            )
        )  # fmt: skip
    return Figure(
        f"Risk and coverage: {found.model}", tuple(panels), min(3, len(panels)),
        notes=("Answers are kept from the lowest score on. Bands: 95 % interval (Wilson); thin line: all answers.",),
    )  # fmt: skip


def _shown(found: DetectionBenchmark, question_set: str) -> list[tuple[str, str, str]]:
    """Which scores have a curve, with colour and style: the best of each kind, and the smallest log-probability."""
    frame = found.frame(question_set).sort_values("auroc", ascending=False, kind="stable")
    chosen: list[tuple[str, str, str]] = []
    for kinds, colour in (
        (("supervised", "combined"), "#b5500b"),
        (("score", "probe"), "#376180"),
        ((QUESTION,), COLOURS[QUESTION][1]),
    ):
        own = [str(name) for name in frame.index[frame["kind"].isin(kinds)] if name != LOGPROB]
        chosen += [(own[0], colour, "dashed" if kinds == (QUESTION,) else "line")] if own else []
    return chosen + ([(LOGPROB, LOGPROB_COLOUR, "dashed")] if LOGPROB in frame.index else [])  # fmt: skip


def _curve(one: xr.Dataset, score: str, colour: str, style: str) -> Curve:
    own = one.sel({DETECTOR: score})
    y, low, high = (own[f"risk{end}"].values for end in ENDS)
    return Curve(score, score, own[COVERAGE].values, y, low, high, colour=colour, style=style)


def _cost(found: DetectionBenchmark) -> Figure | None:
    frame = found.frame()
    frame = frame[np.isfinite(frame["seconds_ratio"]) & (frame["kind"] != QUESTION)]
    if frame.empty:
        return None
    groups, categories = _groups(frame["kind"])
    best = frame.groupby(frame["seconds_ratio"].round(2))["auroc"].idxmax()
    panel = Scatter(
        "cost", "What a score costs", frame["seconds_ratio"].to_numpy(), frame["auroc"].to_numpy(),
        Axis("Seconds over those of a plain answer", log=True), Axis("AUROC, mean over sets"),
        tuple(map(str, frame.index)), groups, categories,
        shown=tuple(sorted(list(frame.index).index(name) for name in best)), guides=(Guide("y", CHANCE),),
    )  # fmt: skip
    return Figure(
        f"AUROC and cost: {found.model}", (panel,), 1,
        notes=("Seconds are those of the runs that made the table, mean over sets; named: the best at its cost.",),
    )  # fmt: skip


def _groups(kinds: Iterable[object]) -> tuple[tuple[int, ...], tuple[Category, ...]]:
    """The group of every row, and what its colour means."""
    own = [str(kind) if str(kind) in COLOURS else "score" for kind in kinds]
    used = [kind for kind in COLOURS if kind in own]
    return tuple(used.index(kind) for kind in own), tuple(Category(kind, *COLOURS[kind]) for kind in used)


# ---- words ----------------------------------------------------------------------------------------------------------


def describe_benchmark(found: DetectionBenchmark) -> Description:
    """The benchmark in words.

    Args:
        found: from `pooled_benchmark`.

    Returns:
        Sections of sentences.

    Examples:
        >>> from headwise.analysis import pooled_benchmark
        >>> words = describe_benchmark(pooled_benchmark({"first": uncertainty, "second": uncertainty}))
        >>> list(words.sections())
        ['Overview', 'Detail', 'Key observations', 'Caveats']
    """
    writer = Writer(f"Scores of wrong answers: {found.model}")
    whole, frame = found.table, found.frame()
    scores = frame[frame["kind"] != QUESTION]
    wrong, right = (int(whole[name].sum()) for name in ("n_wrong", "n_right"))
    writer.add(
        "overview",
        f"{writer.count(len(scores), 'scores', 'score')} of {writer.count(wrong + right, 'answers', 'answer')} of "
        f"{found.model} to {writer.count(len(found.sets), 'sets', 'question set')} ({listed(found.sets)}), of which "
        f"{writer.count(wrong, 'wrong answers')} are wrong. Fitted scores are cross-validated inside each set; pooled numbers "
        "are means over sets.",
    )
    for name, reason in found.undecided.items():
        writer.add("overview", f"{name} is not decidable: {reason}.")
    rows = rows_of(scores)
    for name in list(rows)[:NAMED]:
        writer.add("detail", _of_score(writer, name, rows[name]))
    headline = _headline(writer, found)
    for name in found.sets:
        writer.add("observations", _of_set(writer, found, name))
    _add_pooled_gain(writer, found)
    _add_caveats(writer, found)
    return writer.finish(headline)


def _of_score(writer: Writer, name: str, row: Mapping[str, Any]) -> str:
    area, low, high = (writer.number(row[f"auroc{end}"], f"pooled_auroc{end} {name}") for end in ENDS)
    ratio = writer.number(row["prr"], f"pooled_prr {name}", digits=2)
    seconds = row["seconds_ratio"]
    cost = f", {writer.number(seconds, f'seconds_ratio {name}')} times the seconds of a plain answer"
    return f"{name}: AUROC {area} ({low} to {high}), PRR {ratio}{cost if np.isfinite(seconds) else ''}."


def beating(found: DetectionBenchmark, question_set: str | None, against: str) -> list[str]:
    """The scores that are better on a set, or over all (q < .05), the best first; ``against``: "gain_logprob" or "gain"."""
    frame = found.frame(question_set)
    better = frame[(frame[f"{against}_q"] < ALPHA) & (frame[against] > 0)]
    return [str(name) for name in better.sort_values(against, ascending=False).index]


def _headline(writer: Writer, found: DetectionBenchmark) -> str:
    frame = found.frame()
    scores = frame[frame["kind"] != QUESTION]
    best = str(scores.index[0])
    beaten = sum(bool(beating(found, name, "gain_logprob")) for name in found.sets)
    area = writer.number(scores["auroc"].iloc[0], f"pooled_auroc {best}")
    if best == LOGPROB:
        more = (
            "no other score beats it"
            if not beaten
            else f"yet others beat it on {writer.count(beaten, 'sets with a gain', 'set')}"
        )
        return f"The smallest log-probability is best (AUROC {area}); {more} (q < 0.05)."
    if not beaten:
        return f"{best} is best (AUROC {area}), but no score beats the smallest log-probability on any set (q < 0.05)."
    on = writer.count(beaten, "sets with a gain")
    return (
        f"{best} is best (AUROC {area}); some score beats the smallest log-probability on {on} of "
        f"{writer.count(len(found.sets), 'sets', 'set')} (q < 0.05)."
    )


def _of_set(writer: Writer, found: DetectionBenchmark, name: str) -> str:
    one = found.table.sel({QUESTION_SET: name})
    parts = []
    for against, what in (("gain_logprob", "the smallest log-probability"), ("gain", "the question alone")):
        better = beating(found, name, against)
        if not better:
            parts.append(f"nothing beats {what}")
            continue
        best = better[0]
        more = writer.number(float(one[against].sel({DETECTOR: best})), f"{against} {name} {best}")
        count = writer.count(len(better), f"scores over {against} {name}", "score")
        parts.append(f"{count} beat{'s' if len(better) == 1 else ''} {what}, {best} by the most (AUROC +{more})")
    wrong, right = (writer.count(int(one[which]), f"{which} {name}") for which in ("n_wrong", "n_right"))
    return f"{name} ({wrong} wrong, {right} correct): {'; '.join(parts)}."


def _add_pooled_gain(writer: Writer, found: DetectionBenchmark) -> None:
    better, frame = beating(found, None, "gain_logprob"), found.frame()
    if not better:
        writer.add("observations", "Over all sets together, nothing beats the smallest log-probability.")
        return
    named = [
        f"{name} (+{writer.number(frame['gain_logprob'][name], f'pooled_gain_logprob {name}')})"
        for name in better[:NAMED]
    ]
    count = writer.count(len(better), "pooled gains with q < 0.05", "score")
    beat = f"beat{'s' if len(better) == 1 else ''}"
    text = f"Over all sets together, {count} {beat} the smallest log-probability (q < 0.05)"
    writer.add("observations", f"{text}: {listed(named)}{' and more' if len(better) > NAMED else ''}.")


def _add_caveats(writer: Writer, found: DetectionBenchmark) -> None:
    middle = found.table["detectable"].where(found.table["kind"] != QUESTION).median(DETECTOR)
    sizes = {name: float(middle.sel({QUESTION_SET: name})) for name in found.sets}
    seen = [f"{name} {writer.number(size, f'detectable {name}', digits=2)}" for name, size in sizes.items()]
    writer.add(
        "caveats",
        "A gain over the smallest log-probability would be found with 80 % power from this AUROC difference on (median score): "
        f"{listed(seen)}.",
    )
    if "critical_difference" in found.table.attrs:
        difference = writer.number(found.table.attrs["critical_difference"], "critical_difference", digits=2)
        ranked = int(np.isfinite(found.table["mean_rank"]).sum())
        writer.add(
            "caveats",
            f"With {writer.count(len(found.sets), 'sets', 'set')}, two of {writer.count(ranked, 'ranked', 'score')} differ in "
            f"the ranking over sets only if their mean ranks are {difference} apart (Nemenyi).",
        )
    if found.table.attrs["left_out"]:
        writer.add("caveats", f"Not computed on every set, and left out: {listed(found.table.attrs['left_out'])}.")
    writer.add(
        "caveats",
        "One model. Labels come from stated rules. The interval of a pooled number is about other questions of these sets, not "
        "about other sets; choosing the best of many scores on these answers flatters it.",
    )
