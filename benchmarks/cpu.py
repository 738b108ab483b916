"""What observing costs on a CPU: ratios to a plain SDPA forward, in one run. Writes the table into docs/benchmarks.md.

    make bench            (or: python benchmarks/cpu.py --rounds 7 --shapes 4x1024,4x256)

Times: all cases run in one process, in turn, round after round; a case's ratio is the median over rounds of its time
over the plain forward's time in the same round, so that a machine that slows down slows all of them. Memory: each case
in a process of its own, largest resident set, with the weights in it.

The plain forward is the model's ordinary SDPA call with its logits. `eager` is what the usual scripts do:
`attn_implementation="eager"`, `output_attentions=True`, column sums and diagonal from the maps.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
from page import made_by, write_section

import headwise as hw
from headwise.corpora import delimiter_ids
from headwise.instruments import AnswerSpectrum
from headwise.seam import Structure

CASES = {
    "plain": "plain SDPA forward",
    "spectrum": "observed: Spectrum",
    "profile": "observed: Profile",
    "both": "observed: Spectrum + Profile",
    "answers": "the spectral study's pass (AnswerSpectrum, hidden states; it needs no logits)",
    "eager": "eager, `output_attentions`, column sums and diagonal by hand",
}


def cases(batch: int, tokens: int) -> dict[str, Callable[[], None]]:
    """One function a case, on the same tokens."""
    model = hw.load()
    structure = Structure(model)
    delimiters = delimiter_ids(model.tokenizer)
    ids = torch.randint(0, model.card.vocabulary_size, (batch, tokens), generator=torch.Generator().manual_seed(0))

    def plain() -> None:
        model(ids, use_cache=False)

    def observed(*instruments: Callable[[], object]) -> Callable[[], None]:
        def run() -> None:
            with hw.observe(structure, *(make() for make in instruments)):
                model(ids, use_cache=False)

        return run

    def study() -> None:
        watchers = AnswerSpectrum(torch.full((batch,), tokens // 2), k=50), hw.Sites(("residual",), "last")
        with torch.no_grad(), hw.observe(structure, *watchers):
            structure.decoder(input_ids=ids, use_cache=False)

    def eager() -> None:
        model.hf.set_attn_implementation("eager")
        try:
            for weights in model(ids, use_cache=False, output_attentions=True).attentions:
                weights.sum(dim=2), weights.diagonal(dim1=-2, dim2=-1)
        finally:
            model.hf.set_attn_implementation("sdpa")

    return {
        "plain": plain,
        "spectrum": observed(hw.Spectrum),
        "profile": observed(lambda: hw.Profile(delimiters)),
        "both": observed(hw.Spectrum, lambda: hw.Profile(delimiters)),
        "answers": study,
        "eager": eager,
    }


def times(batch: int, tokens: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of every case in every round, after one round to warm up."""
    functions = cases(batch, tokens)
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for turn in range(rounds + 1):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            if turn:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def memory(case: str, batch: int, tokens: int) -> float:
    """Largest resident set in MB of a process that does nothing but this case."""
    code = f"import cpu; f = cpu.cases({batch}, {tokens})[{case!r}]; f(); print(cpu.peak())"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parent)
    return float(done.stdout.split()[-1])


def peak() -> float:
    """Of this process, in MB. Linux hands `ru_maxrss` of the parent down to the child, so its own mark is read there."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024 / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def measure(shape: str, rounds: int) -> list[dict[str, object]]:
    """One row a case."""
    batch, tokens = map(int, shape.split("x"))
    seconds = times(batch, tokens, rounds)
    peaks = {case: memory(case, batch, tokens) for case in CASES}
    rows = []
    for case, name in CASES.items():
        ratios = [own / plain for own, plain in zip(seconds[case], seconds["plain"], strict=True)]
        rows.append(
            {
                "shape": shape, "case": name, "seconds": median(seconds[case]), "ratio": median(ratios),
                "lowest": min(ratios), "highest": max(ratios), "memory": peaks[case],
                "memory_ratio": peaks[case] / peaks["plain"],
            }
        )  # fmt: skip
    return rows


def table(rows: list[dict[str, object]]) -> str:
    """The rows in Markdown."""
    lines = ["| tokens | case | seconds | time / plain (lowest to highest round) | peak memory | memory / plain |",
             "|---|---|---|---|---|---|"]  # fmt: skip
    lines += [
        "| {shape} | {case} | {seconds:.2f} | **{ratio:.2f}** ({lowest:.2f} to {highest:.2f}) | {memory:,.0f} MB | "
        "{memory_ratio:.2f} |".format(**row)
        for row in rows
    ]
    return "\n".join(lines)


def section(rows: list[dict[str, object]], rounds: int) -> str:
    """What the page says."""
    return f"""## Observing on a CPU: SmolLM2-135M-Instruct, float32

Ratios to a plain SDPA forward with its logits, all cases in one run; {rounds} rounds, medians of the ratio within a
round. Memory is the largest resident set of a process of its own, weights and libraries included.

{table(rows)}

{made_by("make bench")}
"""


def main() -> None:
    """Measure, print, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--shapes", default="4x1024,4x256")
    parser.add_argument("--json", action="store_true", help="print JSON and leave the page alone")
    arguments = parser.parse_args()
    rows = [row for shape in arguments.shapes.split(",") for row in measure(shape, arguments.rounds)]
    if arguments.json:
        print(json.dumps(rows))
        return
    print(table(rows))
    write_section("cpu", section(rows, arguments.rounds))


if __name__ == "__main__":
    main()
