"""A model larger than the memory that it is given: written layer by layer, then built under a watch of its memory.

    python benchmarks/large_model.py write /tmp/seven --layers 13           # the shape of Llama-2-7B, 5.9 GB
    python benchmarks/large_model.py build /tmp/seven --memory cpu=2GiB --studies profile --data texts.jsonl

`write` draws one layer at a time in bfloat16 and puts it into a safetensors file of its own, so that it holds a layer, or the
model's two ends, and no more. The weights are random (mean 0, deviation 0.02; gains 1), the tokenizer is the default
model's, and the vocabulary is as large as that one's.

`build` runs `headwise build` in a process of its own and looks at it five times a second: what it holds in all (resident:
the mapped pages of the files among it, which the system takes back when it needs them), what of it is its own (anonymous:
what would have to be swapped), what was swapped, and what it read.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import AutoConfig, LlamaConfig

from headwise.model import open_stored

SEVEN = {
    "hidden_size": 4096, "intermediate_size": 11008, "num_attention_heads": 32, "num_key_value_heads": 32,
    "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
}  # fmt: skip
SEVENTY = SEVEN | {"hidden_size": 8192, "intermediate_size": 28672, "num_attention_heads": 64, "num_key_value_heads": 8}
SHAPES = {"7b": SEVEN, "70b": SEVENTY}
DEVIATION = 0.02
EVERY = 0.2  # seconds between two looks


class Watched(NamedTuple):
    """Of a process that has ended; MB and seconds."""

    code: int
    seconds: float
    resident: float
    anonymous: float
    swapped: float
    read: float  # from the disk itself; what the system still had in memory is not counted


def write(folder: Path, config: Any, tokenizer: Any, seed: int = 0) -> Path:
    """A checkpoint of this config with random weights, one file per layer."""
    folder.mkdir(parents=True, exist_ok=True)
    config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    generator = torch.Generator().manual_seed(seed)
    files = {"model-ends.safetensors": _ends(config, generator)}
    files |= {f"model-{layer:05d}.safetensors": None for layer in range(config.num_hidden_layers)}
    index: dict[str, str] = {}
    for layer, (file, tensors) in enumerate(files.items(), start=-1):
        made = tensors if tensors is not None else _layer(config, layer, generator)
        save_file(made, folder / file, metadata={"format": "pt"})
        index |= dict.fromkeys(made, file)
        files[file] = None  # let go
    note = {"metadata": {}, "weight_map": index}
    (folder / "model.safetensors.index.json").write_text(json.dumps(note), encoding="utf-8")
    return folder


def _ends(config: Any, generator: torch.Generator) -> dict[str, Tensor]:
    shape = (config.vocab_size, config.hidden_size)
    made = {name: _drawn(shape, generator) for name in ("model.embed_tokens.weight", "lm_head.weight")}
    return made | {"model.norm.weight": torch.ones(config.hidden_size, dtype=torch.bfloat16)}


def _layer(config: Any, layer: int, generator: torch.Generator) -> dict[str, Tensor]:
    hidden, inner = config.hidden_size, config.intermediate_size
    keys = hidden // config.num_attention_heads * config.num_key_value_heads
    attention = {"q": (hidden, hidden), "k": (keys, hidden), "v": (keys, hidden), "o": (hidden, hidden)}
    shapes = {f"self_attn.{name}_proj": shape for name, shape in attention.items()}
    shapes |= {"mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden), "mlp.down_proj": (hidden, inner)}
    made = {f"{name}.weight": _drawn(shape, generator) for name, shape in shapes.items()}
    gains = ("input_layernorm.weight", "post_attention_layernorm.weight")
    made |= {name: torch.ones(hidden, dtype=torch.bfloat16) for name in gains}
    return {f"model.layers.{layer}.{name}": value for name, value in made.items()}


def _drawn(shape: tuple[int, int], generator: torch.Generator) -> Tensor:
    return torch.empty(shape, dtype=torch.bfloat16).normal_(0.0, DEVIATION, generator=generator)


def watched(arguments: list[str]) -> Watched:
    """Run a command of the `headwise` of this Python."""
    start = time.perf_counter()
    command = [sys.executable, "-c", "from headwise.cli.main import main; main()", *arguments]
    child = subprocess.Popen(command)
    most = {"VmHWM": 0.0, "RssAnon": 0.0, "VmSwap": 0.0, "read_bytes": 0.0}
    while child.poll() is None:
        for field, value in _looked_at(child.pid).items():
            most[field] = max(most[field], value)
        time.sleep(EVERY)
    seconds = time.perf_counter() - start
    return Watched(child.returncode, seconds, most["VmHWM"], most["RssAnon"], most["VmSwap"], most["read_bytes"])


def _looked_at(process: int) -> dict[str, float]:
    """MB, by field; nothing once the process has ended."""
    found: dict[str, float] = {}
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
        lines += Path(f"/proc/{process}/io").read_text().splitlines()
    except OSError:
        return found
    for line in lines:
        field, _, value = line.partition(":")
        if field in ("VmHWM", "RssAnon", "VmSwap"):
            found[field] = int(value.split()[0]) * 1024 / 1e6
        if field == "read_bytes":
            found[field] = int(value) / 1e6
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    making = verbs.add_parser("write")
    making.add_argument("folder", type=Path)
    making.add_argument("--layers", type=int, default=13)
    making.add_argument("--shape", choices=SHAPES, default="7b")
    building = verbs.add_parser("build")
    building.add_argument("folder", type=Path)
    given, rest = parser.parse_known_args()
    if given.verb == "write":
        tokenizer = open_stored().tokenizer  # the default model's
        config = LlamaConfig(**SHAPES[given.shape], num_hidden_layers=given.layers, vocab_size=len(tokenizer))
        config.dtype, config.architectures = torch.bfloat16, ["LlamaForCausalLM"]
        start = time.perf_counter()
        write(given.folder, config, tokenizer)
        size = sum(file.stat().st_size for file in given.folder.iterdir()) / 1e9
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        print(f"{size:.2f} GB in {time.perf_counter() - start:.0f} s, at most {peak:.2f} GB in memory")
        return
    AutoConfig.from_pretrained(given.folder)  # refuse a wrong folder before anything is watched
    with tempfile.TemporaryDirectory() as output:
        where = [] if {"-o", "--output"} & set(rest) else ["-o", os.path.join(output, "atlas")]
        found = watched(["build", str(given.folder), *rest, *where])
    print(json.dumps({name: round(value, 1) for name, value in found._asdict().items()}))
    raise SystemExit(found.code)


if __name__ == "__main__":
    main()
