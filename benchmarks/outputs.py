"""What reading head outputs costs on a CPU: `HeadOutputs` against hooks written by hand, both against a plain forward.

By hand: a hook in front of every output projection keeps the last token of its input, which is all heads' z side by
side. Both give the same numbers, which is checked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from clock import in_turn, ratio
from tokens import shape_of, tokens_like_text
from torch import Tensor

import headwise as hw
from headwise.seam import Structure

CASES = {
    "plain": "plain SDPA forward",
    "hooks": "hooks by hand, last token",
    "last": "observed: HeadOutputs, last token",
    "many": "observed: HeadOutputs, last 16 tokens",
}
EXACT = 1e-5


def by_hand(model: hw.Model, ids: Tensor) -> Tensor:
    """(layer, batch, heads x width) of the last token."""
    kept: list[Tensor] = []

    def keep(module: Any, inputs: tuple[Tensor, ...]) -> None:
        kept.append(inputs[0][:, -1].clone())

    modules = [layer.self_attn.o_proj for layer in model.hf.model.layers]
    handles = [module.register_forward_pre_hook(keep) for module in modules]
    try:
        model(ids, use_cache=False)
    finally:
        for handle in handles:
            handle.remove()
    return torch.stack(kept)


def observed(model: hw.Model, structure: Structure, ids: Tensor, positions: Any) -> Tensor:
    """(batch, layer, head, token, width)."""
    with hw.observe(structure, hw.HeadOutputs(positions)) as seen:
        model(ids, use_cache=False)
    return torch.from_numpy(seen["outputs"].z.values)


def cases(model: hw.Model, ids: Tensor) -> dict[str, Callable[[], object]]:
    """One function a case."""
    structure = Structure(model)
    return {
        "plain": lambda: model(ids, use_cache=False),
        "hooks": lambda: by_hand(model, ids),
        "last": lambda: observed(model, structure, ids, "last"),
        "many": lambda: observed(model, structure, ids, list(range(-16, 0))),
    }


def apart(model: hw.Model, ids: Tensor) -> float:
    """The largest difference between the two ways."""
    z = observed(model, Structure(model), ids, "last")[..., 0, :]  # (batch, layer, head, width)
    return float((z.flatten(2).transpose(0, 1) - by_hand(model, ids)).abs().max())


def section(model: hw.Model, shape: str, rounds: int) -> str:
    """The words and the table."""
    ids = tokens_like_text(model.card.vocabulary_size, *shape_of(shape))
    difference = apart(model, ids)
    if not difference <= EXACT:
        raise SystemExit(f"HeadOutputs and hooks by hand are {difference:.1e} apart; one of the two is wrong")
    seconds = in_turn(cases(model, ids), rounds)
    lines = [f"### Reading head outputs, {shape} tokens", "", "| case | seconds | time / plain |", "|---|---|---|"]
    for case, name in CASES.items():
        found = ratio(seconds[case], seconds["plain"])
        spread = f"**{found.ratio:.2f}** ({found.lowest:.2f} to {found.highest:.2f})"
        lines.append(f"| {name} | {found.seconds:.2f} | {spread} |")
    same = f"differ by at most {difference:.0e}" if difference else "give exactly the same numbers"
    return "\n".join([*lines, "", f"The last token: both ways {same}."])
