"""What observing costs on a CPU: ratios to a plain SDPA forward, in one run. Writes its section of docs/benchmarks.md.

    make bench                                   (about twenty minutes on two quiet cores, peers installed)
    python benchmarks/cpu.py --quick             one round at 2 x 128 tokens, no memory, for a look; leaves the page alone
    HEADWISE_BENCH_PEERS=FOLDER python benchmarks/cpu.py       with the peers' environments FOLDER/NAME/bin/python
    python benchmarks/cpu.py --peers ""          without peers

How times and memory are taken is described in `clock`; every case's memory is that of a process of its own, weights
included. All cases see the same tokens (`tokens`). The plain forward is the model's ordinary SDPA call with its logits.
`eager` is what the usual scripts do: `attn_implementation="eager"`, `output_attentions=True`, column sums and diagonal
from the maps. The peers (`peers`) run in environments of their own, each against a plain forward in its own process; a
peer's or eager's distance from Headwise's own numbers is in the table, and the script fails if they disagree.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import outputs
import relations_cpu
import torch
from clock import in_turn, ratio
from columns import ours
from page import PAGE, made_by, write_section
from peers import PEERS
from peers.comparison import TOLERANCE, Readings, difference, hand_over, peer_row
from tokens import shape_of, tokens_like_text
from torch import Tensor

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


def by_hand(model: hw.Model, ids: Tensor) -> Readings:
    """The same from eager attention's maps."""
    model.hf.set_attn_implementation("eager")
    try:
        maps = model(ids, use_cache=False, output_attentions=True).attentions
        sums = torch.stack([weights.sum(dim=2) for weights in maps])
        return Readings(sums, torch.stack([weights.diagonal(dim1=-2, dim2=-1) for weights in maps]))
    finally:
        model.hf.set_attn_implementation("sdpa")


def cases(model: hw.Model, batch: int, tokens: int) -> dict[str, Callable[[], object]]:
    """One function a case, on the same tokens."""
    structure = Structure(model)
    delimiters = delimiter_ids(model.tokenizer)
    ids = tokens_like_text(model.card.vocabulary_size, batch, tokens)

    def observed(*instruments: Callable[[], Any]) -> Callable[[], object]:
        def run() -> None:
            with hw.observe(structure, *(make() for make in instruments)):
                model(ids, use_cache=False)

        return run

    def study() -> None:
        watchers = AnswerSpectrum(torch.full((batch,), tokens // 2), k=50), hw.Activations(("residual",), "last")
        with torch.no_grad(), hw.observe(structure, *watchers):
            structure.decoder(input_ids=ids, use_cache=False)

    return {
        "plain": lambda: model(ids, use_cache=False),
        "spectrum": observed(hw.Spectrum),
        "profile": observed(lambda: hw.Profile(delimiters)),
        "both": observed(hw.Spectrum, lambda: hw.Profile(delimiters)),
        "answers": study,
        "eager": lambda: by_hand(model, ids),
    }


def memory(case: str, batch: int, tokens: int) -> float:
    """Largest resident set in MB of a process that does nothing but this case."""
    code = f"import cpu, clock; f = cpu.cases(cpu.hw.load(), {batch}, {tokens})[{case!r}]; f(); print(clock.peak())"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parent)
    return float(done.stdout.split()[-1])


def own_rows(model: hw.Model, shape: str, options: argparse.Namespace, apart: float) -> list[dict[str, Any]]:
    """One row a case; `apart` is how far eager is from us."""
    seconds = in_turn(cases(model, *shape_of(shape)), options.rounds * _more(shape, options.shapes))
    held = {} if options.quick else {case: memory(case, *shape_of(shape)) for case in CASES}
    return [
        {"shape": shape, "case": name}
        | ratio(seconds[case], seconds["plain"])._asdict()
        | ({"memory": held[case], "memory_ratio": held[case] / held["plain"]} if held else {})
        | ({"difference": apart} if case == "eager" else {})
        for case, name in CASES.items()
    ]


def measure(model: hw.Model, options: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """All rows, shape by shape: our own, then the peers'."""
    structure, vocabulary = Structure(model), model.card.vocabulary_size
    shown = {shape: tokens_like_text(vocabulary, *shape_of(shape)) for shape in options.shapes}
    hand_over(folder, model, shown if options.peers else {})
    rows = []
    for shape, ids in shown.items():
        print(f"{shape} tokens ...", file=sys.stderr, flush=True)
        readings = ours(structure, ids)
        apart = difference(by_hand(model, ids), readings)
        if not apart <= TOLERANCE:
            raise SystemExit(
                f"eager attention at {shape} tokens is {apart:.1e} away from Headwise; no time is worth giving"
            )
        rows += own_rows(model, shape, options, apart)
        for name in options.peers:
            rounds = options.peer_rounds * _more(shape, options.shapes)
            rows.append(peer_row(name, shape, folder, readings, rounds, memory=not options.quick))
        print(table([row for row in rows if row["shape"] == shape]), file=sys.stderr, flush=True)
    return rows


def _more(shape: str, shapes: list[str]) -> int:
    """How many times as many rounds a short shape gets as the longest: they are over sooner, and differ more."""
    return max(shape_of(one)[1] for one in shapes) // shape_of(shape)[1]


def table(rows: list[dict[str, Any]]) -> str:
    """The rows in Markdown."""
    head = "| tokens | case | seconds | time / plain (lowest to highest round) | peak memory | memory / plain | apart |"
    return "\n".join([head, "|---|---|---|---|---|---|---|", *map(_line, rows)])


def _line(row: dict[str, Any]) -> str:
    if "refused" in row:
        return f"| {row['shape']} | {row['case']} | {row['refused']} | | | | |"
    held = "{memory:,.0f} MB | {memory_ratio:.2f}".format(**row) if "memory" in row else " | "
    apart = f"{row['difference']:.0e}" if "difference" in row else ""
    times = "{seconds:.2f} | **{ratio:.2f}** ({lowest:.2f} to {highest:.2f})".format(**row)
    return f"| {row['shape']} | {row['case']} | {times} | {held} | {apart} |"


def section(rows: list[dict[str, Any]], options: argparse.Namespace, others: list[str]) -> str:
    """What the page says."""
    peers = {row["case"].split(":")[0]: row["versions"] for row in rows if "versions" in row}
    theirs = "".join(
        f" {name} with torch {of['torch']}, transformers {of['transformers']}." for name, of in peers.items()
    )
    rest = "\n\n".join(others)
    return f"""## Observing on a CPU: SmolLM2-135M-Instruct, float32

Ratios of median times to a plain SDPA forward with its logits, all cases in one run of {_shown(options.rounds, options.shapes)}
(in brackets the lowest and highest ratio within a round). Memory is the largest resident set of a process of its own, weights
and libraries included. Other libraries run in environments of their own, against a plain forward in their own process
({_shown(options.peer_rounds, options.shapes)}), and make the same numbers: *apart* is the largest distance from
Headwise's column sums and diagonal, |theirs - ours| / (1 + |ours|).

{table(rows)}

{rest}

{made_by("make bench")}{theirs}
"""


def _shown(rounds: int, shapes: list[str]) -> str:
    return ", ".join(f"{rounds * _more(shape, shapes)} rounds at {shape}" for shape in shapes)


def arguments() -> argparse.Namespace:
    """What was asked for; `--quick` sets the rest."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="of the longest shape; shorter ones get more")
    parser.add_argument("--peer-rounds", type=int, default=2)
    parser.add_argument("--shapes", default="4x256,4x1024")
    parser.add_argument("--peers", default=",".join(PEERS), help="which, or none: ''")
    parser.add_argument("--quick", action="store_true", help="one round, 2 x 128 tokens, no memory, nothing written")
    parser.add_argument("--json", action="store_true", help="print JSON and leave the page alone")
    parser.add_argument("--page", type=Path, default=PAGE, help="the page whose section is written")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.peer_rounds, options.shapes = 1, 1, "2x128"
    options.shapes, options.peers = options.shapes.split(","), [name for name in options.peers.split(",") if name]
    if unknown := set(options.peers) - set(PEERS):
        parser.error(f"no such peer: {', '.join(sorted(unknown))}; there are {', '.join(PEERS)}")
    return options


def main() -> None:
    """Measure, print, and write the page."""
    options = arguments()
    model = hw.load()
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(model, options, Path(folder))
    if options.json:
        print(json.dumps(rows))
        return
    others = [outputs.section(model, options.shapes[0], options.rounds), relations_cpu.section(model)]
    text = section(rows, options, others)
    print(text)
    if not options.quick:
        write_section("cpu", text, options.page)


if __name__ == "__main__":
    main()
