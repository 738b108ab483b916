"""What a map of probes shows: where it peaks and dips, which tokens carry it, the framed region, heads, leak, baselines.

A map whose best cell is no better than the best with shuffled labels is told as such, and no peak is described in it.
"""

from __future__ import annotations

import math
from statistics import fmean

from headwise.describe import maps
from headwise.describe.writer import Writer, listed, span
from headwise.studies.probing.accessor import LEVEL, NAMES, Cell, ProbingReading

CARRIERS = 3
CLEAR = 0.01  # a smaller difference of means over layers is not spoken of
PROBE_EXACT, PROBE_LAST, PROBE_ASKED = "Probe, exact answer", "Probe, last token", "Probe, end of question"
BEST_HEAD, LENGTH = "Probe, best head", "Length"


def add_details(writer: Writer, reading: ProbingReading) -> None:
    """One entry a site; then heads."""
    for site in reading.sites:
        sentences = [
            f"Probes on {NAMES.get(site, site)}: {_peak(writer, reading, site)}",
            _chance(writer, reading, site),
        ]
        if reading.finds(site):
            sentences += [
                _nested(writer, reading, site),
                _columns(writer, reading, site),
                _frame(writer, reading, site),
            ]
        writer.add("detail", " ".join(sentence for sentence in sentences if sentence))
    writer.add("detail", _heads(writer, reading))


def add_observations(writer: Writer, reading: ProbingReading) -> None:
    """What holds over the maps and the table."""
    for sentence in (_course, _depth, _attended, _against_scores, _length, _leak, _paper, _transfer):
        writer.add("observations", sentence(writer, reading))


def interval(writer: Writer, value: float, low: float, high: float, of: str) -> str:
    """``0.83 (0.79 to 0.87)``."""
    ends = [writer.number(end, f"{side} {of}") for end, side in ((low, "low"), (high, "high"))]
    return f"{writer.number(value, f'value {of}')} ({ends[0]} to {ends[1]})"


def place(writer: Writer, cell: Cell) -> str:
    """``layer 20 at exact_answer_last``."""
    return f"layer {writer.number(cell.layer, 'edge')} at {cell.token}"


def _peak(writer: Writer, reading: ProbingReading, site: str) -> str:
    best = reading.best(site)
    told = interval(
        writer, best.value, reading.at(best, "low", site), reading.at(best, "high", site), f"best {site}"
    )  # fmt: skip
    return f"the highest AUROC is {told}, in {place(writer, best)}."


def _chance(writer: Writer, reading: ProbingReading, site: str) -> str:
    high = writer.number(reading.level("best_high", site), f"best_high {site}")
    p = writer.number(reading.level("best_p", site), f"best_p {site}", digits=2)
    if not reading.finds(site):
        return (
            f"With shuffled labels the best cell of a map stays below {high} in 95 % of shuffles (p = {p}): it is not "
            "more than chance, and no cell is a finding."
        )
    count, total = reading.beyond(site)
    return (
        f"With shuffled labels the best cell stays below {high} in 95 % of shuffles (p = {p}); "
        f"{writer.count(count, f'beyond {site}')} of {writer.count(total, f'cells {site}', 'cell')} are above that."
    )


def _nested(writer: Writer, reading: ProbingReading, site: str) -> str:
    value, low, high = (reading.level(name, site) for name in ("nested", "nested_low", "nested_high"))
    return (
        "The highest of many is too high; chosen on other folds than it is judged on, the best cell has "
        f"{interval(writer, value, low, high, f'nested {site}')}."
    )


def _columns(writer: Writer, reading: ProbingReading, site: str) -> str:
    columns = reading.columns(site)
    order = sorted(columns, key=lambda token: -columns[token])
    best = [f"{token} ({writer.number(columns[token], f'column {site} {token}')})" for token in order[:CARRIERS]]
    last = order[-1]
    return (
        f"By mean over layers the tokens that carry most are {listed(best)}; least carries {last} "
        f"({writer.number(columns[last], f'column {site} {last}')})."
    )


def _frame(writer: Writer, reading: ProbingReading, site: str) -> str:
    edges = reading.frame(site)
    if edges is None:
        return "Nothing at the exact answer is beyond chance, so nothing is framed."
    inside, outside = reading.framed(site)
    for edge in edges:
        writer.number(edge, "edge")
    return (
        f"The framed region, the exact answer in {span('layer', *edges)}, has a mean AUROC of "
        f"{writer.number(inside, f'framed {site}')}, all other cells {writer.number(outside, f'unframed {site}')}."
    )


def _heads(writer: Writer, reading: ProbingReading) -> str:
    count, total = reading.heads()
    if not total:
        return ""
    text = (
        f"Probes on each head's output at the exact answer: {writer.count(count, 'heads found')} of "
        f"{writer.count(total, 'heads measured', 'head')} {'has' if count == 1 else 'have'} q < "
        f"{writer.number(LEVEL, 'constant')} against shuffled labels"
    )
    if not count:
        return f"{text}."
    values = reading.head_map()
    names = [f"{head.name} ({writer.number(head.value, f'head {head.name}')})" for head in maps.strongest(values, 3)]
    text = f"{text}; the highest AUROCs are {listed(names)}."
    row = reading.row(BEST_HEAD)
    if row is None:
        return text
    return (
        f"{text} The best head, chosen on other folds than it is judged on, has {interval(writer, *row, 'row head')}."
    )


# ---- observations ---------------------------------------------------------------------------------------------------


def _course(writer: Writer, reading: ProbingReading) -> str:
    """End of the question, beginning of the answer, exact answer, end."""
    stops = [token for token in ("last_q", "second_answer", "exact_answer_last", "-1") if token in reading.columns()]
    if len(stops) < 4 or not reading.finds():
        return ""
    columns = reading.columns()
    parts = [f"{writer.number(columns[token], f'column {reading.sites[0]} {token}')} at {token}" for token in stops]
    shape = ""
    first, dip, exact, end = (columns[token] for token in stops)
    if dip < min(first, exact) - CLEAR:
        shape = " It dips after the question and rises at the exact answer"
        shape += ", then falls again." if end < exact - CLEAR else ", and stays."
    return f"Along the text the mean AUROC over layers is {listed(parts)}.{shape}"


def _depth(writer: Writer, reading: ProbingReading) -> str:
    best = reading.best().token
    found = reading.thirds(best)
    if found is None or not reading.finds():
        return ""
    parts = [writer.number(value, f"third {index} {best}") for index, value in enumerate(found)]
    return (
        f"At {best} the mean AUROC is {parts[0]} in the early, {parts[1]} in the middle and {parts[2]} in the late third "
        "of the layers."
    )


def _attended(writer: Writer, reading: ProbingReading) -> str:
    rho = reading.attended()
    if not math.isfinite(rho):
        return ""
    what = "hardly go together" if abs(rho) < 0.2 else "go together" if rho > 0 else "go against each other"
    return (
        f"What is attended and what is informative {what}: over the cells, attention received and AUROC have a rank "
        f"correlation of {writer.fixed(rho, 'attended')}."
    )


def _against_scores(writer: Writer, reading: ProbingReading) -> str:
    scores = [name for name in reading.rows("score") if name != LENGTH]
    probes = [name for name in (PROBE_EXACT, PROBE_LAST, PROBE_ASKED) if reading.row(name) is not None]
    if not scores or not probes:
        return ""
    parts = [f"{interval(writer, *_row(reading, name), f'row {name}')} {_where(name)}" for name in probes]
    best = scores[0]
    text = (
        f"With the layer chosen on other folds, a probe has an AUROC of {listed(parts)}; the best score that needs no "
        f"probe is {best}, {interval(writer, *_row(reading, best), f'row {best}')}"
    )
    true = reading.row("p(True)")
    if true is None or best == "p(True)":
        return f"{text}."
    return f"{text}; p(True) has {interval(writer, *true, 'row p(True)')}."


def _where(name: str) -> str:
    return {
        PROBE_EXACT: "at the exact answer",
        PROBE_LAST: "at the last token",
        PROBE_ASKED: "at the end of the question",
    }[name]


def _row(reading: ProbingReading, name: str) -> tuple[float, float, float]:
    found = reading.row(name)
    assert found is not None
    return found


def _length(writer: Writer, reading: ProbingReading) -> str:
    row = reading.row(LENGTH)
    return "" if row is None else f"The answer's length alone has {interval(writer, *row, 'row Length')}."


def _leak(writer: Writer, reading: ProbingReading) -> str:
    found = reading.leak.get("exact_answer_last")
    if not found:
        return ""
    differ = reading.counts.get("spans_differ")
    rows = f" ({writer.count(differ, 'count spans_differ', 'span')} differ)" if differ is not None else ""
    clear = "" if found["low"] > 0 or found["high"] < 0 else ", not a clear difference"
    return (
        f"Spans found the published way, with the label in hand, instead of label-blind{rows}: at exact_answer_last the "
        f"mean AUROC over layers goes from {writer.number(found['blind'], 'leak blind')} to "
        f"{writer.number(found['published'], 'leak published')}; at layer {writer.number(found['layer'], 'edge')} the "
        f"difference is {interval(writer, found['at_layer'], found['low'], found['high'], 'leak')}{clear}."
    )


def _paper(writer: Writer, reading: ProbingReading) -> str:
    if "paper" not in reading.dataset:
        return ""
    values = reading.map(variable="paper")
    if not (values > 0).any():
        return ""
    best, ours = float(values[values == values].max()), reading.best().value
    return (
        f"The paper's protocol (no scaling, one split, published spans) would report a best cell of "
        f"{writer.number(best, 'paper best')}, against {writer.number(ours, f'value best {reading.sites[0]}')} here."
    )


def _transfer(writer: Writer, reading: ProbingReading) -> str:
    raw, gain = reading.transfer(), reading.transfer("transfer_gain")
    if raw is None or gain is None:
        return ""
    inside, across, others = (
        writer.number(fmean(values), f"transfer {what}")
        for values, what in zip(raw, ("inside", "across", "others"), strict=True)
    )
    left = writer.number(fmean(gain[1]), "gain across")
    return (
        f"Across topics a probe at the exact answer has a mean AUROC of {inside} inside a group of topics, {across} when "
        f"fitted on one group and tested on another, {others} when fitted on all others; across, minus what "
        f"log-probability reaches there, it is {left}."
    )
