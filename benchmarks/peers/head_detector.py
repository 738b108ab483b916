"""Runs in TransformerLens' own environment, as a child of `headbench`: `head_detector` on models and tokens that it is given.

    python -m peers.head_detector FOLDER       one folder per model: weights, tokenizer, sequences.json; prints JSON

`detect_head` takes text, and encodes it by `model.to_tokens`; here it is given the token ids of Headwise's sequences in its
place, so that both see the same tokens. Previous-token heads are sought in texts, the others in repeated random tokens.
Attention of a token to itself and to the first token is left in, as by default. Does not know Headwise.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from transformer_lens.head_detector import detect_head
from transformer_lens.model_bridge import TransformerBridge
from transformers import AutoModelForCausalLM, AutoTokenizer

PATTERNS = {"previous": "previous_token_head", "duplicate": "duplicate_token_head", "induction": "induction_head"}


def scores(folder: Path) -> dict[str, list[list[float]]]:
    """(layer, head) of every kind."""
    hf = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    bridge: Any = TransformerBridge.boot_transformers(
        hf.config.name_or_path or "known heads", hf_model=hf, tokenizer=AutoTokenizer.from_pretrained(folder), device="cpu",
        dtype=torch.float32,
    )  # fmt: skip
    sequences = json.loads((folder / "sequences.json").read_text())
    found = {}
    for kind, pattern in PATTERNS.items():
        ids = sequences["texts" if kind == "previous" else "repeats"]
        rows = []
        for one in ids:
            bridge.to_tokens = lambda _, one=one, **__: torch.tensor([one])
            with torch.no_grad():
                rows.append(detect_head(bridge, "", pattern))
        found[kind] = torch.stack(rows).mean(0).tolist()
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps([scores(folder) for folder in sorted(Path(sys.argv[1]).iterdir()) if folder.is_dir()]))
