"""What observing costs on a GPU: ratios to a plain SDPA forward, in one run, on a model of Llama-3.1-8B's shape.

    python benchmarks/gpu.py            (--layers 4 --shapes 4x512 for a quick look; what is printed goes to $OUT too)
    python benchmarks/gpu.py --peers                   TransformerLens and nnsight too, where they can be imported
    python benchmarks/gpu.py --endurance 10000         memory over many batches (see `endurance`); nothing else

The weights are random, the dtype bfloat16, the decoder runs without its logits. Above the table: how far the reductions
are from float64 on one layer, and how far plain bfloat16 eager attention is. How times are taken is described in `clock`; a
pass is closed by a synchronisation. Memory is the allocator's peak. Eager attention and the peers run where their maps fit.
The peers run last, on the same weights in the same process, since they change the model; theirs are medians of repeats.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import endurance
import torch
from clock import in_turn, ratio
from columns import ours
from page import PAGE, made_by, write_section
from peers.in_process import peer_rows
from tokens import shape_of, tokens_like_text
from transformers import AutoModelForCausalLM, LlamaConfig

import headwise as hw
from headwise.kernels import Attention, AttentionMask, ReductionRequest, blocked, reduce, reference
from headwise.seam import Structure

CASES = {
    "plain": "plain SDPA forward",
    "spectrum": "observed: Spectrum",
    "both": "observed: Spectrum + Profile",
    "eager": "eager, `output_attentions`, column sums and diagonal by hand",
}
PEERS_SAY = (
    "Other libraries run last in the same process; *apart* is their largest distance from Headwise's column sums and "
    "diagonal, |theirs - ours| / (1 + |ours|), in half precision through all layers.\n\n"
)
VOCABULARY = 128256
DELIMITERS = (2, 3)  # the third and fourth most frequent tokens: one in 26 is one of them
MOST_EAGER = 9000  # tokens in all; beyond them eager maps do not fit


def random_model(layers: int, device: str) -> Any:
    """Llama-3.1-8B's shape, random weights, never on the CPU."""
    config = LlamaConfig(
        hidden_size=4096, intermediate_size=14336, num_hidden_layers=layers, num_attention_heads=32,
        num_key_value_heads=8, vocab_size=VOCABULARY, max_position_embeddings=131072, rope_theta=500000.0,
    )  # fmt: skip
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation="sdpa")
    model = model.to_empty(device=device)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(1) if parameter.ndim == 1 else parameter.normal_(0, 0.03)
    model.model.rotary_emb = type(model.model.rotary_emb)(config).to(device)
    return model.eval()


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
    return found | ({"eager": eager} if maps_fit(*ids.shape) else {})


def maps_fit(batch: int, tokens: int) -> bool:
    """Whether whole attention maps are tried at this shape."""
    return batch * tokens < MOST_EAGER and tokens < 4096


def timed(function: Callable[[], None], repeats: int) -> tuple[float, float]:
    """Median seconds, and peak memory in GiB."""
    with torch.no_grad():
        for _ in range(2):
            function()
        torch.cuda.synchronize()
        gc.collect()  # what a case before has left
        torch.cuda.reset_peak_memory_stats()
        seconds = []
        for _ in range(repeats):
            start = time.perf_counter()
            function()
            torch.cuda.synchronize()
            seconds.append(time.perf_counter() - start)
    return sorted(seconds)[repeats // 2], torch.cuda.max_memory_allocated() / 2**30


def measure(model: Any, shapes: list[str], rounds: int) -> list[dict[str, Any]]:
    """One row a case and shape."""
    structure = Structure(model)
    rows = []
    for shape in shapes:
        ids = tokens_like_text(VOCABULARY, *shape_of(shape), device="cuda")
        functions = cases(model, structure, ids)
        room = {name: timed(function, 1)[1] for name, function in functions.items()}  # and all is warm
        with torch.no_grad():
            seconds = in_turn(functions, rounds, torch.cuda.synchronize)
        for name, memory in room.items():
            held = {"memory": memory, "memory_ratio": memory / room["plain"]}
            rows.append({"shape": shape, "case": CASES[name]} | ratio(seconds[name], seconds["plain"])._asdict() | held)
            print(json.dumps(rows[-1]), flush=True)
    return rows


def peers_of(model: Any, rows: list[dict[str, Any]], shapes: list[str], repeats: int) -> list[dict[str, Any]]:
    """The peers' rows, where maps fit; the model is theirs afterwards."""
    fitting = [shape for shape in shapes if maps_fit(*shape_of(shape))]
    shown = {shape: tokens_like_text(VOCABULARY, *shape_of(shape), device="cuda") for shape in fitting}
    structure = Structure(model)
    readings = {shape: ours(structure, ids) for shape, ids in shown.items()}
    plain = {row["shape"]: row for row in rows if row["case"] == CASES["plain"]}
    return peer_rows(model, shown, plain, readings, lambda function: timed(function, repeats))


def parity() -> str:
    """Errors of one layer's reductions against float64: ours, the blocks', and plain bfloat16 eager's."""
    generator = torch.Generator("cuda").manual_seed(0)
    q, k = (
        torch.randn(2, heads, 1024, 128, device="cuda", dtype=torch.bfloat16, generator=generator) for heads in (32, 8)
    )
    attention = Attention(q, k, 128**-0.5, AttentionMask(1024, 1024, 0, q.device))
    wanted = ReductionRequest(column_sums=True, log_diagonal=True, entropy=True, distance=True, row_max=True)
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
    head = "| tokens | case | ms | time / plain | peak memory | memory / plain | apart |"
    return "\n".join([head, "|---|---|---|---|---|---|---|", *map(_line, rows)])


def _line(row: dict[str, Any]) -> str:
    if "refused" in row:
        return f"| {row['shape']} | {row['case']} | {row['refused']} | | | | |"
    apart = f"{row['difference']:.0e}" if "difference" in row else ""
    spread = f" ({row['lowest']:.2f} to {row['highest']:.2f})" if "lowest" in row else ""
    return (
        f"| {row['shape']} | {row['case']} | {1000 * row['seconds']:.0f} | **{row['ratio']:.2f}**{spread} | "
        f"{row['memory']:.1f} GiB | {row['memory_ratio']:.2f} | {apart} |"
    )


def arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--shapes", default="16x512,4x2048,1x8192,1x32768")
    parser.add_argument("--peers", action="store_true", help="TransformerLens and nnsight, where they can be imported")
    parser.add_argument(
        "--endurance", type=int, metavar="BATCHES", help="memory over so many batches, and nothing else"
    )
    parser.add_argument("--page", type=Path, default=PAGE, help="the page whose section is written")
    return parser.parse_args()


def publish(name: str, text: str, page: Path) -> None:
    """Print it, put it into its section of the page, and leave a copy in $OUT."""
    print(text)
    if out := os.environ.get("OUT"):
        Path(out, f"{name}.md").write_text(text, encoding="utf-8")
    write_section(name, text, page)


def endure(options: argparse.Namespace) -> None:
    """The long run; ends with an error where memory grew."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    text, flat = endurance.report(options.endurance, device)
    publish(
        "endurance", f"{text}\n\n{made_by(f'python benchmarks/gpu.py --endurance {options.endurance}')}", options.page
    )
    if not flat:
        raise SystemExit("memory grew over the run")


def compare(options: argparse.Namespace) -> None:
    """The parity check, and the table below it."""
    if not torch.cuda.is_available():
        raise SystemExit("this benchmark needs a CUDA device; benchmarks/cpu.py is the one for a CPU")
    errors, shapes = parity(), options.shapes.split(",")
    print(errors)
    model = random_model(options.layers, "cuda")
    rows = measure(model, shapes, options.rounds)
    rows += peers_of(model, rows, shapes, options.rounds) if options.peers else []
    command = f"python benchmarks/gpu.py --layers {options.layers}{' --peers' if options.peers else ''}"
    ordered = sorted(rows, key=lambda row: shapes.index(row["shape"]))
    text = (
        f"## Observing on a GPU: the shape of Llama-3.1-8B ({options.layers} layers), bfloat16\n\n"
        f"Ratios to a plain SDPA forward of the decoder, in one run: of median times over {options.rounds} rounds (lowest and "
        f"highest ratio within a round).\n\n"
        f"{PEERS_SAY if options.peers else ''}{errors}\n\n{table(ordered)}\n\n{made_by(command)}"
    )
    publish("gpu", text, options.page)


def main() -> None:
    """Measure, print, and write the section."""
    options = arguments()
    endure(options) if options.endurance else compare(options)


if __name__ == "__main__":
    main()
