"""What observing costs on a GPU: ratios to a plain SDPA forward, in one run, on a model of Llama-3.1-8B's shape.

    python benchmarks/gpu.py            (--layers 4 --shapes 4x512 for a quick look; --json writes to $OUT as well)

The weights are random, the dtype bfloat16, the decoder runs without its logits. Above the table stands how far the
reductions are from float64 on one layer, beside what plain bfloat16 eager attention is. Times are medians of repeats
after two to warm up, each closed by a synchronisation; memory is the allocator's peak.
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
from page import made_by, write_section
from transformers import AutoModelForCausalLM, LlamaConfig

import headwise as hw
from headwise.kernels import Attention, Visibility, Wanted, blocked, reduce, reference
from headwise.seam import Structure

CASES = {
    "plain": "plain SDPA forward",
    "spectrum": "observed: Spectrum",
    "both": "observed: Spectrum + Profile",
    "eager": "eager, `output_attentions`, column sums and diagonal by hand",
}
DELIMITERS = (2, 3)  # the third and fourth most frequent tokens: one in 26 is one of them
MOST_EAGER = 9000  # tokens in all; beyond them eager maps do not fit


def random_model(layers: int, device: str) -> Any:
    """Llama-3.1-8B's shape, random weights, never on the CPU."""
    config = LlamaConfig(
        hidden_size=4096, intermediate_size=14336, num_hidden_layers=layers, num_attention_heads=32,
        num_key_value_heads=8, vocab_size=128256, max_position_embeddings=131072, rope_theta=500000.0,
    )  # fmt: skip
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation="sdpa")
    model = model.to_empty(device=device)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(1) if parameter.ndim == 1 else parameter.normal_(0, 0.03)
    model.model.rotary_emb = type(model.model.rotary_emb)(config).to(device)
    return model.eval()


def tokens_like_text(batch: int, tokens: int) -> torch.Tensor:
    """Tokens as frequent as words are (Zipf), so that they repeat and delimiters are among them as in a text."""
    frequency = 1 / (torch.arange(128256, device="cuda") + 2.7)
    drawn = torch.multinomial(
        frequency, batch * tokens, replacement=True, generator=torch.Generator("cuda").manual_seed(0)
    )
    return drawn.view(batch, tokens)


def cases(model: Any, structure: Structure, ids: torch.Tensor) -> dict[str, Callable[[], None]]:
    """One function a case, on the same tokens."""

    def plain() -> None:
        model.model(input_ids=ids, use_cache=False)

    def observed(*instruments: Callable[[], object]) -> Callable[[], None]:
        def run() -> None:
            with hw.observe(structure, *(make() for make in instruments)):
                model.model(input_ids=ids, use_cache=False)

        return run

    def eager() -> None:
        model.set_attn_implementation("eager")
        try:
            for weights in model.model(input_ids=ids, use_cache=False, output_attentions=True).attentions:
                weights.sum(dim=2), weights.diagonal(dim1=-2, dim2=-1)
        finally:
            model.set_attn_implementation("sdpa")

    found = {
        "plain": plain,
        "spectrum": observed(hw.Spectrum),
        "both": observed(hw.Spectrum, lambda: hw.Profile(DELIMITERS)),
    }
    return found | ({"eager": eager} if ids.numel() < MOST_EAGER and ids.shape[1] < 4096 else {})


def timed(function: Callable[[], None], repeats: int) -> tuple[float, float]:
    """Median seconds, and peak memory in GiB."""
    with torch.no_grad():
        for _ in range(2):
            function()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        seconds = []
        for _ in range(repeats):
            start = time.perf_counter()
            function()
            torch.cuda.synchronize()
            seconds.append(time.perf_counter() - start)
    return sorted(seconds)[repeats // 2], torch.cuda.max_memory_allocated() / 2**30


def measure(model: Any, shapes: list[str], repeats: int) -> list[dict[str, Any]]:
    """One row a case and shape."""
    structure = Structure(model)
    rows = []
    for shape in shapes:
        batch, tokens = map(int, shape.split("x"))
        ids = tokens_like_text(batch, tokens)
        found = {name: timed(function, repeats) for name, function in cases(model, structure, ids).items()}
        base, room = found["plain"]
        for name, (seconds, memory) in found.items():
            rows.append(
                {
                    "shape": shape, "case": CASES[name], "seconds": seconds, "ratio": seconds / base, "memory": memory,
                    "memory_ratio": memory / room,
                }
            )  # fmt: skip
            print(json.dumps(rows[-1]), flush=True)
    return rows


def parity() -> str:
    """Errors of one layer's reductions against float64: ours, the blocks', and plain bfloat16 eager's."""
    generator = torch.Generator("cuda").manual_seed(0)
    q, k = (
        torch.randn(2, heads, 1024, 128, device="cuda", dtype=torch.bfloat16, generator=generator) for heads in (32, 8)
    )
    attention = Attention(q, k, 128**-0.5, Visibility(1024, 1024, 0, q.device))
    wanted = Wanted(column_sums=True, log_diagonal=True, entropy=True, distance=True, peak=True)
    exact = reference.reduce(attention, wanted).flat()
    logits = (q @ k.repeat_interleave(4, dim=1).transpose(2, 3)) * attention.scale
    hidden = torch.ones(1024, 1024, dtype=torch.bool, device="cuda").triu(1)
    eager = logits.masked_fill(hidden, float("-inf")).softmax(-1)  # bfloat16 throughout, as eager scripts have it
    by_hand = {"column_sums": eager.sum(2), "log_diagonal": eager.diagonal(dim1=-2, dim2=-1).float().log()}
    ways = {"Headwise": reduce(attention, wanted).flat(), "blocks": blocked.reduce(attention, wanted).flat()}
    lines = [f"| largest error against float64 | {' | '.join(exact)} |", "|---" * (len(exact) + 1) + "|"]
    for name, got in {**ways, "plain bfloat16 eager": by_hand}.items():
        errors = [f"{_error(got[key], exact[key]):.1e}" if key in got else "" for key in exact]
        lines.append(f"| {name} | {' | '.join(errors)} |")
    return "\n".join(lines)


def _error(got: torch.Tensor, exact: torch.Tensor) -> float:
    difference = (got.double() - exact.double().to(got.device)).abs()
    return float(difference[difference.isfinite()].max())


def table(rows: list[dict[str, Any]]) -> str:
    """The rows in Markdown."""
    lines = ["| tokens | case | ms | time / plain | peak memory | memory / plain |", "|---|---|---|---|---|---|"]
    lines += [
        f"| {row['shape']} | {row['case']} | {1000 * row['seconds']:.0f} | **{row['ratio']:.2f}** | "
        f"{row['memory']:.1f} GiB | {row['memory_ratio']:.2f} |"
        for row in rows
    ]
    return "\n".join(lines)


def main() -> None:
    """Measure, print, and write the section."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--shapes", default="16x512,4x2048,1x8192,1x32768")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("this benchmark needs a CUDA device; benchmarks/cpu.py is the one for a CPU")
    errors = parity()
    print(errors)
    rows = measure(random_model(arguments.layers, "cuda"), arguments.shapes.split(","), arguments.repeats)
    text = (
        f"## Observing on a GPU: the shape of Llama-3.1-8B ({arguments.layers} layers), bfloat16\n\n"
        f"Ratios to a plain SDPA forward of the decoder, in one run; medians of {arguments.repeats} repeats.\n\n"
        f"{errors}\n\n{table(rows)}\n\n{made_by('python benchmarks/gpu.py')}"
    )
    print(text)
    if out := os.environ.get("OUT"):
        Path(out, "gpu.md").write_text(text, encoding="utf-8")
    write_section("gpu", text)


if __name__ == "__main__":
    main()
