"""The probing study in words: at which layer and token can a probe detect that the answer is wrong?

Where the map peaks and dips, which tokens are most informative, the framed region, heads, leak, baselines. A map whose best
cell is no better than the best with permuted labels is described as such, without a peak. Every number is computed from the
Dataset and stored, with its source, in `Description.numbers`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import fmean

import numpy as np

from headwise.core.dims import HEAD, LAYER
from headwise.describe import maps
from headwise.describe.narrative import Narrative, reading
from headwise.describe.narrator import MIN_LAYERS
from headwise.describe.phrases import SMALL_SAMPLE, answers_of, ends_of, model_of
from headwise.describe.writer import Writer, listed, span
from headwise.stats.correlation import spearman
from headwise.stats.multiple_testing import ALPHA
from headwise.studies.probing import table_words
from headwise.studies.probing.accessor import BestCell, ProbingAccessor, with_ends

MIN_DIFFERENCE = 0.01  # of means over layers, to be mentioned
MIN_CELLS_FOR_CORRELATION = 10
N_TOKENS_NAMED = 3
SITE_NAMES = {
    "mlp_in": "the MLP's input",
    "mlp_out": "the MLP's output",
    "attention_out": "attention's output",
    "residual": "the residual stream",
}
BEST_HEAD = "Probe, best head"


def _cell(writer: Writer, cell: BestCell) -> str:
    """``layer 20 at exact_answer_last``, ``layer 3 at the last token``."""
    place = "the last token" if cell.token == "-1" else cell.token
    return f"layer {writer.number(cell.layer, 'edge')} at {place}"


# ---- overview and axes ----------------------------------------------------------------------------------------------


def _overview(writer: Writer, probing: ProbingAccessor) -> Iterator[str]:
    tokens = writer.count(len(probing.tokens), "tokens", "token")
    layers = writer.count(len(probing.layers), "layers", "layer")
    sites = listed(SITE_NAMES.get(site, site) for site in probing.sites)
    yield (
        f"At which layer and token {model_of(probing)} knows that its answer is wrong: a linear probe at each of {layers} "
        f"and {tokens}, on {sites}, fitted to separate {answers_of(writer, probing.counts)}."
    )
    if data := probing.data.get("name"):
        yield f"The questions come from the data '{data}'."
    excluded = {"refused": probing.counts.get("refused", 0)}
    if "has_exact" not in probing.dataset:  # version 1 left them out
        excluded["without an exact answer"] = probing.without_exact()
    parts = [f"{writer.count(count, f'left {what}')} {what}" for what, count in excluded.items() if count]
    if parts:
        yield f"Left out: {listed(parts)}."


def _axes(writer: Writer, probing: ProbingAccessor) -> Iterator[str]:
    half, one = writer.number(0.5, "constant"), writer.number(1, "constant")
    yield (
        f"Columns are tokens in the order of the text; negative numbers count from the end of the answer. Each "
        f"cell is the AUROC on held-out answers: {half} is chance, {one} is perfect."
    )
    ranges = []
    for site in probing.sites:
        low, middle, high = ends_of(writer, probing.map(site), f"auroc {site}")
        ranges.append(f"{SITE_NAMES.get(site, site)} {low} to {high}, median {middle}")
    low, middle, high = ends_of(writer, probing.map(variable="received"), "received")
    yield f"Ranges: {'; '.join(ranges)}; attention received {low} to {high}, median {middle}."


# ---- detail ---------------------------------------------------------------------------------------------------------


def _details(writer: Writer, probing: ProbingAccessor) -> Iterator[str]:
    """One entry per site; then heads."""
    for site in probing.sites:
        if site != probing.sites[0]:
            yield _in_short(writer, probing, site)
            continue
        best = with_ends(writer, probing.best_interval(site), f"best {site}")
        sentences = [
            f"Probes on {SITE_NAMES.get(site, site)}: the highest AUROC is {best}, in {_cell(writer, probing.best(site))}.",
            _chance(writer, probing, site),
        ]
        if probing.beats_chance(site):
            sentences += [
                "The maximum over many cells is biased upwards; selected on other folds than it is evaluated on, the best "
                f"cell has {with_ends(writer, probing.nested(site), f'nested {site}')}.",
                _tokens(writer, probing, site),
                _bands(writer, probing, site),
                _frame(writer, probing, site),
            ]
        yield " ".join(sentences)
        yield _within(writer, probing, site)
    yield _heads(writer, probing)


def _in_short(writer: Writer, probing: ProbingAccessor, site: str) -> str:
    """A site after the first: the same numbers, without the explanations."""
    values, high = probing.map(site), probing.per_site("best_high", site)
    p = writer.number(probing.per_site("best_p", site), f"best_p {site}", digits=2)
    text = (
        f"Probes on {SITE_NAMES.get(site, site)}: best {with_ends(writer, probing.best_interval(site), f'best {site}')}, in "
        f"{_cell(writer, probing.best(site))}; {writer.count(int((values > high).sum()), f'beyond {site}')} of "
        f"{writer.count(int(np.isfinite(values).sum()), f'cells {site}', 'cell')} over "
        f"{writer.number(high, f'best_high {site}')} (p = {p})"
    )
    if probing.beats_chance(site):
        text += f"; on other folds {with_ends(writer, probing.nested(site), f'nested {site}')}"
    if probing.has_within():
        within = int((probing.map(site, "within_q") < ALPHA).sum())
        text += (
            f"; within strata {with_ends(writer, probing.nested_within(site), f'nested_within {site}')}, q < "
            f"{writer.number(ALPHA, 'constant')} in {writer.count(within, f'within found {site}', 'cell')}"
        )
    rest = [_tokens(writer, probing, site), _bands(writer, probing, site)] if probing.beats_chance(site) else []
    return " ".join([f"{text}.", *filter(None, rest)])


def _chance(writer: Writer, probing: ProbingAccessor, site: str) -> str:
    best_high, values = probing.per_site("best_high", site), probing.map(site)
    high = writer.number(best_high, f"best_high {site}")
    p = writer.number(probing.per_site("best_p", site), f"best_p {site}", digits=2)
    null = f"With permuted labels the best cell of a map stays below {high} in 95 % of permutations (p = {p})"
    cells = int(np.isfinite(values).sum())
    least = writer.number(probing.detectable(cells), f"detectable {site}")
    power = (
        f"After correction for the number of cells, an AUROC of {least} at one cell is found in 80 % of such studies"
    )
    if not probing.beats_chance(site):
        return f"{null}: this map is consistent with chance, and no cell is a finding. {power}."
    count = writer.count(int((values > best_high).sum()), f"beyond {site}")
    return f"{null}; {count} of {writer.count(cells, f'cells {site}', 'cell')} exceed that. {power}."


def _within(writer: Writer, probing: ProbingAccessor, site: str) -> str:
    """The same map, comparing only answers to questions that are alike."""
    if not probing.has_within():
        return table_words.beyond_question(writer, probing) if site == probing.sites[0] else ""
    q, values = probing.map(site, "within_q"), probing.map(site, "within")
    count, total = int((q < ALPHA).sum()), int(np.isfinite(values).sum())
    layer, token = np.unravel_index(int(np.nanargmax(values)), values.shape)
    best = BestCell(int(layer), probing.tokens[int(token)], float(values[layer, token]))
    least = writer.number(probing.detectable(total, within=True), f"detectable within {site}")
    return (
        f"Within strata ({probing.strata}), probes on {SITE_NAMES.get(site, site)} have q < "
        f"{writer.number(ALPHA, 'constant')} in {writer.count(count, f'within found {site}')} of "
        f"{writer.count(total, f'within cells {site}', 'cell')}; the highest AUROC is "
        f"{writer.number(best.value, f'within best {site}')}, in {_cell(writer, best)} (p = "
        f"{writer.number(probing.per_site('within_best_p', site), f'within_best_p {site}', digits=2)} among maps with labels "
        f"permuted within strata); selected on other strata than it is evaluated on, the best cell has "
        f"{with_ends(writer, probing.nested_within(site), f'nested_within {site}')}. Here an AUROC of {least} at one cell is "
        "found in 80 % of such studies."
    )


def _tokens(writer: Writer, probing: ProbingAccessor, site: str) -> str:
    means = probing.token_means(site)
    order = sorted(means, key=lambda token: -means[token])
    named = [
        f"{token} ({writer.number(means[token], f'column {site} {token}')})"
        for token in (*order[:N_TOKENS_NAMED], order[-1])
    ]
    return f"By mean over layers the most informative tokens are {listed(named[:-1])}; the least is {named[-1]}."


def _bands(writer: Writer, probing: ProbingAccessor, site: str) -> str:
    """By layer bands: the mean over all tokens in each third, and the layers within `MIN_DIFFERENCE` of the best."""
    values = probing.map(site)
    if len(probing.layers) < MIN_LAYERS or not np.isfinite(values).any(axis=1).all():
        return ""
    means = np.nanmean(values, axis=1)
    parts = [
        writer.number(float(np.nanmean(part)), f"band {index} {site}")
        for index, part in enumerate(np.array_split(values, 3))
    ]
    best = int(means.argmax())
    near = means >= means[best] - MIN_DIFFERENCE
    first = best - int(np.argmin(near[best::-1])) + 1 if not near[: best + 1].all() else 0
    last = best + int(np.argmin(near[best:])) - 1 if not near[best:].all() else len(near) - 1
    for edge in (first, last):
        writer.number(edge, "edge")
    return (
        f"By layers, over all tokens: {parts[0]} in the early, {parts[1]} in the middle and {parts[2]} in the late third; best "
        f"band {span('layer', first, last)} (up to {writer.number(float(means[best]), f'row {site} {best}')})."
    )


def _frame(writer: Writer, probing: ProbingAccessor, site: str) -> str:
    first, last = (
        int(probing.per_site(name, site)) if name in probing.dataset else -1 for name in ("frame_first", "frame_last")
    )
    if first < 0:
        return "Nothing at the exact answer is beyond chance, so nothing is framed."
    values = probing.map(site)
    columns = [index for index, token in enumerate(probing.tokens) if token.startswith("exact_answer")]
    inside = np.zeros(values.shape, dtype=bool)
    inside[first : last + 1, columns[0] : columns[-1] + 1] = True
    framed, others = (float(np.nanmean(part)) for part in (values[inside], values[~inside]))
    for edge in (first, last):
        writer.number(edge, "edge")
    return (
        f"The framed region, the exact answer in {span('layer', first, last)}, has a mean AUROC of "
        f"{writer.number(framed, f'framed {site}')}, all other cells {writer.number(others, f'unframed {site}')}."
    )


def _heads(writer: Writer, probing: ProbingAccessor) -> str:
    q = probing.dataset["head_q"].values
    count, total = int((q < ALPHA).sum()), int(np.isfinite(q).sum())
    if not total:
        return ""
    text = (
        f"Probes on each head's output at the exact answer: {writer.count(count, 'heads found')} of "
        f"{writer.count(total, 'heads measured', 'head')} {'has' if count == 1 else 'have'} q < "
        f"{writer.number(ALPHA, 'constant')} against permuted labels"
    )
    if "head_within_q" in probing.dataset:
        inside = int((probing.dataset["head_within_q"].values < ALPHA).sum())
        text += f", {writer.count(inside, 'heads within')} within strata"
    if not count:
        return f"{text}."
    values = probing.dataset["head_auroc"].transpose(LAYER, HEAD).astype(float)
    names = [f"{head.name} ({writer.number(head.value, f'head {head.name}')})" for head in maps.strongest(values, 3)]
    text = f"{text}; the highest AUROCs are {listed(names)}."
    if (row := probing.row(BEST_HEAD)) is None:
        return text
    best = with_ends(writer, row, "row head")
    return f"{text} The best head, selected on other folds than it is evaluated on, has {best}."


# ---- observations ---------------------------------------------------------------------------------------------------


def _observations(writer: Writer, probing: ProbingAccessor) -> Iterator[str]:
    table = (table_words.question_alone, table_words.baselines, table_words.over_logprob, table_words.exact_only)
    for sentence in (*table, _along_text, _depth, _attended, _leak, _paper, _transfer):
        yield sentence(writer, probing)


def _along_text(writer: Writer, probing: ProbingAccessor) -> str:
    """End of the question, beginning of the answer, exact answer, end."""
    means = probing.token_means()
    stops = [token for token in ("last_q", "second_answer", "exact_answer_last", "-1") if token in means]
    if len(stops) < 4 or not probing.beats_chance():
        return ""
    parts = [f"{writer.number(means[token], f'column {probing.sites[0]} {token}')} at {token}" for token in stops]
    shape = ""
    first, dip, exact, end = (means[token] for token in stops)
    if dip < min(first, exact) - MIN_DIFFERENCE:
        shape = " It dips after the question and rises at the exact answer"
        shape += ", then falls again." if end < exact - MIN_DIFFERENCE else ", and remains high."
    return f"Along the text the mean AUROC over layers is {listed(parts)}.{shape}"


def _depth(writer: Writer, probing: ProbingAccessor) -> str:
    best = probing.best().token
    column = probing.map()[:, probing.tokens.index(best)]
    if len(probing.layers) < MIN_LAYERS or not np.isfinite(column).all() or not probing.beats_chance():
        return ""
    parts = [
        writer.number(float(part.mean()), f"third {index} {best}")
        for index, part in enumerate(np.array_split(column, 3))
    ]
    return (
        f"At {best} the mean AUROC is {parts[0]} in the early, {parts[1]} in the middle and {parts[2]} in the late third "
        "of the layers."
    )


def _attended(writer: Writer, probing: ProbingAccessor) -> str:
    received, values = probing.map(variable="received").ravel(), probing.map().ravel()
    both_known = np.isfinite(received) & np.isfinite(values)
    rho = (
        spearman(received[both_known], values[both_known])
        if both_known.sum() >= MIN_CELLS_FOR_CORRELATION
        else math.nan
    )
    if not math.isfinite(rho):
        return ""
    what = "hardly related" if abs(rho) < 0.2 else "positively related" if rho > 0 else "negatively related"
    return f"Attention received and AUROC are {what}: their rank correlation over the cells is {writer.fixed(rho, 'attended')}."


def _leak(writer: Writer, probing: ProbingAccessor) -> str:
    found = probing.leak.get("exact_answer_last")
    if not found:
        return ""
    differ = probing.counts.get("spans_differ")
    rows = f" ({writer.count(differ, 'count spans_differ', 'span')} differ)" if differ is not None else ""
    unclear = "" if found["low"] > 0 or found["high"] < 0 else ", not a clear difference"
    paired = with_ends(writer, (found["at_layer"], found["low"], found["high"]), "leak")
    return (
        f"With the published spans, which use the label, instead of label-blind ones{rows}, the mean AUROC over layers at "
        f"exact_answer_last changes from {writer.number(found['blind'], 'leak blind')} to "
        f"{writer.number(found['published'], 'leak published')}; at layer {writer.number(found['layer'], 'edge')} the "
        f"difference is {paired}{unclear}."
    )


def _paper(writer: Writer, probing: ProbingAccessor) -> str:
    values = probing.map(variable="paper") if "paper" in probing.dataset else np.array(math.nan)
    if not (values > 0).any():
        return ""
    best = writer.number(float(np.nanmax(values)), "paper best")
    return (
        f"The paper's protocol (no scaling, one split, published spans) would report a best cell of {best}, against "
        f"{writer.number(probing.best().value, f'value best {probing.sites[0]}')} here."
    )


def _transfer(writer: Writer, probing: ProbingAccessor) -> str:
    raw, gain = probing.transfer("transfer"), probing.transfer("transfer_gain")
    if raw is None or gain is None:
        return ""
    inside, across, others = (writer.number(fmean(values), f"transfer {what}") for what, values in raw.items())
    return (
        f"Across topics, a probe at the exact answer has a mean AUROC of {inside} inside a group of topics, {across} when "
        f"fitted on one group and tested on another, {others} when fitted on all others; across groups, the mean difference "
        f"from the AUROC of the log-probability is {writer.number(fmean(gain['across']), 'gain across')}."
    )


# ---- caveats and short form -----------------------------------------------------------------------------------------


def _caveats(writer: Writer, probing: ProbingAccessor) -> Iterator[str]:
    rarer = min(probing.counts.get(kind, SMALL_SAMPLE) for kind in ("wrong", "correct"))
    if rarer < SMALL_SAMPLE:
        yield f"The rarer class has only {writer.count(rarer, 'rarer', 'answer')}, so intervals are wide."
    _, low, high = probing.best_interval()
    yield (
        f"The interval of the best cell is {writer.number(high - low, 'width best', digits=2)} wide, and neighbouring cells "
        "are similar: smaller differences between cells should not be interpreted. The map's maximum is optimistic."
    )
    in_prompt = probing.dataset["in_prompt"].values.astype(int)
    if in_prompt.any():
        worst = int(in_prompt.argmax())
        token, total = probing.tokens[worst], sum(probing.counts.get(kind, 0) for kind in ("wrong", "correct"))
        yield (
            f"In answers of fewer than eight tokens, the first of the last eight are in the prompt: at {token} in "
            f"{writer.count(int(in_prompt[worst]), f'in_prompt {token}')} of {writer.count(total, 'rows')} answers."
        )
    if cut := probing.counts.get("cut", 0):
        answers = writer.count(cut, "count cut", "answer")
        yield f"{answers} {'was' if cut == 1 else 'were'} truncated at the token limit."
    if probing.dataset.attrs.get("spans") == "blind":
        yield "Exact answers were found by rule, without the label; some spans are wrong."
    else:
        yield "Exact answers were found with the label: part of what probes detect may be that."
    if not probing.parameters.get("judge"):
        yield "Answers were labelled by comparing strings, so some labels are wrong."


def _anomalies(writer: Writer, probing: ProbingAccessor) -> Iterator[str]:
    """Cells that the levels of their layer and of their token do not explain."""
    for site in probing.sites:
        values = probing.map(site)
        known = np.isfinite(values).any(axis=1)
        if values.size < MIN_CELLS_FOR_CORRELATION or not known.any():
            continue
        expected = additive(values)
        apart = values - expected
        scale = maps.ROBUST * float(np.nanmedian(abs(apart)))
        far = np.argwhere(np.nan_to_num(abs(apart)) > maps.FAR * scale) if scale > 0 else np.empty((0, 2), dtype=int)
        rule = ""
        if site == probing.sites[0]:
            limit = writer.number(maps.FAR, "constant")
            rule = (
                f"Rule: a cell is an anomaly if it is more than {limit} robust standard deviations from what the medians of "
                "its layer and of its token add up to. "
            )
        name = SITE_NAMES.get(site, site)
        if not len(far):
            yield f"{rule}None in the map of {name}."
            continue
        order = sorted(far.tolist(), key=lambda cell: -abs(apart[cell[0], cell[1]]))
        parts = []
        for layer, token in order[:N_TOKENS_NAMED]:
            cell = BestCell(layer, probing.tokens[token], float(values[layer, token]))
            value = writer.number(cell.value, f"cell {site} {layer} {cell.token}")
            around = writer.number(float(expected[layer, token]), f"expected {site} {layer} {cell.token}")
            parts.append(f"{_cell(writer, cell)} ({value}, expected {around})")
        yield f"{rule}In the map of {name} {writer.count(len(far), f'anomalies {site}', 'cell')}: most {listed(parts)}."
    if probing.beats_chance() and not probing.best().token.startswith("exact_answer"):
        yield f"The best cell is not at the exact answer, as published, but at {probing.best().token}."


def additive(values: np.ndarray) -> np.ndarray:
    """(layer, token): the median of the layer plus that of the token, minus that of all."""
    return (
        np.nanmedian(values, axis=1, keepdims=True) + np.nanmedian(values, axis=0, keepdims=True) - np.nanmedian(values)
    )


def _interpretation(writer: Writer, probing: ProbingAccessor) -> Iterator[str]:
    """Is the error written down at the answer, or does the probe see what kind of question it is?"""
    decide = (
        "several answers to the same question, some wrong (study samples); probes fitted on other data (study transfer)"
    )
    if not probing.beats_chance():
        yield from reading(
            "no linear probe here separates wrong from correct answers",
            [table_words.power(writer, probing)],
            decide,
        )
        return
    best, means = probing.best(), probing.token_means()
    value = writer.number(best.value, "value best headline")
    exact = [means[token] for token in means if token.startswith("exact_answer")]
    rest = [means[token] for token in means if not token.startswith("exact_answer")]
    where = "the model's state at its answer tells that the answer is wrong"
    if not best.token.startswith("exact_answer") or not exact or fmean(exact) < fmean(rest) + MIN_DIFFERENCE:
        where = "the model's state tells over the whole text, not only at the answer, that the answer is wrong"
    yield from reading(
        f"{where} (best cell {value} in {_cell(writer, best)})", table_words.against(writer, probing), decide
    )


def _headline(writer: Writer, probing: ProbingAccessor) -> str:
    site = SITE_NAMES.get(probing.sites[0], probing.sites[0])
    first = f"Probes for errors of {model_of(probing)} on {site}"
    best = probing.best()
    value = writer.number(best.value, "value best headline")
    if not probing.beats_chance():
        return f"{first}: no cell differs from chance; the highest AUROC is {value}."
    nested = writer.number(probing.nested()[0], "nested headline")
    return f"{first} peak in {_cell(writer, best)} (AUROC {value}; {nested} held out). {table_words.headline(writer, probing)}"


describe = Narrative(
    "Where a probe detects wrong answers",
    ProbingAccessor,
    (_overview, _axes, _details, _observations, _caveats),
    _headline,
    anomalies=_anomalies,
    interpretation=_interpretation,
)
