"""The peers in this process, on a model that is here already: where they cannot have an environment of their own.

That is so on a GPU machine without a network, where the libraries are installed next to Headwise. Each peer changes the
model it is given (eager attention; TransformerLens puts modules of its own in), so this comes last, and the peer that
changes most comes at the very end. Their attention is eager at the model's own precision, and so is that of all layers
below a map; how far they are from Headwise is in half precision no more than a sign that both did the same work.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from tempfile import TemporaryDirectory
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import Tensor
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from peers import PEERS
from peers.comparison import Readings, difference

ORDER = ("nnsight", "transformer-lens")

Timed = Callable[[Callable[[], Any]], tuple[float, float]]


def peer_rows(
    model: Any, shown: dict[str, Tensor], plain: dict[str, dict[str, Any]], ours: dict[str, Readings], timed: Timed
) -> list[dict[str, Any]]:
    """One row a peer and shape; one that says why, where a peer cannot be imported or run.

    By shape: the tokens, the plain forward's row, Headwise's readings. `timed` gives seconds and memory.
    """
    rows: list[dict[str, Any]] = []
    for name in ORDER:
        try:
            with TemporaryDirectory() as folder:
                module = import_module(PEERS[name].module)
                observe = module.observer(model, stand_in(folder), logits=False)
        except Exception as error:  # a library of others, in an environment that was not made for it
            rows += [_refused(name, shape, error) for shape in shown]
            continue
        for shape, ids in shown.items():
            try:
                row = _row(name, shape, plain[shape], *timed(partial(observe, ids)))
                rows.append(
                    row | {"difference": difference(Readings(*(one.cpu() for one in observe(ids))), ours[shape])}
                )
            except Exception as error:
                rows.append(_refused(name, shape, error))
    return rows


def stand_in(folder: str) -> Any:
    """A tokenizer of three words, for a library that will not do without one, nor without its files; only ids are given."""
    words = Tokenizer(WordLevel({"<unk>": 0, "<s>": 1, "</s>": 2}, unk_token="<unk>"))
    marks = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "</s>"}
    PreTrainedTokenizerFast(tokenizer_object=words, **marks).save_pretrained(folder)
    return AutoTokenizer.from_pretrained(folder)


def _row(name: str, shape: str, plain: dict[str, Any], seconds: float, memory: float) -> dict[str, Any]:
    row = {"shape": shape, "case": PEERS[name].label, "seconds": seconds, "ratio": seconds / plain["seconds"]}
    return row | {"memory": memory, "memory_ratio": memory / plain["memory"]}


def _refused(name: str, shape: str, error: Exception) -> dict[str, Any]:
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    said = f"{type(error).__name__}: {error}".splitlines()[0].replace("|", "/")[:160]
    return {"shape": shape, "case": PEERS[name].label, "refused": f"no number ({said})"}
