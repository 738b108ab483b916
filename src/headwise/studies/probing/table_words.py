"""The table of detectors in words: do probes find more than the question reveals, and more than scores that need none?"""

from __future__ import annotations

import math
from collections.abc import Iterator

from headwise.core.dims import DETECTOR
from headwise.describe.writer import Writer, listed
from headwise.stats.intervals import HALF_WIDTH
from headwise.stats.power import minimum_detectable_gain
from headwise.studies.probing.accessor import ProbingAccessor, with_ends

BEST_CELL, BEST_HEAD, LENGTH, P_TRUE = "Probe, best cell", "Probe, best head", "Length", "p(True)"
PUBLISHED_OVER_LOGPROB = (0.04, 0.10)  # Orgad et al., TriviaQA: probe at the exact answer minus log-probability
PROBES_AT = {
    "Probe, exact answer": "at the exact answer",
    "Probe, last token": "at the last token",
    "Probe, end of question": "at the end of the question",
}


def baselines(writer: Writer, probing: ProbingAccessor) -> str:
    """Probes, the best score without one, p(True) and length, each with its interval."""

    def row(name: str) -> str:
        return _row(writer, probing, name)

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


def beyond_question(writer: Writer, probing: ProbingAccessor) -> str:
    """In one sentence: does the probe find more than the question reveals?"""
    if not probing.has_within():
        return _no_strata(probing)
    within = with_ends(writer, probing.nested_within(), "within headline")
    length = probing.row(LENGTH, "table_within")
    if length is not None:
        within += f", where answer length alone has {writer.number(length[0], f'value within {LENGTH}')}"
    found = "the probe finds more" if probing.beats_question() else "it is not shown that the probe finds more"
    text = (
        f"Among questions that are alike in {probing.strata} the best cell has {within}: {found} than the question "
        "reveals"
    )
    gain, reference = probing.row(BEST_CELL, "table_gain"), probing.question_reference
    if gain is None or reference is None:
        return f"{text}."
    better = "better" if gain[1] > 0 else "worse" if gain[2] < 0 else "not shown to be better"
    return (
        f"{text}; as a detector of wrong answers it is {better} than the question alone "
        f"({reference.removeprefix('Question: ')}, {writer.number(probing.rows()[reference], f'value row {reference}')}), "
        f"with a difference of {with_ends(writer, gain, 'gain headline')}."
    )


def headline(writer: Writer, probing: ProbingAccessor) -> str:
    """The end of the headline: does the probe find more than the question reveals?"""
    if not probing.has_within():
        return "What the question alone reveals is not controlled for."
    within = writer.number(probing.nested_within()[0], "within headline")
    verdict = "more" if probing.beats_question() else "not shown to be more"
    return f"Among similar questions {within}: {verdict} than the question reveals."


def against(writer: Writer, probing: ProbingAccessor) -> Iterator[str]:
    """What the controls say against reading the map as knowledge of errors."""
    if not probing.has_within():
        yield "what the question alone reveals is not controlled for"
    else:
        within = with_ends(writer, probing.nested_within(), "within headline")
        verdict = (
            "more than the question alone reveals"
            if probing.beats_question()
            else "not shown to be more than the question alone reveals"
        )
        yield f"among similar questions the best cell has {within}: {verdict}"
    gain = probing.row(BEST_CELL, "table_gain")
    if gain is not None and gain[1] <= 0:
        difference = with_ends(writer, gain, "gain headline")
        yield f"the probe is not shown to predict errors better than the question alone ({difference})"
    over = probing.row(BEST_CELL, "table_over_logprob")
    if over is not None and over[1] <= 0:
        yield f"the probe is not shown to beat the log-probability ({with_ends(writer, over, f'over {BEST_CELL}')})"
    yield "that a probe decodes something does not show that the model uses it"


def power(writer: Writer, probing: ProbingAccessor) -> str:
    """What these answers could have shown."""
    values = probing.map()
    cells = int((values == values).sum())
    least = writer.number(probing.detectable(cells), f"detectable {probing.sites[0]}")
    return f"an AUROC under {least} at one cell would be missed by these answers"


def _no_strata(probing: ProbingAccessor) -> str:
    if "stratum" not in probing.dataset:
        return (
            "This Dataset was made by an older version, without a control for what the question alone reveals; run the same "
            "headwise build again with --redo probing."
        )
    return (
        "The questions could not be grouped by what they are about, so whether the probe finds more than the question reveals "
        "is not known."
    )


def question_alone(writer: Writer, probing: ProbingAccessor) -> str:
    """What the question alone predicts, and what the others add to the strongest of these rows."""
    reference = probing.question_reference
    if reference is None:
        return ""
    own = [f"{name.removeprefix('Question: ')} {_row(writer, probing, name)}" for name in probing.rows("question")]
    strongest = reference.removeprefix("Question: ")
    text = f"The question alone, with nothing of the model, has an AUROC of {listed(own)}."
    names = [BEST_CELL, BEST_HEAD, *PROBES_AT, str(probing.dataset.attrs.get("logprob_reference", ""))]
    gains = []
    for name in names:
        if (gain := probing.row(name, "table_gain")) is not None:
            gains.append(f"{_short(name)} {with_ends(writer, gain, f'gain {name}')}{_verdict(gain)}")
    if gains:
        text += f" Paired by answer, gains over the strongest of these ({strongest}) are: {'; '.join(gains)}."
    if (gain := probing.row(BEST_CELL, "table_gain")) is not None:
        least = minimum_detectable_gain((gain[2] - gain[1]) / (2 * HALF_WIDTH))
        text += (
            f" A gain of {writer.number(least, 'detectable gain', digits=2)} would be found in 80 % of such studies."
        )
    inside = [
        f"{_short(name)} {with_ends(writer, found, f'within {name}')}"
        for name in names
        if (found := probing.row(name, "table_within")) is not None
    ]
    if inside:
        text += (
            f" Within {probing.strata}, comparing only answers to similar questions, the AUROC is: {'; '.join(inside)}."
        )
    return text


def _short(name: str) -> str:
    return name[0].lower() + name[1:]


def _row(writer: Writer, probing: ProbingAccessor, name: str) -> str:
    found = probing.row(name)
    assert found is not None
    return with_ends(writer, found, f"row {name}")


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
    return (
        f"Paired by answer, a probe's AUROC minus that of {reference}, the strongest log-probability, is {'; '.join(parts)}."
        f"{_published(writer, probing)}"
    )


def _published(writer: Writer, probing: ProbingAccessor) -> str:
    """At the exact answer, next to what was published for larger models."""
    if (found := probing.row(next(iter(PROBES_AT)), "table_over_logprob")) is None:
        return ""
    least, most = (writer.number(gain, "constant") for gain in PUBLISHED_OVER_LOGPROB)
    verdict = "is also found here" if found[1] > 0 else "is not shown here, nor excluded"
    if found[2] < PUBLISHED_OVER_LOGPROB[0]:
        verdict = "does not replicate here"
    return f" Published for models of 7 and 8 billion parameters: {least} to {most}, which {verdict}."


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
