"""How long whole studies take next to a plain forward pass, on a GPU, with a model of Llama-3.1-8B's shape (random weights).

    python benchmarks/studies_gpu.py                                   512 answered questions: answers, spectral, probing
    python benchmarks/studies_gpu.py --studies profile,relations       any other studies
    python benchmarks/studies_gpu.py --layers 2 --questions 60         a quick look; works on a CPU, too

Shown: packaged questions, each with a packaged passage as its context and an answer that is given, correct or another
question's; about 530 tokens each. The plain forward pass runs the decoder, without logits, over the same texts in the same
process, in batches of at most 16,384 and 4,096 tokens, padding included.

Times of passes and of statistics are those between the events that every listener of a build gets. The GPU counts as busy
when `nvidia-smi` says so (sampled every 0.2 s). `--where` samples the stack of the main thread and prints where the
time goes: seconds by function of Headwise, the innermost on the stack, and of the function that it waits for.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from gpu import publish, random_model
from page import PAGE, made_by

import headwise as hw
from headwise.corpora import Questions, packaged_passages, packaged_questions
from headwise.engines import Listener
from headwise.seam import Structure
from headwise.studies.passes import batches
from headwise.studies.spectral.measure import SpectralReader, judged_answers

CONTEXT_WORDS = 300  # of a passage in front of a question: 531 tokens in all, on average
PLAIN_TOKENS = (16384, 4096)


def answered_questions(total: int) -> Questions:
    """Questions with contexts and given answers, every second one another question's."""
    passages = [item.text.split() for item in packaged_passages().items]
    items = packaged_questions().sample(total, seed=0).items
    rng = np.random.default_rng(0)
    found = []
    for number, item in enumerate(items):
        words, count = [], int(CONTEXT_WORDS * rng.uniform(0.6, 1.4))
        while len(words) < count:
            words += passages[rng.integers(len(passages))]
        context = " ".join(words[:count])
        answer = items[rng.integers(len(items))] if number % 2 else item
        found.append(replace(item, context=context, response=answer.answers[0]))
    return Questions("answered questions with contexts", tuple(found))


class Clock(Listener):
    """When each study's passes and statistics began and ended."""

    def __init__(self) -> None:
        self.seconds: dict[tuple[str, str], float] = collections.defaultdict(float)
        self._last, self._study = time.perf_counter(), ""

    def progress(self, study: str, done: int, total: int) -> None:
        """A shard is done."""
        self._spend(study, "passes" if done else "preparing")

    def concluding(self, study: str, what: str, done: int, total: int) -> None:
        """A step of the statistics is done."""
        self._spend(study, f"statistics: {what}")

    def ended(self, study: str) -> None:
        """All is stored."""
        self._spend(study, "statistics and storing")

    def _spend(self, study: str, what: str) -> None:
        now = time.perf_counter()
        self.seconds[study, what] += now - self._last
        self._last = now


@contextlib.contextmanager
def stacks(every: float = 0.02) -> Iterator[collections.Counter[str]]:
    """Seconds by the innermost function of Headwise on the main thread's stack, and of what it calls."""
    found: collections.Counter[str] = collections.Counter()
    main, stop = threading.main_thread().ident, threading.Event()

    def sample() -> None:
        while not stop.wait(every):
            frame = sys._current_frames().get(main or 0)
            stack = traceback.extract_stack(frame)
            own = [place for place, entry in enumerate(stack) if "headwise" in entry.filename]
            if own:
                one, last = stack[own[-1]], stack[-1]
                where = f"{Path(one.filename).parent.name}/{Path(one.filename).name}:{one.lineno} {one.name}"
                found[f"{where} > {last.name}"] += 1

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        stop.set()
        thread.join()
        for name in found:
            found[name] = found[name] * every  # type: ignore[assignment]


@contextlib.contextmanager
def busy() -> Iterator[list[float]]:
    """The GPU's utilisation in per cent, sampled; empty without `nvidia-smi`."""
    found: list[float] = []
    command = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "-lms", "200"]
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    except OSError:
        yield found
        return
    try:
        yield found
    finally:
        process.terminate()
        said, _ = process.communicate()
        found += [float(line) for line in said.split() if line.strip().isdigit()]


def plain(model: Any, answers: Any, tokens: int, repeats: int = 2) -> float:
    """Seconds of a forward pass of the decoder over all texts; the best of some."""
    structure = Structure(model)
    texts = SpectralReader(structure, judged_answers(answers), None, tokens).texts
    taken = []
    for _ in range(repeats):
        _wait()
        start = time.perf_counter()
        with torch.no_grad():
            for batch in batches(texts, tokens, structure.device):
                structure.decoder(input_ids=batch.ids, use_cache=False)
        _wait()
        taken.append(time.perf_counter() - start)
    return min(taken)


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def table(clock: Clock, together: float, plains: dict[int, float], gpu: list[float]) -> str:
    """Seconds by part, and their ratio to the plain forward pass."""
    base = plains.get(PLAIN_TOKENS[0]) if plains else None
    lines = ["| part | seconds | / plain |", "|---|---|---|"]
    lines += [
        f"| plain forward pass, batches of {tokens:,} tokens | {taken:.1f} | {taken / base:.2f} |"
        for tokens, taken in plains.items()
        if base
    ]
    ratio = "{:.2f}".format if base else lambda _: ""
    for (study, what), taken in clock.seconds.items():
        if taken >= 0.05:
            lines.append(f"| {study}: {what} | {taken:.1f} | {ratio(taken / base) if base else ''} |")
    lines.append(f"| **together** | **{together:.1f}** | **{f'{together / base:.2f}' if base else ''}** |")
    if gpu:
        lines.append(f"\nGPU busy {np.mean(gpu):.0f} % on average (median {median(gpu):.0f} %).")
    return "\n".join(lines)


def main() -> None:
    """Build, take times, print, and write the section."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", default="answers,spectral,probing", help="which; with commas")
    parser.add_argument("--questions", type=int, default=512)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--tokenizer", help="a folder with a tokenizer; the default model's where none is given")
    parser.add_argument("--set", action="append", default=[], metavar="STUDY.OPTION=VALUE", help="as `headwise build`")
    parser.add_argument("--where", action="store_true", help="also print in which functions the time goes")
    parser.add_argument("--section", default="studies-gpu", help="of the page; empty: none is written")
    parser.add_argument("--page", type=Path, default=PAGE, help="the page whose section is written")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(options.tokenizer) if options.tokenizer else hw.load().tokenizer
    model = hw.load(random_model(options.layers, device), tokenizer=tokenizer)
    questions, names = answered_questions(options.questions), options.studies.split(",")
    chosen = _options(options.set)
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder, contextlib.ExitStack() as stack:
        gpu = stack.enter_context(busy())
        found = stack.enter_context(stacks()) if options.where else collections.Counter()
        clock, start = Clock(), time.perf_counter()
        atlas = hw.build(
            model, names, questions=questions, limit=None, output=Path(folder, "atlas"), reference="none", progress=clock,
            options=chosen,
        )  # fmt: skip
        _wait()
        together = time.perf_counter() - start
        stack.close()
        plains = {}
        if "answers" in atlas:
            plain(model, atlas["answers"], PLAIN_TOKENS[0], 1)
            plains = {tokens: plain(model, atlas["answers"], tokens) for tokens in PLAIN_TOKENS}
    shown = [argument for argument in sys.argv[1:] if argument != "--where"]
    shown = ["--tokenizer FOLDER" if argument == options.tokenizer else argument for argument in shown]
    command = " ".join(["python benchmarks/studies_gpu.py", *(one for one in shown if one != "--tokenizer")])
    text = f"{table(clock, together, plains, gpu)}\n\n{made_by(command)}"
    if options.section:
        shape = f"the shape of Llama-3.1-8B ({options.layers} layers)"
        title = f"## Whole studies on a GPU: {shape}, {len(questions)} answered questions"
        publish(options.section, f"{title}\n\n{text}", options.page)
    else:
        print(text)
    for name, seconds in found.most_common(45):
        print(f"{seconds:7.1f} s  {name}")


def _options(settings: list[str]) -> dict[str, Any]:
    """As the command line reads them."""
    from headwise.cli.settings import study_options

    return study_options(settings) if settings else {}


if __name__ == "__main__":
    main()
