"""How long do `spectral` and `probing` take once the model has read everything? Tests, tables, maps, by part.

    python benchmarks/conclusions.py                              n = 500 and 1,000, the default model's shape
    python benchmarks/conclusions.py 2000 4000 --device cuda      the same on a GPU
    python benchmarks/conclusions.py 512 --shape 32x32x4096       Llama-3.1-8B's shape
    python benchmarks/conclusions.py 500 --save FILE; ... --against FILE    by how much did a number change?

Readings are synthetic: answers to packaged questions, wrong more often where the question is hard, and features with about as
many directions as the default model's, some of which tell wrong answers. They are written as shards first, as a build does
(not timed), so reading them back is part of the conclusion.

Prints one row per part of the work (what progress calls it): wall time and processor time for each n, and the ratio of the last
two; the longest silence between two reports of progress; the peak of memory. Time within Python's collector and so on
belongs to the part in which it was spent.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
import xarray as xr

from headwise.atlas import pack, unpack
from headwise.core.progress import reporting
from headwise.core.provenance import Provenance
from headwise.corpora import packaged_questions
from headwise.engines import Shard, ShardStore, run_shards, split_shards
from headwise.studies.probing.finalize import finalize as conclude_probing
from headwise.studies.probing.positions import EXACT, POSITIONS, positions_of
from headwise.studies.probing.reading import LOGPROBS, ProbedAnswer
from headwise.studies.probing.spec import ProbingOptions
from headwise.studies.spectral import measure as spectral
from headwise.studies.spectral.spec import SpectralOptions

FACTORS, TELLING = 400, 40  # directions in which answers differ; those that tell wrong ones
PROMPT, SPAN, SHARD = 20, (1, 1), 64
SITES = ("mlp_in", "residual")


class Answers:
    """Answers to packaged questions, and readings of a model of some shape at them."""

    def __init__(self, count: int, layers: int, heads: int, width: int, ranks: int) -> None:
        self.count, self.layers, self.heads, self.width, self.ranks = count, layers, heads, width, ranks
        generator = np.random.default_rng(0)
        items = packaged_questions().items
        chosen = [items[index % len(items)] for index in generator.permutation(max(count, len(items)))[:count]]
        self.latent = (generator.standard_normal((count, FACTORS)) * (1 + np.arange(FACTORS)) ** -0.7).astype(
            np.float32
        )
        signal = self.latent[:, :TELLING] @ generator.standard_normal(TELLING)
        difficulty = np.array([item.difficulty for item in chosen])
        wrong = generator.random(count) < 1 / (1 + np.exp(-1.5 * signal - 0.8 * (difficulty - difficulty.mean())))
        self.tokens = np.maximum(3, generator.poisson(9, count))
        said = {
            "label": np.where(wrong, "wrong", "correct").astype(object),
            "question": np.array([item.question for item in chosen], dtype=object),
            "topic": np.array([item.topic for item in chosen], dtype=object),
            "difficulty": difficulty, "answer_tokens": self.tokens, "prompt_tokens": np.full(count, PROMPT),
            "logprob_mean": -generator.random(count) - 0.2 * wrong, "logprob_min": -3 * generator.random(count) - wrong,
        }  # fmt: skip
        self.dataset = xr.Dataset({name: ("example", values) for name, values in said.items()})
        self.dataset = self.dataset.assign_coords(example=[f"q{row}" for row in range(count)])

    def draw(self, rows: slice, seed: int, *shape: int) -> np.ndarray:
        """Readings of some answers (row, *shape): mixtures of what they differ in, with noise."""
        mixing = np.random.default_rng(seed).standard_normal((FACTORS, int(np.prod(shape)))).astype(np.float32)
        found = self.latent[rows] @ mixing
        found += 0.3 * np.random.default_rng([seed, rows.start]).standard_normal(found.shape, dtype=np.float32)
        return found.reshape(-1, *shape)

    def spectral_shard(self, shard: Shard) -> xr.Dataset:
        """Readings of the spectral study."""
        rows, dims = slice(shard.start, shard.stop), ("example", "layer", "head")
        shape = (self.layers, self.heads)
        names = [source for source, _, _ in spectral.FEATURE_INFO.values()]
        found = {name: ((*dims, "part"), self.draw(rows, 10 + i, *shape, 2)) for i, name in enumerate(names)}
        for seed, name in enumerate(("laplacian", "attention")):
            table = 0.02 * self.draw(rows, 20 + seed, *shape, self.ranks)
            found[name] = ((*dims, "rank"), -np.sort(-table, axis=-1))
        layers = [self.draw(rows, 100 + layer, self.width) for layer in range(self.layers)]
        return xr.Dataset(found | {"hidden": (("example", "layer", "width"), np.stack(layers, axis=1))})

    def probing_shard(self, shard: Shard) -> xr.Dataset:
        """Readings of the probing study; activations in half precision."""
        rows = slice(shard.start, shard.stop)
        count, tokens = shard.stop - shard.start, len(POSITIONS)
        activation = np.empty((count, len(SITES), self.layers, tokens, self.width), np.float16)
        z = np.empty((count, self.layers, self.heads, self.width // self.heads), np.float16)
        for layer in range(self.layers):
            for site in range(len(SITES)):
                activation[:, site, layer] = self.draw(rows, 1000 + len(SITES) * layer + site, tokens, self.width)
            z[:, layer] = self.draw(rows, 5000 + layer, *z.shape[2:])
        logprob = np.random.default_rng(shard.start).random((count, len(LOGPROBS)), dtype=np.float32)
        return xr.Dataset(
            {
                "activation": (("example", "site", "layer", "token", "width"), activation),
                "published": (("example", "layer", "exact", "width"), activation[:, 0, :, 3:7]),
                "z": (("example", "layer", "head", "entry"), z),
                "received": (("example", "layer", "token"), activation[:, 0, :, :, 0].astype(np.float32)),
                "logprob": (("example", "statistic"), -logprob),
                "p_true": ("example", logprob[:, 0]),
            },
            coords={"site": list(SITES), "token": list(POSITIONS), "statistic": list(LOGPROBS)},
        )

    def spectral(self, shards: object, device: torch.device) -> dict[str, xr.Dataset]:
        """The conclusion of `spectral`, and its detector."""
        options, answers = SpectralOptions(), self.dataset
        found = spectral.finalize(shards, answers, answers, options)
        readings = xr.concat(shards, dim="example", data_vars="all")
        spectral.detection.fit_best(readings, answers, found[spectral.detection.NAME], options.seed)
        return found

    def probing(self, shards: object, device: torch.device) -> dict[str, xr.Dataset]:
        """The conclusion of `probing`."""
        positions = positions_of([PROMPT] * self.count, self.tokens.tolist(), [SPAN] * self.count)
        published = positions.index[:, [POSITIONS.index(name) for name in EXACT]]
        probed = [
            ProbedAnswer(f"q{row}", (), (), SPAN, positions.index[row], published[row]) for row in range(self.count)
        ]
        return {"probing": conclude_probing(shards, self.dataset, probed, positions, ProbingOptions(), device=device)}


class Clock:
    """Seconds by part of the work, as progress tells them."""

    def __init__(self) -> None:
        self.wall: dict[str, float] = {}
        self.cpu: dict[str, float] = {}
        self.silent, self._part = 0.0, "start"
        self._at = time.perf_counter(), spent()

    def heard(self, what: str, done: int, total: int) -> None:
        """A report of progress."""
        wall, cpu = time.perf_counter(), spent()
        self.silent = max(self.silent, wall - self._at[0])
        for times, before, now in ((self.wall, self._at[0], wall), (self.cpu, self._at[1], cpu)):
            times[self._part] = times.get(self._part, 0.0) + now - before
        self._at, self._part = (wall, cpu), what

    @contextmanager
    def running(self) -> Iterator[None]:
        """While something runs."""
        with reporting(self.heard):
            yield
        self.heard("", 0, 0)


def spent() -> float:
    """Processor seconds of this process and of those it made that have ended."""
    return time.process_time() + sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])


def measure(answers: Answers, study: str, folder: Path, device: torch.device) -> tuple[Clock, dict[str, xr.Dataset]]:
    """Write the shards, then conclude from them."""
    of = f"{answers.count}-{answers.layers}x{answers.heads}x{answers.width}x{answers.ranks}"
    provenance = Provenance(study, 1, {"id": of}, {"name": "synthetic", "size": answers.count}, {}, 0)
    store = ShardStore(folder, provenance, examples=answers.count, size=SHARD)
    draw: Callable[[Shard], xr.Dataset] = getattr(answers, f"{study}_shard")
    shards = run_shards(draw, split_shards(answers.count, SHARD), store)
    clock = Clock()
    with clock.running():
        found = getattr(answers, study)(shards, device)
    return clock, found


def table(study: str, clocks: dict[int, Clock]) -> str:
    """Markdown: one row per part."""
    counts = list(clocks)
    lines = [
        f"| {study} | " + " | ".join(f"n = {n:,}" for n in counts) + " | ratio |",
        "|---|" + "---|" * (len(counts) + 1),
    ]
    parts = list(dict.fromkeys(part for clock in clocks.values() for part in clock.wall))

    def row(name: str, wall: list[float], cpu: list[float]) -> str:
        cells = [f"{a:.1f} ({b:.1f})" for a, b in zip(wall, cpu, strict=True)]
        ratio = f"{wall[-1] / wall[-2]:.2f}" if len(wall) > 1 and wall[-2] > 0.05 else ""
        return f"| {name} | " + " | ".join(cells) + f" | {ratio} |"

    def of_part(kind: str, part: str) -> list[float]:
        return [getattr(one, kind).get(part, 0.0) for one in clocks.values()]

    lines += [row(part, of_part("wall", part), of_part("cpu", part)) for part in parts]
    walls, spents = ([sum(getattr(one, kind).values()) for one in clocks.values()] for kind in ("wall", "cpu"))
    silences = " | ".join(f"{one.silent:.1f}" for one in clocks.values())
    lines += [row("**all**", walls, spents), f"| longest silence | {silences} | |"]
    return "\n".join(lines)


def differences(found: dict[str, xr.Dataset], against: Path) -> list[str]:
    """By how much each variable differs from a saved one, the largest and where; those that are equal are left out."""
    lines = []
    for name, dataset in found.items():
        before = unpack(against.with_suffix(f".{name}").read_bytes())
        for key, values in dataset.variables.items():
            if values.dtype.kind not in "fiub" or key not in before.variables:
                continue
            now, then = values.values.astype(float), before.variables[key].values.astype(float)
            if now.shape != then.shape or (np.isnan(now) != np.isnan(then)).any():
                lines.append(f"{name} {key}: another shape, or NaN elsewhere")
            elif (apart := float(np.nanmax(np.abs(now - then), initial=0.0))) > 1e-6:
                share = float(np.mean(np.abs(now - then)[~np.isnan(now)] > 1e-6))
                lines.append(f"{name} {key}: {apart:.2g} apart at most, {share:.0%} of {now.size}")
    return lines


def main() -> None:
    """Measure every number of answers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("answers", nargs="*", type=int, default=[500, 1000])
    parser.add_argument("--shape", default="30x9x576", help="layers x heads x width")
    parser.add_argument("--ranks", type=int, default=100, help="eigenvalues per head")
    parser.add_argument("--studies", nargs="+", default=["spectral", "probing"])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--folder", type=Path, help="where shards are written, and kept; a temporary folder by default")
    parser.add_argument("--save", type=Path, help="store the numbers of the last n next to FILE")
    parser.add_argument("--against", type=Path, help="compare them with what --save stored")
    given = parser.parse_args()
    on_gpu = given.device.startswith("cuda")
    print(torch.cuda.get_device_name() if on_gpu else f"{torch.get_num_threads()} CPU threads", given.shape, flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        for study in given.studies:
            clocks = {}
            for count in given.answers:
                answers = Answers(count, *map(int, given.shape.split("x")), given.ranks)
                clocks[count], found = measure(
                    answers, study, given.folder or Path(temporary), torch.device(given.device)
                )
                print(study, count, f"{sum(clocks[count].wall.values()):.1f} s", flush=True)
            print(table(study, clocks) + "\n", flush=True)
            for name, dataset in found.items():
                if given.save:
                    given.save.with_suffix(f".{name}").write_bytes(pack(dataset))
            if given.against:
                print("\n".join(differences(found, given.against)) or "no number differs by more than 1e-6")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"times: wall (processor) seconds; peak of memory {peak:.1f} GiB")


if __name__ == "__main__":
    main()
