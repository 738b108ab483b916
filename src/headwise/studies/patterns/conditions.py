"""The conditions that are compared: a model and a reference model, or the same model without some heads.

Heads can be compared only where both models have the same layers and heads and see the same tokens; anything else is
refused before anything runs.

The reference is a loaded `Model`, a folder or hub id, or the folder of a PEFT adapter. An adapter is put on a copy of the
model; one trained with gates makes that copy sparse. Without a reference, the adapter that ships for this model is used, if
there is one (not for an offloaded model, which takes no adapter).
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headwise.core.dims import head_name, parse_heads
from headwise.core.errors import DataError, StudyError
from headwise.core.provenance import public_name
from headwise.corpora import Passages
from headwise.interventions.heads import ScaleHeads
from headwise.model import Model, is_offloaded, load, packaged_adapter
from headwise.seam import Intervention, Structure

NOTHING = "none"  # as a reference: none, not even the packaged adapter
MODEL, REFERENCE = "model", "reference"  # the keys of the two along the dim `condition`


@dataclass(frozen=True)
class Condition:
    """A model with its interventions."""

    key: str
    name: str  # as in figures
    structure: Structure
    interventions: tuple[Intervention, ...] = ()


def reference_model(model: Model, against: Model | str | Path | None) -> Model | None:
    """The model to compare with, on the same device and in the same dtype."""
    if isinstance(against, Model):
        return against
    if against is None and not is_offloaded(model.hf):
        against = packaged_adapter(model)
    if against is None or str(against).lower() == NOTHING:
        return None
    if (Path(against) / "adapter_config.json").is_file():
        return _with_adapter(model, against)
    return load(against, **model.load_arguments)


def _with_adapter(model: Model, adapter: str | Path) -> Model:
    """The first model with this adapter; a model that already has one is loaded again without it."""
    if model.adapter is not None or is_offloaded(model.hf):
        return load(model.id, adapter=adapter, **model.load_arguments)
    made = load(copy.deepcopy(model.hf), model.tokenizer, adapter=adapter)
    return replace(made, id=model.id, revision=model.revision)


def conditions_of(model: Model, against: Model | None, heads_off: str | None) -> list[Condition]:
    """The model alone, or the two conditions that are compared."""
    structure = Structure(model)
    name = short_name(model)
    if heads_off is not None:
        if against is not None:
            raise StudyError(
                "patterns can compare with another model (against) or without heads (heads_off), not both at once; "
                "choose one"
            )
        heads = parse_heads(heads_off)
        structure.require_heads(heads)
        without = f"{name} without {', '.join(head_name(*head) for head in heads)}"
        return [Condition(MODEL, name, structure), Condition(REFERENCE, without, structure, (ScaleHeads(heads, 0.0),))]
    if against is None:
        return [Condition(MODEL, name, structure)]
    _check_same_shape(model, against)
    other = short_name(against)
    if other == name:
        name, other = (
            public_name(one.id) + (f" + {public_name(one.adapter)}" if one.adapter else "") for one in (model, against)
        )
        other = f"{other}, the second" if other == name else other
    return [Condition(MODEL, name, structure), Condition(REFERENCE, other, Structure(against))]


def short_name(model: Model) -> str:
    """The model's name without its owner, and with its adapter."""
    name = model.id.rstrip("/").rsplit("/", 1)[-1].removesuffix(".gguf")
    if getattr(getattr(model.hf, "config", None), "attention_gate", None) is not None:
        return f"Sparse {name}"
    return f"{name} + {Path(model.adapter).name}" if model.adapter else name


def identity_of(model: Model) -> dict[str, Any]:
    """Identity of the reference model; its adapter by name only, because the digest identifies the weights."""
    found = model.identity() | {"adapter": model.adapter and Path(model.adapter).name}
    return {part: value for part, value in found.items() if part != "parameters"}  # it follows from the rest


def context_of(both: Sequence[Model | None]) -> int | None:
    """The most tokens that all of them accept; None where none has a limit."""
    return min((one.card.max_positions for one in both if one is not None and one.card.max_positions), default=None)


def check_same_tokens(model: Model, against: Model | None, passages: Passages, prompt: str) -> None:
    """Every text must become the same tokens in both models."""
    if against is None or against.tokenizer is None or against.tokenizer is model.tokenizer:
        return
    limit = context_of([model, against])
    for name, text in [("the prompt to be shown", prompt), *((repr(item.id), item.text) for item in passages.items)]:
        mine, theirs = model.ids(text, limit=limit), against.ids(text, limit=limit)
        if mine != theirs:
            pairs = enumerate(zip(mine, theirs, strict=False))
            index = next((i for i, (a, b) in pairs if a != b), min(len(mine), len(theirs)))
            tokens = [_token(one, ids, index) for one, ids in ((model, mine), (against, theirs))]
            raise DataError(
                f"{model.id} and {against.id} have different tokenizers: token {index} of {name} is {tokens[0]} for the one "
                f"and {tokens[1]} for the other; maps can be compared only where both see the same tokens, so give a model "
                "of the same tokenizer"
            )


def _token(model: Model, ids: list[int], index: int) -> str:
    return f"{model.tokens(ids[index : index + 1])[0]!r} (id {ids[index]})" if index < len(ids) else "missing"


def _check_same_shape(model: Model, against: Model) -> None:
    mine, theirs = (f"{one.card.layers} layers of {one.card.heads} heads" for one in (model, against))
    per_layer = [[layer.heads for layer in one.card.per_layer] for one in (model, against)]
    if mine != theirs or per_layer[0] != per_layer[1]:
        raise StudyError(
            f"{model.id} has {mine} and {against.id} has {theirs}: their heads cannot be compared; compare with a "
            "model of the same shape, such as a fine-tune of this one"
        )
    if against.tokenizer is None and against.card.vocabulary_size != model.card.vocabulary_size:
        raise DataError(
            f"{against.id} has no tokenizer and embeds {against.card.vocabulary_size} tokens, {model.id} "
            f"{model.card.vocabulary_size}: whether both see the same tokens cannot be verified; load it with its tokenizer"
        )
