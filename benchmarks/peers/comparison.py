"""The peers' rows of the table: their times and memory from their own environments, and how far they are from Headwise.

Weights and tokens are handed over as files, the readings come back as one. A peer that cannot be installed, or cannot
run the model, gets a row that says so. One that runs but gives other numbers than Headwise ends the benchmark: one of the
two is wrong then, and a time for a wrong answer is worth nothing.

The difference is |theirs - ours| / (1 + |ours|), the largest over layers, examples, heads and tokens: a column sum of a
first token is in the hundreds, where one unit in the last place of a float32 is no longer small, and most are below one.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import torch
from clock import ratio
from safetensors.torch import load_file, save_file
from torch import Tensor

from peers import PEERS
from peers.environment import NoEnvironment, last_error, python_of

HERE = Path(__file__).parents[1]
MEMORY = ("plain", "observed")
LONGEST = 3600  # seconds for one child
TOLERANCE = 5e-4  # ten times what eager attention was apart at 4 x 1024 tokens, float32 through 30 layers


class Readings(NamedTuple):
    """Each (layer, batch, head, token)."""

    sums: Tensor
    diagonal: Tensor


class CannotRun(Exception):  # noqa: N818
    """Why a peer has no number."""


def difference(theirs: Readings, ours: Readings) -> float:
    """The largest over both; infinite where a number is missing or shapes are unlike.

    >>> one = Readings(torch.tensor([3.0]), torch.tensor([0.5]))
    >>> difference(Readings(torch.tensor([4.0]), torch.tensor([0.5])), one)
    0.25
    """
    found = 0.0
    for their, our in zip(theirs, ours, strict=True):
        if their.shape != our.shape or not bool(their.isfinite().all()):
            return float("inf")
        apart = (their.double() - our.double()).abs() / (1 + our.double().abs())
        found = max(found, float(apart.max()))
    return found


def peer_row(name: str, shape: str, folder: Path, ours: Readings, rounds: int, memory: bool = True) -> dict[str, Any]:
    """One row: times against the plain forward of the same child, agreement, and memory of two more children if wanted.

    `folder` holds the model in `model/` and the tokens in `SHAPE.safetensors` (see `hand_over`).
    """
    row: dict[str, Any] = {"shape": shape, "case": PEERS[name].label}
    readings = folder / f"{name}-{shape}.safetensors"
    try:
        python = python_of(name)
        timed = _child(python, name, folder, shape, "--rounds", str(rounds), "--readings", str(readings))
        held = [_child(python, name, folder, shape, "--memory", case)["memory"] for case in MEMORY if memory]
    except (NoEnvironment, CannotRun) as error:
        return row | {"refused": str(error)}
    apart = difference(Readings(**load_file(readings)), ours)
    if not apart <= TOLERANCE:
        raise SystemExit(
            f"{PEERS[name].title} at {shape} tokens is {apart:.1e} away from Headwise, more than {TOLERANCE:.0e}: one of "
            "the two is wrong, so no time is given; compare both with eager attention"
        )
    seconds = timed["seconds"]
    row |= ratio(seconds["observed"], seconds["plain"])._asdict() | {"difference": apart, "versions": timed["versions"]}
    return row | ({"memory": held[1], "memory_ratio": held[1] / held[0]} if memory else {})


def hand_over(folder: Path, model: Any, shapes: dict[str, Tensor]) -> None:
    """Write what the children read: the model, its tokenizer, and the tokens of every shape."""
    model.hf.save_pretrained(folder / "model")
    model.tokenizer.save_pretrained(folder / "model")
    for shape, ids in shapes.items():
        save_file({"ids": ids.contiguous()}, folder / f"{shape}.safetensors")


def _child(python: Path, name: str, folder: Path, shape: str, *options: str) -> dict[str, Any]:
    command = [
        str(python), "-m", "peers.child", name, "--model", str(folder / "model"), "--ids",
        str(folder / f"{shape}.safetensors"), "--threads", str(torch.get_num_threads()), *options,
    ]  # fmt: skip
    own = {"HF_HUB_OFFLINE": "1", "WANDB_MODE": "disabled", "TOKENIZERS_PARALLELISM": "false"}
    around = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | own
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=HERE, env=around, timeout=LONGEST)
    except subprocess.TimeoutExpired as error:
        raise CannotRun(f"gave no answer in {LONGEST} s") from error
    if done.returncode:
        raise CannotRun(f"could not run the model ({last_error(done.stderr) or f'ended with {done.returncode}'})")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
