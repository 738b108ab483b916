"""The transfer study in words: what carries over from one question set to another, next to what the question alone gives.

Every number is computed from the Dataset and stored, with its source, in `Description.numbers`. "Carries over" means that the
interval of a cell off the diagonal lies above 0.5.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import xarray as xr

from headwise.core.dims import DETECTOR, EXAMPLE, OTHERS, TESTED_ON, TRAINED_ON
from headwise.describe.narrative import Narrative
from headwise.describe.phrases import model_in, with_interval
from headwise.describe.writer import Writer, listed
from headwise.figures.provenance import provenance_of
from headwise.stats.auroc import CHANCE


def _overview(writer: Writer, dataset: xr.Dataset) -> Iterator[str]:
    sets = [
        f"{name} ({writer.percent(float(share), f'accuracy {name}')} correct; {writer.count(int(wrong), f'n_wrong {name}')} "
        f"wrong and {writer.count(int(right), f'n_right {name}')} correct answers)"
        for name, share, wrong, right in zip(
            _sets(dataset),
            dataset["accuracy"].values,
            dataset["n_wrong"].values,
            dataset["n_right"].values,
            strict=True,
        )
    ]
    questions = writer.count(dataset.sizes[EXAMPLE], "questions", "question")
    yield f"{model_in(dataset)} was asked {questions} of {writer.count(len(sets), 'sets', 'set')}: {listed(sets)}."
    yield (
        "Detectors of wrong answers were fitted on each set and tested on every other; on their own set they were "
        "cross-validated."
    )


def _axes(writer: Writer, dataset: xr.Dataset) -> Iterator[str]:
    k = writer.count(int(dataset.attrs["k"]), "k")
    yield (
        "One matrix per detector. Rows: the set it was fitted on, last all sets but the tested one; columns: the set it is "
        "tested on; framed on the diagonal: the same set. The number is the AUROC of wrong against correct answers, 0.5 is "
        f"chance. Detectors of eigenvalues use the {k} largest of every head."
    )


def _details(writer: Writer, dataset: xr.Dataset) -> Iterator[str]:
    for name in _names(dataset):
        yield _detector(writer, dataset, name)
    for name in _names(dataset, "score"):
        yield _score(writer, dataset, name)


def _detector(writer: Writer, dataset: xr.Dataset, name: str) -> str:
    own, across = _cells(dataset, name, same=True), _cells(dataset, name, same=False)
    inside, elsewhere = _range(writer, own, f"inside {name}"), _range(writer, across, f"across {name}")
    text = f"{name}: inside a set {inside}, on another set {elsewhere}"
    above = sum(low > CHANCE for _, _, low, _ in across)
    cells = writer.count(len(across), f"cells {name}")
    text += f"; above chance in {writer.count(above, f'above {name}')} of {cells} cells off the diagonal"
    others = [
        f"{one} {_ranged(writer, dataset.sel({DETECTOR: name, TRAINED_ON: OTHERS, TESTED_ON: one}), f'others {name} {one}')}"
        for one in _sets(dataset)
        if np.isfinite(dataset["auroc"].sel({DETECTOR: name, TRAINED_ON: OTHERS, TESTED_ON: one}))
    ]
    if len(_sets(dataset)) > 2 and others:
        text += f"; fitted on all other sets: {listed(others)}"
    return text + "."


def _score(writer: Writer, dataset: xr.Dataset, name: str) -> str:
    first = dataset.sel({DETECTOR: name}).isel({TRAINED_ON: 0})
    parts = [
        f"{one} {_ranged(writer, first.sel({TESTED_ON: one}), f'score {name} {one}')}"
        for one in _sets(dataset)
        if np.isfinite(first["auroc"].sel({TESTED_ON: one}))
    ]
    return f"{name}, not fitted: {listed(parts)}."


def _observations(writer: Writer, dataset: xr.Dataset) -> Iterator[str]:
    best, question = _best(dataset, "heads"), _best(dataset, "question")
    if best and question:
        both = [
            (cell[0], cell[1], other[1], cell[2] > other[3])
            for cell, other in zip(
                _cells(dataset, best, same=False), _cells(dataset, question, same=False), strict=True
            )
        ]
        clear, pairs = writer.count(sum(one[3] for one in both), "clear"), writer.count(len(both), "pairs", "cell")
        yield (
            f"Of the detectors of heads {best} carries over best, and its interval lies wholly above that of "
            f"{_alone(question)} in {clear} of {pairs} off the diagonal."
        )
        lost = _mean(_cells(dataset, best, same=True)) - _mean(_cells(dataset, best, same=False))
        yield (
            f"On another set {best} has {writer.fixed(abs(lost), f'lost {best}')} {'less' if lost >= 0 else 'more'} AUROC than "
            "inside the set it is tested on, on average."
        )
    log_probability = _best(dataset, "score")
    if best and log_probability:
        values = [value for _, value, *_ in _cells(dataset, log_probability, same=True)]
        yield f"{log_probability} needs no fitting and reaches {_span(writer, values, f'reached {log_probability}')}."


def _caveats(writer: Writer, dataset: xr.Dataset) -> Iterator[str]:
    few = [str(one) for one in _sets(dataset) if not np.isfinite(dataset["auroc"].sel({TESTED_ON: one})).any()]
    if few:
        yield f"{listed(few)} has too few wrong or correct answers to be fitted or tested on."
    yield (
        "Sets differ in length and form of the answers, in difficulty and in what is asked; a detector that carries over may "
        "read any of what they share. Two sets that happen to agree show it in both directions, so cells are not "
        "independent. k and the layer of the hidden state were fixed beforehand."
    )
    if not provenance_of(dataset).get("parameters", {}).get("judge"):
        yield "Answers were labelled by comparing strings, so some labels are wrong."


def _headline(writer: Writer, dataset: xr.Dataset) -> str:
    best, question = _best(dataset, "heads"), _best(dataset, "question")
    if not best:
        return f"No detector of {model_in(dataset)} could be tested on another set."
    across = _cells(dataset, best, same=False)
    text = (
        f"Fitted on one question set and tested on another, the best detector of {model_in(dataset)}'s heads ({best}) has an "
        f"AUROC of {_span(writer, [value for _, value, *_ in across], f'across {best}')}, above chance in "
        f"{writer.count(sum(low > CHANCE for _, _, low, _ in across), f'above {best}')} of "
        f"{writer.count(len(across), f'cells {best}')} cases"
    )
    if question:
        values = [value for _, value, *_ in _cells(dataset, question, same=False)]
        text += f"; {_alone(question)} has {_span(writer, values, f'across {question}')}"
    return text + "."


# ---- cells ----------------------------------------------------------------------------------------------------------

Cell = tuple[str, float, float, float]  # "fitted on > tested on", AUROC, and the ends of its interval


def _cells(dataset: xr.Dataset, name: str, *, same: bool) -> list[Cell]:
    """The measured cells on the diagonal, or off it; without the row of all other sets."""
    one, sets = dataset.sel({DETECTOR: name}), _sets(dataset)
    found = []
    for row in sets:
        for column in sets:
            cell = one.sel({TRAINED_ON: row, TESTED_ON: column})
            if (row == column) == same and np.isfinite(cell["auroc"]):
                ends = (float(cell[part]) for part in ("auroc", "auroc_low", "auroc_high"))
                found.append((f"{row} > {column}", *ends))
    return found  # type: ignore[return-value]


def _best(dataset: xr.Dataset, kind: str) -> str:
    """The detector of this kind with the highest mean AUROC off the diagonal; empty where there is none."""
    known = {name: _mean(cells) for name in _names(dataset, kind) if (cells := _cells(dataset, name, same=False))}
    return max(known, key=lambda name: known[name]) if known else ""


def _alone(name: str) -> str:
    """A question-only detector in words.

    >>> _alone("Question: words")
    'the question alone (words)'
    """
    return f"the question alone ({name.partition(': ')[2] or name})"


def _mean(cells: list[Cell]) -> float:
    return float(np.mean([value for _, value, *_ in cells]))


def _range(writer: Writer, cells: list[Cell], source: str) -> str:
    return f"AUROC {_span(writer, [value for _, value, *_ in cells], source)}" if cells else "not measured"


def _span(writer: Writer, values: list[float], source: str) -> str:
    """``0.61 to 0.74``, or one number."""
    low, high = writer.fixed(min(values), f"{source} lowest"), writer.fixed(max(values), f"{source} highest")
    return low if low == high else f"{low} to {high}"


def _ranged(writer: Writer, one: xr.Dataset, source: str) -> str:
    return with_interval(writer, one.__getitem__, "auroc", source)


def _sets(dataset: xr.Dataset) -> list[str]:
    return [str(name) for name in dataset[TESTED_ON].values]


def _names(dataset: xr.Dataset, *kinds: str) -> list[str]:
    wanted = kinds or ("heads", "question")
    return [
        str(name) for name, kind in zip(dataset[DETECTOR].values, dataset["kind"].values, strict=True) if kind in wanted
    ]


describe = Narrative(
    "Detectors on other question sets",
    lambda dataset: dataset,
    (_overview, _axes, _details, _observations, _caveats),
    _headline,
)
