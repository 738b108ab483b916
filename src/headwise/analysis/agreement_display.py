"""Agreement between studies as a figure and in words.

Figure: two matrices of head sets by head sets. Left, log2 of the shared heads over those expected with heads permuted within
layers (0.5 added to both, so that an empty overlap has a finite value). Right, the rank correlation of the two maps with the
mean of each layer removed. A box is a pair with q < 0.05 within layers; a cross is significant only with heads permuted over
the whole model, which depth alone can cause; a dot cannot be tested within layers, because no permutation changes it (no
layer has heads of both sets, for example). Sets of the same study are not compared. Where the atlas has the study `causal`,
two more panels: which share of the heads of every other set the model needs more than matched heads, and the correlation of
every map with the causal column.

Words: the pairs in `ALWAYS_REPORTED` first, whatever their result, then the significant ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import xarray as xr

from headwise.analysis.study_agreement import Agreement
from headwise.core.dims import HEAD_SET, OTHER_SET, PLACE
from headwise.describe.writer import Description, Writer, listed
from headwise.figures import (
    Axis,
    Category,
    Figure,
    Frame,
    Guide,
    Heatmap,
    Intervals,
    Legend,
    Mark,
    scale_around,
)
from headwise.stats.multiple_testing import ALPHA
from headwise.studies.causal.heads import MORE

UNTESTED = "cannot be tested within layers"
MAX_PAIRS = 6  # reported of each kind
ALWAYS_REPORTED = (
    ("relations.knowledge", "functions.Knowledge_Recall"),
    ("relations.linguistic", "functions.Syntactic_Understanding"),
    ("relations.linguistic", "functions.Semantic_Understanding"),
    ("relations.algorithmic", "profile.induction"),
    ("relations.knowledge", "spectral.laplacian"),
    ("functions.Knowledge_Recall", "spectral.laplacian"),
    ("functions.Knowledge_Recall", "probing.head_auroc"),
    ("spectral.laplacian", "probing.head_auroc"),
)
OVERLAP_DETAILS = {
    "shared": "count", "expected within layers": "expected", "expected over all": "expected_all", "odds ratio": "odds_ratio",
    "p": "p", "q": "q", "q over all": "q_all",
}  # fmt: skip
RANK_DETAILS = {
    "over all heads": "correlation", "by depth alone": "correlation_expected",
    "p": "correlation_p", "q": "correlation_q", "q over all": "correlation_q_all",
}  # fmt: skip
_LEGEND = Legend(
    "legend",
    (
        Category("sure", f"boxed: q < {ALPHA:g}, heads permuted within layers", sign="frame", colour="#000000"),
        Category("anywhere", f"q < {ALPHA:g} only with heads permuted over the whole model", sign="cross"),
        Category("untested", f"{UNTESTED}: no permutation changes it", sign="dot"),
        Category("missing", "not compared: same study, or an empty set", sign="texture"),
    ),
)


def agreement_figure(found: Agreement) -> Figure:
    """Overlap and correlation of all pairs; the alternative text is the headline of `describe_agreement`.

    Args:
        found: from `agreement`.

    Returns:
        Two maps of sets by sets.

    Examples:
        >>> from headwise.analysis import agreement
        >>> agreement_figure(agreement(atlas, permutations=200))
        <Figure 'Do the studies agree? SmolLM2-135M-Instruct': overlap, correlation, legend>
    """
    data, size = found.dataset, found.dataset["member"].sum(PLACE)
    ratio = (data["count"] + 0.5) / (data["expected"] + 0.5)
    overlap = xr.apply_ufunc(np.log2, ratio).where((size > 0) & (size.rename({HEAD_SET: OTHER_SET}) > 0))
    rank = data["correlation_within"]
    labels = tuple(f"{one.label} · {one.study}" for one in found.sets)
    needed = tuple(_needed_panels(found))
    note = (
        f"{len(found.sets)} head sets, {len(found.pairs)} pairs across studies, {found.heads} heads; {found.permutations:,} "
        f"permutations, {found.permuted}; q over all pairs. Expected: mean overlap with permuted heads. With permuted maps "
        f"{found.by_chance:.2g} and {found.correlation_by_chance:.2g} pairs are significant on average."
    )
    return Figure(
        title=f"Do the studies agree? {found.model.rsplit('/', 1)[-1]}",
        panels=(
            _panel("overlap", "Heads that both name", overlap, labels, data, OVERLAP_DETAILS),
            _panel("correlation", "Rank correlation within layers", rank, labels, data, RANK_DETAILS),
            *needed,
            _LEGEND,
        ),
        columns=2,
        scales={
            "overlap": scale_around(overlap.values, "log₂ of shared over expected"),
            "correlation": scale_around(rank.values, "Spearman"),
        },
        notes=(note, NEEDED_NOTE) if needed else (note,),
        provenance=found.provenance,
    ).with_alt(describe_agreement(found).short())


def _needed_panels(found: Agreement) -> Iterator[Intervals]:
    """The shares of the sets that have heads, and the correlations of all maps with the causal column."""
    known = [one for one in found.needed if one.heads]
    if not known:
        return
    labels = tuple(f"{_name(found, one.key)}: {one.more} of {one.heads}" for one in known)
    categories = (
        Category("sure", f"q < {ALPHA:g}", "#b5500b"),
        Category("other", f"q ≥ {ALPHA:g}, or untested", "#8c8c8c"),
    )
    every = float(found.dataset["member"].sel({HEAD_SET: MORE}).mean())
    share, low, high = (np.array([getattr(one, name) for one in known]) for name in _SHARE)
    yield Intervals(
        "needed", "Does the model need them?", share, low, high,
        Axis("Share needed more than matched heads", low=-0.02, high=1.02), Axis("", labels),
        groups=tuple(int(not one.q < ALPHA) for one in known), categories=categories,
        guides=(Guide("x", every, "all heads"),),
    )  # fmt: skip
    value = np.array([one.correlation for one in found.needed])
    yield Intervals(
        "causal", "Correlation with the causal column", value, value, value, Axis("Spearman, within layers"),
        Axis("", tuple(_name(found, one.key) for one in found.needed)),
        groups=tuple(int(not one.correlation_q < ALPHA) for one in found.needed), categories=categories,
        guides=(Guide("x", 0.0),),
    )  # fmt: skip


_SHARE = ("share", "share_low", "share_high")
NEEDED_NOTE = (
    "Needed: the rise of the loss without the head exceeds that without heads of its layer that write about as much; lines: "
    "95 % intervals. Tested against heads permuted within layers, q over these sets."
)


def _panel(
    key: str, title: str, found: xr.DataArray, labels: tuple[str, ...], data: xr.Dataset, shown: Mapping[str, str]
) -> Heatmap:
    values, details = found.values, {label: data[name].values for label, name in shown.items()}
    q, q_all, compared = details["q"], details["q over all"], np.isfinite(values)
    significant, untested = q < ALPHA, compared & ~np.isfinite(q)
    anywhere = (q_all < ALPHA) & ~significant & compared
    passed, tested, left = (int(np.triu(cells, 1).sum()) for cells in (significant, np.isfinite(q), untested))
    return Heatmap(
        key=key,
        title=title,
        subtitle=f"{passed} of {tested} pairs with q < {ALPHA:g}" + (f"; {left} more cannot be tested" if left else ""),
        values=values,
        x=Axis("", labels),
        y=Axis("", labels),
        scale=key,
        frames=tuple(Frame(int(row), int(row), int(column), int(column)) for row, column in np.argwhere(significant)),
        marks=(*_marks(anywhere, "cross", ""), *_marks(untested, "dot", UNTESTED)),
        extras=details,
        missing="not compared",
    )


def _marks(cells: np.ndarray, sign: str, text: str) -> tuple[Mark, ...]:
    return tuple(Mark(int(row), int(column), text, sign) for row, column in np.argwhere(cells))


def describe_agreement(found: Agreement) -> Description:
    """The agreement in words.

    Args:
        found: from `agreement`.

    Returns:
        Sections of sentences.

    Examples:
        >>> from headwise.analysis import agreement
        >>> list(describe_agreement(agreement(atlas, permutations=200)).sections())
        ['Overview', 'Axes and scale', 'Detail', 'Key observations', 'Caveats']
    """
    writer = Writer(f"Do the studies agree? {found.model}")
    studies = list(dict.fromkeys(one.study for one in found.sets))
    writer.add(
        "overview",
        f"{writer.count(len(found.sets), 'sets', 'head set')} of {listed(studies)} are compared, every set with every set "
        f"of the other studies: {writer.count(len(found.pairs), 'pairs', 'pair')}, over "
        f"{writer.count(found.heads, 'heads', 'head')} of {found.model}.",
    )
    writer.add(
        "overview",
        f"Every pair is tested against {writer.count(found.permutations, 'permutations')} permutations of the heads, over "
        f"the whole model and {found.permuted}; q-values are over all pairs.",
    )
    writer.add("axes", "Rows and columns are head sets; the matrix is symmetric.")
    for one in found.sets:
        writer.add("axes", f"{one.label} ({one.study}): {one.rule}; {writer.count(len(one.heads), one.key, 'head')}.")
    keys = {one.key for one in found.sets}
    for first, second in ALWAYS_REPORTED:
        if {first, second} <= keys:
            writer.add("detail", _pair(writer, found, found.pair(first, second)))
    headline = _add_observations(writer, found)
    _add_needed(writer, found)
    _add_caveats(writer, found)
    return writer.finish(headline)


def _pair(writer: Writer, found: Agreement, pair: Any) -> str:
    one, other = _name(found, pair.first), _name(found, pair.second)
    key = f"{pair.first} {pair.second}"
    sizes = [writer.count(size, f"size {key}", "head") for size in (pair.first_size, pair.second_size)]
    shared = writer.count(pair.count, f"count {key}") if pair.count else "none"

    def number(field: str) -> str:
        return writer.number(getattr(pair, field), f"{field} {key}", digits=2)

    text = f"{one}, {sizes[0]}, and {other}, {sizes[1]}, share {shared}"
    text += f" ({listed(pair.shared)})" if 0 < pair.count <= MAX_PAIRS else ""
    if np.isfinite(pair.p):
        text += (
            f"; expected within layers: {number('expected')} (p {number('p')}, q {number('q')}; odds ratio "
            f"{number('odds_ratio')})"
        )
    elif np.isfinite(pair.p_all):
        text += f"; expected over the whole model: {number('expected_all')} (p {number('p_all')}); {UNTESTED}"
    else:
        text += "; one of the sets is empty"
    return (
        f"{text}. Their maps correlate at {writer.fixed(pair.correlation, f'correlation {key}')}; within layers at "
        f"{writer.fixed(pair.correlation_within, f'correlation_within {key}')} (q {number('correlation_q')})."
    )


def _add_observations(writer: Writer, found: Agreement) -> str:
    by_overlap = sorted((one for one in found.pairs if one.q < ALPHA), key=lambda one: one.p)
    by_rank = sorted(
        (one for one in found.pairs if one.correlation_q < ALPHA), key=lambda one: -abs(one.correlation_within)
    )
    overlap_anywhere = sum(one.q_all < ALPHA for one in found.pairs)
    rank_anywhere = sum(one.correlation_q_all < ALPHA for one in found.pairs)
    tested = sum(np.isfinite(one.p) for one in found.pairs)
    overlap = (
        f"{writer.count(len(by_overlap), 'overlap q < 0.05')} of {writer.count(tested, 'overlap tested', 'pair')} of sets "
        f"share more or fewer heads than expected with heads permuted within layers (q < 0.05). With heads permuted over the "
        f"whole model, the number is {writer.count(overlap_anywhere, 'overlap q_all < 0.05')}."
    )
    rank = (
        f"{writer.count(len(by_rank), 'rank q < 0.05')} of {writer.count(len(found.pairs), 'pairs', 'pair')} of maps correlate "
        f"within layers (q < 0.05). Over the whole model, the number is {writer.count(rank_anywhere, 'rank q_all < 0.05')}; "
        "pairs that correlate only there may do so because both maps depend on depth."
    )
    writer.add("observations", overlap)
    for pair in by_overlap[:MAX_PAIRS]:
        writer.add("observations", _pair(writer, found, pair))
    if len(by_overlap) > MAX_PAIRS:
        left = writer.count(len(by_overlap) - MAX_PAIRS, "overlap left out", "more significant pair")
        writer.add("observations", f"{left} with larger p-values.")
    writer.add("observations", rank)
    for sign, word in ((1, "positive"), (-1, "negative")):
        own = [pair for pair in by_rank if np.sign(pair.correlation_within) == sign]
        if own:
            named = [
                f"{_name(found, pair.first)} and {_name(found, pair.second)} "
                f"({writer.fixed(pair.correlation_within, f'correlation_within {pair.first} {pair.second}')})"
                for pair in own[:MAX_PAIRS]
            ]
            rest = len(own) - len(named)
            left = f"; {writer.count(rest, f'left out, {word}', 'more pair')} with a weaker correlation" if rest else ""
            writer.add("observations", f"Strongest {word} correlations within layers: {'; '.join(named)}{left}.")
    return f"{overlap} {rank}"


def _add_needed(writer: Writer, found: Agreement) -> None:
    """Which share of the heads that each study names the model needs, and whether their maps follow the causal column."""
    known = [one for one in found.needed if one.heads]
    if not known:
        return
    total = len(next(one.heads for one in found.sets if one.key == MORE))
    writer.add(
        "observations",
        f"Does the model need them? Of all {writer.count(found.heads, 'heads', 'head')}, "
        f"{writer.count(total, 'needed more')} are needed more than heads of their layer that write about as much (study "
        f"causal). Of the heads of each set: {'; '.join(_share(writer, found, one) for one in known)}.",
    )
    sure = [one for one in found.needed if one.correlation_q < ALPHA]
    named = [
        f"{_name(found, one.key)} {writer.fixed(one.correlation, f'causal correlation {one.key}')} "
        f"(q {writer.number(one.correlation_q, f'causal q {one.key}', digits=2)})"
        for one in sorted(sure or found.needed, key=lambda one: -abs(one.correlation))[:MAX_PAIRS]
    ]
    count = writer.count(len(found.needed), "causal maps", "map")
    verb = "correlates" if len(sure) == 1 else "correlate"
    first = f"Of {count}, {writer.count(len(sure), 'causal sure')} {verb} with the causal column within layers"
    after = ": " if sure else "; the strongest: "
    writer.add("observations", f"{first} (q < 0.05, over these maps){after}{listed(named)}.")


def _share(writer: Writer, found: Agreement, one: Any) -> str:
    share, low, high = (writer.percent(getattr(one, name), f"{name} {one.key}") for name in _SHARE)
    more, heads = writer.count(one.more, f"more {one.key}"), writer.count(one.heads, f"size {one.key}")
    against = UNTESTED
    if np.isfinite(one.p):
        expected, q = (
            writer.number(getattr(one, name), f"needed {name} {one.key}", digits=2) for name in ("expected", "q")
        )
        against = f"expected {expected}, q {q}"
    return f"{_name(found, one.key)} {more} of {heads} ({share}, {low} to {high}; {against})"


def _add_caveats(writer: Writer, found: Agreement) -> None:
    chance = writer.number(found.by_chance, "by_chance", digits=2)
    rank_chance = writer.number(found.correlation_by_chance, "correlation_by_chance", digits=2)
    writer.add(
        "caveats",
        f"If the heads of one map of each pair are permuted, {chance} pairs of sets and {rank_chance} pairs of maps are "
        "significant on average.",
    )
    if len(found.pairs) / (found.permutations + 1) >= ALPHA:
        writer.add("caveats", "There are too few permutations for a single pair to become significant; use more.")
    empty = [f"{one.label} ({one.study})" for one in found.sets if not one.heads]
    if empty:
        writer.add("caveats", f"No head is in {listed(empty)}, so that overlap cannot be tested.")
    if {"spectral", "probing"} <= {one.study for one in found.sets}:
        writer.add("caveats", "Spectral and probing use the same answers, so they are not independent.")
    writer.add(
        "caveats",
        "A set depends on its study's threshold; the correlation uses every head and no threshold. Correlated maps need not "
        "have a common cause.",
    )
    if found.left_out:
        writer.add("caveats", f"Left out: {'; '.join(found.left_out)}.")


def _name(found: Agreement, key: str) -> str:
    one = next(each for each in found.sets if each.key == key)
    return f"{one.label} ({one.study})"
