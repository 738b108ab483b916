"""The detection benchmark: every score of wrong answers, on several question sets, with one command.

    headwise bench detection MODEL --sets triviaqa,sciq,gsm8k -o bench      (hw.bench_detection)

Below the folder, every set gets an atlas of its own with the studies `answers` and `uncertainty`, built as `headwise build`
builds any atlas: what is there already is left as it is, and a killed run resumes where it was. Then the sets are pooled
(`analysis.detection_benchmark`) and written as a page, a CSV file and a LaTeX table.

    bench/triviaqa, bench/sciq, ...      the atlases, to be opened by any other verb
    bench/report.html, results.csv, results.tex
    bench/memory.json                    the peak of answering alone, and of everything

A set of which the model gets too few questions wrong, or too few right, is answered but not scored: it is named with the
reason, and the others go on. Memory is the peak of the run that measured a set, weights included: the largest resident set of
this process, or what was allocated on a GPU; workers of a cluster are not seen.

Cost: that of `uncertainty` for every set.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from headwise.analysis import DetectionBenchmark, pooled_benchmark
from headwise.atlas import Atlas
from headwise.atlas.head_table import harmless_csv
from headwise.core.errors import DataError
from headwise.core.files import make_folder, write_output
from headwise.core.memory import peak_memory, restart_peak
from headwise.core.parsing import parse
from headwise.corpora import Questions, find_questions
from headwise.engines import Engine, Listener
from headwise.model import Model, load
from headwise.stats.validation import MIN_PER_CLASS
from headwise.studies import build
from headwise.web.benchmark_report import write as write_report

DEFAULT_SETS = ("triviaqa", "nq_open", "sciq", "gsm8k", "coqa")
DEFAULT_LIMIT = 2000
PACKAGED = "packaged"
STUDY = "uncertainty"
MEMORY = "memory.json"


def bench_detection(
    model: Any = None,
    sets: Sequence[str] = DEFAULT_SETS,
    *,
    limit: int | None = DEFAULT_LIMIT,
    output: str | Path = "bench",
    options: Mapping[str, Any] | None = None,
    redo: Sequence[str] = (),
    progress: Any = None,
    loading: Mapping[str, Any] | None = None,
    engine: str | Engine = "local",
) -> DetectionBenchmark:
    """Every published score of wrong answers, on several question sets.

    Args:
        model: what `load` takes or gave; None is the default model.
        sets: names of known sets, ``"NAME=FOLDER"`` for their rows in local files, files of questions, or ``"packaged"``.
        limit: at most so many questions per set; None: all.
        output: the folder of the atlases and of the results.
        options: of the studies answers and uncertainty, by name, as for `build`.
        redo: studies to measure again.
        progress: as for `build`.
        loading: what `load` takes in addition to the model.
        engine: as for `build`.

    Returns:
        The table, per set and pooled; also written below ``output``.

    Examples:
        >>> hw.bench_detection(model, ["no-such-set"], output=folder / "bench")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        headwise.core.errors.DataError: there is no file 'no-such-set' and no question set of that name. Known: coqa, gsm8k, ...
    """
    questions = question_sets(sets)
    folder = make_folder(output)
    loaded = model if isinstance(model, Model) or engine != "local" else load(model, **(loading or {}))
    memory = _Memory(folder / MEMORY, loaded.device if isinstance(loaded, Model) else None)
    done: dict[str, Atlas] = {}
    undecided: dict[str, str] = {}
    for name, every in questions.items():
        named = _Named(progress, name) if isinstance(progress, Listener) else progress
        given: dict[str, Any] = {
            "questions": every, "limit": limit, "output": folder / name, "options": dict(options or {}), "redo": redo,
            "progress": named, "loading": loading, "engine": engine,
        }  # fmt: skip
        answered = folder / name / "zarr.json"
        with memory.of(name, "answers", unless=answered.exists()):
            atlas = build(loaded, ["answers"], **given | {"redo": [one for one in redo if one == "answers"]})
        reason = undecidable(atlas)
        if reason:
            undecided[name] = reason
            continue
        with memory.of(name, STUDY, unless=STUDY in atlas):
            done[name] = build(loaded, [STUDY], **given | {"redo": [one for one in redo if one != "answers"]})
    found = pooled_benchmark({name: atlas[STUDY] for name, atlas in done.items()}, undecided)
    write_results(found, folder, memory.known)
    return found


def question_sets(sets: Sequence[str]) -> dict[str, Questions]:
    """The questions by the name of their set, which is also the name of its atlas."""
    if not sets:
        raise DataError("A benchmark needs at least one question set; name some, as in --sets triviaqa,sciq.")
    found: dict[str, Questions] = {}
    for given in sets:
        questions = find_questions(None if given == PACKAGED else given)
        name = PACKAGED if given == PACKAGED else Path(questions.name).stem
        if name in found:
            raise DataError(f"Two question sets would be called {name!r}; give one of them another file name.")
        found[name] = questions
    return found


def undecidable(atlas: Atlas) -> str:
    """Why the answers of a set cannot be scored; empty where they can."""
    labels = atlas["answers"]["label"].values.astype(str)
    wrong, right = (int(np.sum(labels == label)) for label in ("wrong", "correct"))
    if min(wrong, right) >= MIN_PER_CLASS:
        return ""
    return f"it has {wrong} wrong and {right} correct answers, and at least {MIN_PER_CLASS} of each are needed"


def write_results(
    found: DetectionBenchmark, folder: Path, memory: Mapping[str, Mapping[str, int]] | None = None
) -> list[Path]:
    """The page, the CSV file and the LaTeX table."""
    return [
        write_report(found, folder / "report.html", memory=memory),
        write_output(folder / "results.csv", str(harmless_csv(found.long_frame()).to_csv(index=False))),
        write_output(folder / "results.tex", found.latex()),
    ]


class _Memory:
    """Peaks by set and study, kept from one run to the next."""

    def __init__(self, path: Path, device: torch.device | None) -> None:
        self._path, self._device = path, device
        self.known: dict[str, dict[str, int]] = {}
        with suppress(OSError, ValueError):  # only a note
            self.known = parse(path.read_text(encoding="utf-8"), dict[str, dict[str, int]])

    @contextmanager
    def of(self, name: str, study: str, *, unless: bool) -> Iterator[None]:
        """The peak inside the block, unless there is nothing to measure."""
        if unless or self._device is None:
            yield
            return
        cuda = self._device.type == "cuda"
        if cuda:
            torch.cuda.reset_peak_memory_stats(self._device)
        restart_peak()
        yield
        peak = torch.cuda.max_memory_allocated(self._device) if cuda else peak_memory()
        self.known.setdefault(name, {})[study] = int(peak)
        write_output(self._path, json.dumps(self.known, indent=1) + "\n")


class _Named(Listener):
    """Reports the studies of a set under its name."""

    def __init__(self, listener: Listener, name: str) -> None:
        self._listener, self._name = listener, name

    def progress(self, study: str, done: int, total: int) -> None:
        self._listener.progress(f"{self._name}, {study}", done, total)

    def concluding(self, study: str, what: str, done: int, total: int) -> None:
        self._listener.concluding(f"{self._name}, {study}", what, done, total)

    def workers(self, study: str, doing: Mapping[str, str]) -> None:
        self._listener.workers(f"{self._name}, {study}", doing)

    def event(self, sentence: str) -> None:
        self._listener.event(sentence)

    def ended(self, study: str) -> None:
        self._listener.ended(f"{self._name}, {study}")
