"""What reading heads while generating costs on a GPU: the shape of Llama-3.1-8B, time per token and peak memory.

    python benchmarks/decoding_gpu.py            (--layers 4 --shapes 1x1024 for a quick look; what is printed goes to $OUT too)

The weights are random, the dtype bfloat16. How a turn looks is described in `decoding`: `generate` on a cache that is already
there, plain SDPA and watched by `RunningAnswerRows` in turn. Memory is the allocator's peak over one turn, cache and weights
included. Under observation the output of a step comes from the kernel that sums its row, which replaces SDPA's.

CUDA graphs: transformers compiles `generate` on a static cache into graphs, which replay launches and run no Python. `observe`
switches that off for as long as it lasts (see `seam/forward`), so the static rows compare steps without graphs on both sides.
"""

from __future__ import annotations

import argparse
import gc
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from decoding import NEW, cases, filled, measured, publish, table
from gpu import random_model
from page import PAGE, made_by
from tokens import shape_of

SHAPES = "1x1024,1x8192,32x1024,32x8192"
ALONE, BATCHED, MEMORY = 1.03, 1.10, 1.02  # targets


def peak(turn: Callable[[], object]) -> float:
    """The allocator's peak over one turn, in GiB."""
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    with torch.no_grad():
        turn()
    return torch.cuda.max_memory_allocated() / 2**30


def rows_of(model: Any, shapes: list[str], rounds: int, *, static: bool) -> list[dict[str, Any]]:
    """One row a shape, with its memory."""
    rows = []
    for shape in shapes:
        batch, context = shape_of(shape)
        turns = cases(model, filled(model, batch, context, static=static), batch, context)
        room = {name: peak(turn) for name, turn in turns.items()}
        del turns
        row = measured(model, shape, rounds, static=static, wait=torch.cuda.synchronize)
        row |= {"memory": room["watched"], "memory_ratio": room["watched"] / room["plain"]}
        rows.append(row | {"target": ALONE if batch == 1 else BATCHED})
        print(json.dumps(rows[-1]), flush=True)
    return rows


def main() -> None:
    """Measure, print, and write the section."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--shapes", default=SHAPES)
    parser.add_argument("--static", default=SHAPES, help="shapes of the static cache; empty: none")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--page", type=Path, default=PAGE, help="the page whose section is written")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("this benchmark needs a CUDA device; benchmarks/decoding.py is the one for a CPU")
    model = random_model(options.layers, "cuda")
    rows = rows_of(model, options.shapes.split(","), options.rounds, static=False)
    if options.static:
        rows += rows_of(model, options.static.split(","), options.rounds, static=True)
    text = (
        f"### On a GPU: the shape of Llama-3.1-8B ({options.layers} layers), bfloat16\n\n"
        f"`generate` with plain SDPA and the same under `RunningAnswerRows`, in turn, in one run: medians of {options.rounds} "
        f"rounds of {NEW} tokens (lowest and highest ratio within a round). Target of the memory: {MEMORY:.2f}.\n\n"
        f"{table(rows)}\n\n{made_by(f'python benchmarks/decoding_gpu.py --layers {options.layers}')}"
    )
    publish("decoding-gpu", text, rows, options.page)


if __name__ == "__main__":
    main()
