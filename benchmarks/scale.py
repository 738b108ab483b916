"""A 70B model on a million examples on N GPUs: how long, how dear, and what breaks first.

    python benchmarks/scale.py                      # the tables and the figure of docs/scale.md

Three studies one after another (answers, spectral, probing: those that go over examples), each a run of `simulation` with the
costs of `scale_model`. Two ways to store: the driver commits all shards into its folder, or workers write to an object store
and the driver only hears of it. And once more with the remedies for what breaks (`REMEDIED`).
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import NamedTuple

import matplotlib
from matplotlib import pyplot
from page import write_section
from scale_model import (
    ASSUMED,
    SEVENTY,
    Shape,
    assumed,
    driver_seconds,
    example_bytes,
    example_seconds,
    gpus_needed,
    load_seconds,
    rate,
)
from simulation import Run, simulate

DOCS = Path(__file__).parents[1] / "docs"
STUDIES = ("answers", "spectral", "probing")
GPUS = (8, 32, 128, 512, 1024, 2048, 4096)
HOUR = 3600


class Way(NamedTuple):
    """How the studies are run."""

    shard: int  # examples
    probed: int | None = None  # examples that `probing` sees; None: all
    near: bool = False  # whether the model lies on every node's disk, so that loads do not wait for each other
    overlaid: bool = False  # whether a shard is uploaded while the next one is measured
    lost: float | None = None  # seconds between two losses of a GPU; None: as they fail by themselves


SMALL, LARGE = Way(64), Way(2048)
REMEDIED = Way(512, probed=20_000, near=True, overlaid=True)
LENT = REMEDIED._replace(lost=24 * 3600.0)  # machines that are taken back once a day


class Row(NamedTuple):
    """N GPUs."""

    gpus: int
    workers: int
    hours: float  # workers write to a store
    ideal: float  # hours, if nothing were lost
    efficiency: float
    failures: int
    redone: int  # examples
    driver: float  # share of the time that it is busy, at its busiest study
    writes: float  # a second, at the busiest study
    folder: float  # hours, where the driver commits
    dollars: float


def run_of(study: str, shape: Shape, examples: int, way: Way, gpus: int, *, commits: bool, seed: int = 0) -> Run:
    """A study over all examples."""
    each = gpus_needed(shape)
    workers = gpus // each
    size = way.shard * example_bytes(study, shape)[1]
    seconds, upload = way.shard * example_seconds(study, shape), size / assumed("upload to a store, per worker")
    together = max(seconds, upload) if way.overlaid else seconds + upload
    return Run(
        shards=math.ceil(seen(study, examples, way) / way.shard),
        workers=workers,
        shard=seconds if commits else together,
        load=load_seconds(shape, 1 if way.near else workers) if study == STUDIES[0] else 0.0,
        driver=driver_seconds(workers, size, commits=commits),
        mtbf=(way.lost or assumed("time between two failures of a GPU")) / each,
        restart=assumed("restart of a worker") + load_seconds(shape),
        spread=assumed("spread of shard times"),
        slow=assumed("share of slow shards"),
        seed=seed,
    )


def seen(study: str, examples: int, way: Way) -> int:
    """Examples that a study sees."""
    return min(examples, way.probed) if study == "probing" and way.probed is not None else examples


def row_of(shape: Shape, examples: int, way: Way, gpus: int) -> Row:
    """All studies on so many GPUs."""
    stored = {study: run_of(study, shape, examples, way, gpus, commits=False) for study in STUDIES}
    done = {study: simulate(run) for study, run in stored.items()}
    by_driver = [simulate(run_of(study, shape, examples, way, gpus, commits=True)) for study in STUDIES]
    seconds = sum(one.seconds for one in done.values())
    workers = stored[STUDIES[0]].workers
    ideal = sum(seen(study, examples, way) * example_seconds(study, shape) for study in STUDIES) / workers
    writes = sum(run.shards for run in stored.values())
    return Row(
        gpus=gpus,
        workers=workers,
        hours=seconds / HOUR,
        ideal=ideal / HOUR,
        efficiency=ideal / seconds,
        failures=sum(one.failures for one in done.values()),
        redone=sum(one.redone for one in done.values()) * way.shard,
        driver=max(one.driver for one in done.values()),
        writes=max(run.shards / done[study].seconds for study, run in stored.items()),
        folder=sum(one.seconds for one in by_driver) / HOUR,
        dollars=gpus * seconds / HOUR * assumed("a GPU hour") + writes / 1000 * assumed("1,000 writes to a store"),
    )


def table(rows: list[Row]) -> str:
    """For the page."""
    head = "| GPUs | workers | hours | without losses | efficiency | failures | examples redone | driver busy | writes/s | "
    head += "hours, by a folder | $ |"
    lines = [head, "|---" * 11 + "|"]
    lines += [
        f"| {row.gpus:,} | {row.workers:,} | **{_hours(row.hours)}** | {_hours(row.ideal)} | {row.efficiency:.0%} | "
        f"{row.failures} | {row.redone:,} | {row.driver:.0%} | {row.writes:.1f} | {_hours(row.folder)} | {row.dollars:,.0f} |"
        for row in rows
    ]
    return "\n".join(lines)


def per_example(shape: Shape, examples: int) -> str:
    """What each study costs, per example and in all."""
    lines = [
        "| study | s, one worker | bytes packed | all, packed | all, held when it is concluded | nodes' memory |",
        "|---" * 6 + "|",
    ]
    for study in STUDIES:
        held, packed = example_bytes(study, shape)
        times = held * examples / assumed("memory of a node")
        lines.append(
            f"| {study} | {example_seconds(study, shape):.4f} | {_size(packed)} | {_size(packed * examples)} | "
            f"{_size(held * examples)} | {times:.2g} |"
        )
    return "\n".join(lines)


def assumptions() -> str:
    """Everything that was not measured."""
    lines = ["| assumed | | |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {name} | {value:.3g} | {unit} |" for name, (value, unit) in ASSUMED.items())])


def breaking(shape: Shape, shard: int) -> str:
    """Where each part of the machinery is at its end, the first one first."""
    seconds = {study: shard * example_seconds(study, shape) for study in STUDIES}
    sizes = {study: example_bytes(study, shape) for study in STUDIES}
    lines = ["| what | is at its end at | remedy |", "|---|---|---|"]
    for study in ("probing", "spectral"):
        size = shard * sizes[study][1]
        workers = seconds[study] / driver_seconds(1, size, commits=True)
        what = f"a driver that commits `{study}` into its folder, {_size(size)} per shard"
        how = (
            f"{workers:,.0f} workers"
            if workers >= 1
            else f"the first one: {1 / workers:.1f} times as long as measuring"
        )
        lines.append(f"| {what} | {how} | an atlas at a URL: workers write themselves |")
    upload = sizes["probing"][1] / assumed("upload to a store, per worker") / example_seconds("probing", shape)
    what = f"a worker that uploads `probing`, {_size(sizes['probing'][1])} per example"
    lines.append(
        f"| {what} | the first one: {upload:.1f} times as long as measuring | upload during the next shard; a sample |"
    )
    for study in ("probing", "spectral"):
        most = assumed("memory of a node") / sizes[study][0]
        what = f"`{study}`, finalized with all results in memory ({_size(sizes[study][0])} per example)"
        lines.append(f"| {what} | {most:,.0f} examples on a node of 2 TB | {REMEDIES[study]} |")
    loads = assumed("all loads together") / assumed("model load, per worker")
    what, remedy = (
        f"all workers that load {_size(shape.bytes)} at once",
        "a copy on each node's disk, handed from node to node",
    )
    lines.append(f"| {what} | {loads:,.0f} workers; {load_seconds(shape, 2048) / 60:,.0f} min at 2,048 | {remedy} |")
    quick = min(seconds.values())
    what = f"the driver's loop, shards of {quick:,.1f} s"
    lines.append(f"| {what} | {_workers_of(quick):,} workers | larger shards: `--set STUDY.shard=512` |")
    writes = assumed("requests a store takes") * quick
    lines.append(f"| writes to one prefix of a store | {writes:,.0f} workers | larger shards |")
    return "\n".join(lines)


REMEDIES = {
    "spectral": "conclude a layer at a time (every test is of one head), which holds 1/80",
    "probing": "probe a sample: an AUROC of 20,000 answers is known to 0.004; or fewer sites and positions",
}


def _workers_of(seconds: float) -> int:
    """The fewest workers whose shards of so many seconds keep the driver's loop busy all the time."""
    workers = 1
    while workers < 10**6 and workers * driver_seconds(workers, 0, commits=False) < seconds:
        workers = math.ceil(workers * 1.05)
    return workers


def figure(lines: dict[str, tuple[list[Row], str]], path: Path) -> None:
    """Hours against GPUs: without losses, at a store and by a folder, each way a colour."""
    matplotlib.use("Agg")
    picture, axes = pyplot.subplots(figsize=(7.2, 4.4), layout="constrained")
    first = next(iter(lines.values()))[0]
    gpus = [row.gpus for row in first]
    axes.plot(gpus, [row.folder for row in first], color="#555555", marker="s", label="into the driver's folder")
    axes.plot(gpus, [row.ideal for row in first], color="#999999", linestyle=":", label="all work, nothing lost")
    for name, (rows, colour) in lines.items():
        axes.plot(gpus, [row.hours for row in rows], color=colour, marker="o", label=name)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(gpus, [f"{count:,}" for count in gpus])
    axes.set_yticks([0.01, 0.1, 1, 10, 100], ["0.01", "0.1", "1", "10", "100"])
    axes.minorticks_off()
    axes.set_xlabel("GPUs (H200, two per worker)")
    axes.set_ylabel("hours for 1,000,000 examples")
    axes.set_title("A 70B model: answers, spectral and probing, simulated", loc="left", fontsize=11)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.savefig(path, dpi=150)
    pyplot.close(picture)


def _hours(hours: float) -> str:
    """For a table.

    >>> _hours(0.123), _hours(12.34)
    ('0.12', '12.3')
    """
    return f"{hours:,.1f}" if hours >= 1 else f"{hours:.2f}"


def _size(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} PB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=1_000_000)
    given = parser.parse_args()
    rows = {way: [row_of(SEVENTY, given.examples, way, gpus) for gpus in GPUS] for way in (SMALL, LARGE, REMEDIED)}
    many = [row_of(SEVENTY, 100 * given.examples, LENT, gpus) for gpus in GPUS]
    parts = {
        "an example": per_example(SEVENTY, given.examples),
        "small shards": table(rows[SMALL]),
        "large shards": table(rows[LARGE]),
        "remedied": table(rows[REMEDIED]),
        "a hundred times": table(many),
        "breaking": breaking(SEVENTY, SMALL.shard),
        "assumed": assumptions(),
    }
    for name, text in parts.items():
        print(f"\n{name}\n\n{text}")
        write_section(name, text, DOCS / "scale.md")
    print(f"\nrate {rate() / 1e12:.0f} TFLOP/s; {gpus_needed(SEVENTY)} GPUs per worker; weights {_size(SEVENTY.bytes)}")
    lines = {
        "to a store, 64 examples per shard": (rows[SMALL], "#c2410c"),
        "to a store, 2,048 per shard": (rows[LARGE], "#1d4ed8"),
        "with the remedies below": (rows[REMEDIED], "#15803d"),
    }
    figure(lines, DOCS / "images" / "scale.png")


if __name__ == "__main__":
    main()
