"""What reading heads while generating costs on a CPU: seconds per token of `generate`, plain and under `RunningAnswerRows`.

    python benchmarks/decoding.py                (five minutes on two quiet cores; what is printed goes to $OUT too)
    python benchmarks/decoding.py --shapes 1x512 --rounds 3
    OMP_NUM_THREADS=1 python benchmarks/decoding.py --processor      CPU time instead, where others use the machine

The default model in float32. A KV cache of random numbers stands for the prompt, since its content costs nothing; from there
`generate` writes `NEW` tokens greedily, and the cache is cut back before the next turn. Plain and watched take turns in one
process (see `clock`); the ratio is that of the median times. `decoding_gpu` does the same on a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from clock import in_turn, ratio
from page import PAGE, made_by, write_section
from tokens import shape_of, tokens_like_text
from transformers import DynamicCache, StaticCache

import headwise as hw
from headwise.instruments import RunningAnswerRows
from headwise.seam import Structure

NEW = 16  # tokens per turn
TARGET = 1.05


def filled(hf: Any, batch: int, context: int, *, static: bool) -> Any:
    """A cache that holds random keys and values of so many tokens."""
    cache = StaticCache(hf.config, max_cache_len=context + NEW + 8) if static else DynamicCache(config=hf.config)
    config, parameter = hf.config, next(hf.parameters())
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    shape = (batch, config.num_key_value_heads, context, width)
    generator = torch.Generator(parameter.device).manual_seed(0)
    for layer in range(config.num_hidden_layers):
        k, v = (
            torch.empty(shape, dtype=parameter.dtype, device=parameter.device).normal_(generator=generator)
            for _ in range(2)
        )
        cache.update(k, v, layer)
    return cache


def cut_back(cache: Any, context: int) -> None:
    """Forget what was generated."""
    for layer in cache.layers:
        if isinstance(cache, StaticCache):
            layer.cumulative_length.fill_(context)
        else:
            layer.keys, layer.values = layer.keys[:, :, :context], layer.values[:, :, :context]


def cases(hf: Any, cache: Any, batch: int, context: int) -> dict[str, Callable[[], object]]:
    """One turn of each case: `NEW` tokens of every example."""
    structure = Structure(hf)
    ids = tokens_like_text(hf.config.vocab_size, batch, context + 1, device=structure.device.type)
    asked = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "do_sample": False, "disable_compile": True}

    def plain() -> None:
        cut_back(cache, context)
        hf.generate(**asked, past_key_values=cache, max_new_tokens=NEW, min_new_tokens=NEW, pad_token_id=0)

    def watched() -> None:
        running = RunningAnswerRows()
        with hw.observe(structure, running):
            plain()
        assert running.rows is not None and running.rows.tolist() == [NEW] * batch

    return {"plain": plain, "watched": watched}


def measured(
    hf: Any,
    shape: str,
    rounds: int,
    *,
    static: bool = False,
    wait: Callable[[], object] = lambda: None,
    timer: Callable[[], float] = time.perf_counter,
) -> dict[str, Any]:
    """The row of one shape, without memory."""
    batch, context = shape_of(shape)
    cache = filled(hf, batch, context, static=static)
    with torch.no_grad():
        seconds = in_turn(cases(hf, cache, batch, context), rounds, wait, timer)
    found = ratio(seconds["watched"], seconds["plain"])
    plain = ratio(seconds["plain"], seconds["plain"])
    return {
        "shape": shape,
        "cache": "static" if static else "dynamic",
        "plain_ms": 1000 * plain.seconds / NEW,
        "watched_ms": 1000 * found.seconds / NEW,
        "ratio": found.ratio,
        "lowest": found.lowest,
        "highest": found.highest,
    }


def table(rows: list[dict[str, Any]]) -> str:
    """The rows in Markdown."""
    memory = "memory_ratio" in rows[0]
    head = "| examples x context | cache | plain, ms per token | watched | watched / plain | target |"
    lines = [head + (" peak memory | / plain |" if memory else ""), "|---|---|---|---|---|---|" + "---|---|" * memory]
    for row in rows:
        line = (
            f"| {row['shape'].replace('x', ' x ')} | {row['cache']} | {row['plain_ms']:.2f} | {row['watched_ms']:.2f} | "
            f"**{row['ratio']:.3f}** ({row['lowest']:.2f} to {row['highest']:.2f}) | {row['target']:.2f} |"
        )
        lines.append(line + (f" {row['memory']:.1f} GiB | {row['memory_ratio']:.3f} |" if memory else ""))
    return "\n".join(lines)


def publish(name: str, text: str, rows: list[dict[str, Any]], page: Path) -> None:
    """Print it, put it into its section of the page, and leave a copy in $OUT."""
    print(text)
    if out := os.environ.get("OUT"):
        Path(out, f"{name}.md").write_text(text, encoding="utf-8")
        Path(out, f"{name}.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
    write_section(name, text, page)


def main() -> None:
    """Measure, print, and write the section."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", default="1x512,8x512")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--processor", action="store_true", help="CPU time of the process, on one thread")
    parser.add_argument("--page", type=Path, default=PAGE, help="the page whose section is written")
    options = parser.parse_args()
    model = hw.load()
    timer = time.process_time if options.processor else time.perf_counter
    rows = []
    for shape in options.shapes.split(","):
        rows.append(measured(model.hf, shape, options.rounds, timer=timer) | {"target": TARGET})
        print(json.dumps(rows[-1]), flush=True)
    text = (
        f"### On a CPU: {model.card.id}, float32\n\n"
        f"Median of {options.rounds} rounds of {NEW} tokens (lowest and highest ratio within a round)"
        f"{', CPU time of one thread' if options.processor else ''}.\n\n"
        f"{table(rows)}\n\n{made_by('python benchmarks/decoding.py' + ' --processor' * options.processor)}"
    )
    publish("decoding", text, rows, options.page)


if __name__ == "__main__":
    main()
