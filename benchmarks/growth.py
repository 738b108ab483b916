"""Does a build of many examples hold more memory with every one? One `headwise build`, watched from outside.

A tiny Llama with random weights and as many short texts as are asked for, each unlike the others; the profile study, 10
examples per shard. Twice a second another process notes the resident set of the build and how many shards are committed.

The slope is that of a straight line through (examples, MB) over the second half of the measuring: before that, memory pools
are filled. Its 95 % interval comes from the slopes of ten blocks of that half (Student's t), since samples near each other
are alike. Called flat when, at the upper end of that interval, all the examples together would add at most 2 % to what the
process holds. What finalizing takes, when all results come together, is reported separately: that is not measuring.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import stats

BLOCKS, SHARE = 10, 0.02
EVERY = 0.5  # seconds
SHARD = 10


class Sample(NamedTuple):
    """One look."""

    seconds: float
    examples: int  # committed
    resident: float  # MB


@dataclass(frozen=True)
class Growth:
    """What the looks came to."""

    samples: list[Sample]
    examples: int
    peak: float  # MB, of the whole run

    @property
    def half(self) -> list[Sample]:
        """The second half of the measuring."""
        return [one for one in self.samples if one.examples >= self.examples / 2]

    @property
    def slope(self) -> tuple[float, float, float]:
        """MB for 1,000 examples, and the ends of its interval."""
        blocks = [
            block for block in np.array_split(np.array(self.half)[:, 1:], BLOCKS) if len(np.unique(block[:, 0])) > 2
        ]
        slopes = [np.polyfit(block[:, 0] / 1000, block[:, 1], 1)[0] for block in blocks]
        whole = np.array(self.half)
        line = float(np.polyfit(whole[:, 1] / 1000, whole[:, 2], 1)[0])
        reach = float(stats.t.ppf(0.975, len(slopes) - 1) * np.std(slopes, ddof=1) / np.sqrt(len(slopes)))
        return line, line - reach, line + reach

    @property
    def flat(self) -> bool:
        """Whether all examples together would add next to nothing."""
        return self.slope[2] * self.examples / 1000 <= SHARE * self.half[-1].resident

    def summary(self) -> str:
        """The curve at every tenth, and what it means."""
        line, low, high = self.slope
        marks = [self.near(share) for share in np.linspace(0.1, 1, 10)]
        rows = [f"| {one.examples:,} | {one.seconds:.0f} | {one.resident:.1f} |" for one in marks]
        head = ["| examples committed | seconds | resident set, MB |", "|--:|--:|--:|"]
        total = self.examples / 1000 * line
        words = (
            f"{self.examples:,} examples in {self.samples[-1].seconds:.0f} s. Slope over the second half: {line:+.3f} MB for "
            f"1,000 examples (95 % interval {low:+.3f} to {high:+.3f}), {total:+.1f} MB for all of them: "
            f"{'flat' if self.flat else 'NOT flat'}. The most that was held, conclusion included: {self.peak:.1f} MB."
        )
        return "\n".join([*head, *rows, "", words])

    def near(self, share: float) -> Sample:
        """The look at which this share was committed."""
        return min(self.samples, key=lambda one: abs(one.examples - share * self.examples))


def watched(examples: int, log: Path | None = None) -> Growth:
    """Build, and look on."""
    with tempfile.TemporaryDirectory() as folder:
        arguments, atlas = prepared(Path(folder), examples)
        command = [sys.executable, "-c", "from headwise.cli.main import main; main()", *arguments]
        start, samples = time.monotonic(), []
        with subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}) as build:
            while build.poll() is None:
                one = look(build.pid, atlas, time.monotonic() - start, examples)
                samples += [one] if one is not None else []
                time.sleep(EVERY)
            peak = max((one.resident for one in samples), default=0.0)
        assert build.returncode == 0, "the build failed"
    if log is not None:
        log.write_text("\n".join(json.dumps(one._asdict()) for one in samples))
    return Growth(measuring(samples), examples, peak)


def measuring(samples: list[Sample]) -> list[Sample]:
    """Those from the first commit to the last; after that the study is concluded, and the shards are deleted.

    >>> [one.examples for one in measuring([Sample(1, 0, 9.0), Sample(2, 10, 9.0), Sample(3, 30, 9.0), Sample(4, 20, 9.5)])]
    [10, 30]
    """
    most = max(one.examples for one in samples)
    last = next(place for place, one in enumerate(samples) if one.examples == most)
    return [one for one in samples[: last + 1] if one.examples]


def prepared(folder: Path, examples: int) -> tuple[list[str], Path]:
    """A model, texts, and the command line for them."""
    from planted import save_tiny, tiny_passages

    model, texts, atlas = (
        save_tiny(folder / "model", layers=2, heads=2, kv_heads=1),
        folder / "texts.jsonl",
        folder / "atlas",
    )
    passages = tiny_passages(examples - 2, tokens=(9, 24)).items
    texts.write_text(
        "\n".join(json.dumps({"id": one.id, "text": one.text, "register": one.register}) for one in passages)
    )
    settings = {"profile.repeats": 2, "profile.period": 10, "profile.shard": SHARD}
    given = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    return [
        "build",
        str(model),
        "--studies",
        "profile",
        "--data",
        str(texts),
        "--device",
        "cpu",
        "--json",
        "-o",
        str(atlas),
        *given,
    ], atlas


def look(pid: int, atlas: Path, seconds: float, examples: int) -> Sample | None:
    """What the process holds, and how far it is; None before it is."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        resident = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1000
        done = sum(1 for run in atlas.glob(".shards/*") for file in os.scandir(run) if file.name.endswith(".shard"))
    except (OSError, StopIteration):
        return None
    return Sample(seconds, min(examples, done * SHARD), resident)
