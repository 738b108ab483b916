"""How long do the relations of a 70B model take? A checkpoint of that shape, with random weights, on one device.

    python benchmarks/relations_gpu.py                       # 80 layers x 64 heads, 8 kv heads, d 8192, vocabulary 128,256
    python benchmarks/relations_gpu.py --device cpu --layers 2 --heads 4 --kv-heads 2 --hidden 64 --vocabulary 1000 \\
        --relations 3 --pairs 40                             # the same script in a second

Measured: `headwise.kernels` as the study `relations` calls them, for every layer and head: W_O U, the ranks of all
pairs with both signs and 20 shuffles, Wilson-ready counts; with ``--salience`` also the 30 most salient tokens of each
head and their targets. Each layer's W_V and W_O are drawn on the device in bfloat16 and cast to float32, as they would
be after reading; **reading from disk is left out** (150 MB per layer in bfloat16, 12 GB in all). E' of the sources is
drawn too; in the real study the first MLP is run once for these 4,000 tokens.

In the same run, the straightforward form on a sample of heads: the head's d x d matrix W_V W_O, then E'[s] (W_V W_O) U
for every source, N x V scores, ranks by counting. Its time for all heads is the sample's, scaled up.

A random head finds almost no pair, and so makes the exact count for few; on the default model, which is trained, that
count takes a quarter of a layer's time, and half in the layer where most pairs are found.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headwise.kernels import RankQuery, ov_logit_blocks, salience, top_targets, topk_hits


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (
        ("layers", 80), ("heads", 64), ("kv-heads", 8), ("hidden", 8192), ("vocabulary", 128_256), ("relations", 20),
        ("pairs", 200), ("shuffles", 20), ("k", 25), ("sample", 4),
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--salience", action="store_true")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args()


class Shape:
    """A checkpoint of random weights, made layer by layer on the device."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.device = options, torch.device(options.device)
        self.width = options.hidden // options.heads
        self.generator = torch.Generator(self.device).manual_seed(0)
        self.unembedding = self.random(options.vocabulary, options.hidden)
        count = options.relations * options.pairs
        self.sources = self.random(count, options.hidden).float()
        own = torch.randperm(options.vocabulary, generator=self.generator, device=self.device)[:count]
        targets = torch.stack([own, *(self.shuffled(own) for _ in range(options.shuffles))])  # (draw, pair)
        rows = torch.arange(count, device=self.device)
        self.asked = RankQuery(rows, targets, torch.full((count,), options.k, device=self.device))

    def random(self, *shape: int) -> Tensor:
        drawn = torch.empty(shape, dtype=torch.bfloat16, device=self.device)
        return drawn.normal_(std=shape[-1] ** -0.5, generator=self.generator)

    def shuffled(self, targets: Tensor) -> Tensor:
        """Permuted within each relation."""
        drawn = torch.rand(self.options.relations, self.options.pairs, generator=self.generator, device=self.device)
        return targets.view_as(drawn).gather(1, drawn.argsort(dim=1)).flatten()

    def layer(self) -> tuple[Tensor, Tensor]:
        """W_V (kv_head, hidden, width) and W_O (head, width, hidden), float32."""
        options = self.options
        value = self.random(options.kv_heads, options.hidden, self.width)
        return value.float(), self.random(options.heads, self.width, options.hidden).float()


def factored(shape: Shape, value: Tensor, output: Tensor) -> tuple[int, int]:
    """All heads of a layer, as the study reads them; how many pairs were found, promoted and suppressed."""
    group = len(output) // len(value)
    read = torch.matmul(shape.sources, value).repeat_interleave(group, dim=0)  # (head, source, width)
    found = [0, 0]
    best = None
    if shape.options.salience:
        strengths = salience(shape.unembedding, value, output)
        best = shape.unembedding[strengths.topk(30, dim=1).indices]  # (head, rank, hidden)
    for heads, product in ov_logit_blocks(output, shape.unembedding):
        part = topk_hits(read[heads], product, shape.asked)
        found[0] += int(part.largest[:, 0].sum())
        found[1] += int(part.smallest[:, 0].sum())
        if best is not None:
            top_targets(best[heads].float() @ value.repeat_interleave(group, dim=0)[heads], product, 5)
    return found[0], found[1]


def straightforward(shape: Shape, value: Tensor, output: Tensor, head: int) -> tuple[int, int]:
    """One head through its d x d matrix: the same counts."""
    matrix = value[head // (len(output) // len(value))] @ output[head]  # (hidden, hidden)
    unembedding = shape.unembedding.float().T
    found = [0, 0]
    for rows in torch.arange(len(shape.sources), device=shape.device).split(1000):
        scores = shape.sources[rows] @ matrix @ unembedding  # (row, vocabulary)
        own = scores.gather(1, shape.asked.targets[0, rows][:, None])
        found[0] += int(((scores > own).sum(1) < shape.options.k).sum())
        found[1] += int(((scores < own).sum(1) < shape.options.k).sum())
    return found[0], found[1]


def clock(shape: Shape, what: Any, *args: Any) -> tuple[float, Any]:
    set_frozen(shape)
    start = time.perf_counter()
    result = what(shape, *args)
    set_frozen(shape)
    return time.perf_counter() - start, result


def set_frozen(shape: Shape) -> None:
    if shape.device.type == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    options = arguments()
    with torch.no_grad():
        print(report(options, measure(options)))


def measure(options: argparse.Namespace) -> dict[str, Any]:
    shape = Shape(options)
    value, output = shape.layer()
    clock(shape, factored, value, output)  # kernels are chosen and memory is taken on the first call
    if shape.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    start, seconds, total = time.perf_counter(), [], [0, 0]
    for index in range(options.layers):
        if index:
            value, output = shape.layer()
        took, found = clock(shape, factored, value, output)
        seconds.append(took)
        total = [total[0] + found[0], total[1] + found[1]]
    whole = time.perf_counter() - start
    peak = torch.cuda.max_memory_allocated() if shape.device.type == "cuda" else 0
    sample = min(options.sample, options.heads)
    clock(shape, straightforward, value, output, 0)
    plain = [clock(shape, straightforward, value, output, head) for head in range(sample)]
    agreed = sum(one[0] for _, one in plain), sum(one[1] for _, one in plain)
    few = slice(0, sample)
    group = options.heads // options.kv_heads
    read = torch.matmul(shape.sources, value).repeat_interleave(group, dim=0)[few]
    same = [
        topk_hits(read[part], product, shape.asked) for part, product in ov_logit_blocks(output[few], shape.unembedding)
    ]
    return {
        "device": torch.cuda.get_device_name() if shape.device.type == "cuda" else "cpu",
        "torch": torch.__version__,
        "options": vars(options),
        "seconds": whole,
        "seconds_without_drawing_weights": sum(seconds),
        "seconds_a_head": sum(seconds) / (options.layers * options.heads),
        "straightforward_seconds_a_head": sum(took for took, _ in plain) / sample,
        "straightforward_seconds_all_heads": sum(took for took, _ in plain) / sample * options.layers * options.heads,
        "peak_gib": peak / 2**30,
        "found": total,
        "sample_found_straightforward": agreed,
        "sample_found_factored": [
            int(sum(one.largest[:, 0].sum() for one in same)), int(sum(one.smallest[:, 0].sum() for one in same)),
        ],
    }  # fmt: skip


def report(options: argparse.Namespace, found: dict[str, Any]) -> str:
    ratio = found["straightforward_seconds_a_head"] / found["seconds_a_head"]
    lines = [
        f"{options.layers} layers x {options.heads} heads ({options.kv_heads} kv), d {options.hidden}, vocabulary "
        f"{options.vocabulary:,}, {options.relations} relations of {options.pairs} pairs, {options.shuffles} shuffles, "
        f"salience {'on' if options.salience else 'off'}; {found['device']}, torch {found['torch']}",
        "",
        "| | per head | all heads |",
        "|---|---|---|",
        f"| factored, all heads measured | {1e3 * found['seconds_a_head']:.2f} ms | "
        f"{found['seconds_without_drawing_weights']:.1f} s ({found['seconds']:.1f} s with drawing the weights) |",
        f"| d x d, {min(options.sample, options.heads)} heads measured | "
        f"{1e3 * found['straightforward_seconds_a_head']:.2f} ms | {found['straightforward_seconds_all_heads']:.0f} s "
        "(scaled up) |",
        f"| ratio | {ratio:.1f} x | |",
        f"| peak memory | | {found['peak_gib']:.1f} GiB |",
        "",
        f"Pairs found on the sample of heads (promoted, suppressed): factored {found['sample_found_factored']}, d x d "
        f"{list(found['sample_found_straightforward'])}.",
    ]
    if os.environ.get("OUT"):
        path = Path(os.environ["OUT"], "relations_gpu.json")
        path.write_text(json.dumps(found, indent=1))
    return "\n".join(lines)


if __name__ == "__main__":
    main()
