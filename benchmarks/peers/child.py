"""Runs in a peer's own environment, as a child of `comparison`: times one peer, or takes its memory, and prints JSON.

    python -m peers.child nnsight --model FOLDER --ids FILE --rounds 3 --readings FILE      times, and the readings
    python -m peers.child nnsight --model FOLDER --ids FILE --memory observed               largest resident set, MB

The base of the ratio is a plain SDPA forward of `transformers` in this same process, on a copy of the weights of its
own, since the peers change the model that they are given. Does not know Headwise.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from clock import in_turn, peak
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from peers import PEERS


def load(folder: Path) -> Any:
    """The weights, with SDPA."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa")
    return model.eval()


def plain(model: Any, ids: Tensor) -> Callable[[], None]:
    """The base: one ordinary forward pass with its logits."""

    def run() -> None:
        with torch.no_grad():
            model(ids, use_cache=False)

    return run


def observed(name: str, folder: Path) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """The peer's way, on weights of its own."""
    found: Callable[[Tensor], tuple[Tensor, Tensor]] = import_module(PEERS[name].module).observer(
        load(folder), AutoTokenizer.from_pretrained(folder), logits=True
    )
    return found


def timed(options: argparse.Namespace, ids: Tensor) -> dict[str, Any]:
    """Seconds of every round of both, and the versions; the readings go to a file."""
    observe, last = observed(options.peer, options.model), {}

    def run() -> None:
        last["sums"], last["diagonal"] = observe(ids)

    seconds = in_turn({"plain": plain(load(options.model), ids), "observed": run}, options.rounds)
    save_file({name: values.contiguous() for name, values in last.items()}, options.readings)
    names = PEERS[options.peer].package, "transformers", "torch"
    return {"seconds": seconds, "versions": {name: version(name) for name in names}}


def remembered(options: argparse.Namespace, ids: Tensor) -> dict[str, Any]:
    """The largest resident set of a process that does this and nothing else."""
    if options.memory == "plain":
        plain(load(options.model), ids)()
    else:
        observed(options.peer, options.model)(ids)
    return {"memory": peak()}


def main() -> None:
    """Do one of the two; the last line of the output is the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--ids", type=Path, required=True)
    parser.add_argument("--readings", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--memory", choices=("plain", "observed"))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    ids = load_file(options.ids)["ids"]
    print(json.dumps(remembered(options, ids) if options.memory else timed(options, ids)))


if __name__ == "__main__":
    main()
