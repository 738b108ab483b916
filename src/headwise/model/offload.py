"""Weights that are not where the model runs: kept in the CPU's memory or on disk, and brought when they are needed.

``accelerate`` puts such a weight's shape in the model (on the ``meta`` device) and a hook beside it, which brings the
values before the module is called and lets them go afterwards. A pass through the model therefore works as ever, and
holds one module of the offloaded ones at a time; but who reads a weight itself finds a shape without values. Here it is
read from where the hook takes it.

    values_of(module, "weight")   its values, wherever they are, on the device where the module runs
    whole(module)              a copy that holds all its values and has no hooks
    runs_on(hf)                where it computes, which the first parameter's device does not tell

Cost: `values_of` reads one tensor from disk and keeps nothing. This module does not know who needs a weight, nor what the
files are like.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from headwise.core.errors import ModelError

__all__ = ["bare", "is_offloaded", "runs_on", "tied_names", "values_of", "whole"]

_ADDED = ("_hf_hook", "forward", "_old_forward")  # what accelerate puts into a module's own dictionary


def is_offloaded(hf: nn.Module) -> bool:
    """Whether some of its weights are brought by hooks when they are needed."""
    return any(hook.offload for module in hf.modules() for hook in _hooks(module))


def values_of(module: nn.Module, name: str) -> Tensor:
    """A module's own parameter or buffer with its values; an offloaded one is read now and not kept."""
    value: Tensor = getattr(module, name)
    if not value.is_meta:
        return value.detach()
    for hook in _hooks(module):
        try:
            found: Tensor = hook.weights_map[name]
        except (KeyError, TypeError):  # not this hook's, or it has none
            continue
        return found.detach().to(_device(hook.execution_device, found.device))
    raise ModelError("This model has shapes but no weights (it is on the 'meta' device); load it with its weights.")


def whole(module: nn.Module) -> nn.Module:
    """A copy of a module with its values, as if nothing had been offloaded."""
    hooks = {id(hook): hook for part in module.modules() if (hook := part.__dict__.get("_hf_hook")) is not None}
    copied = copy.deepcopy(module, dict(hooks))  # hooks are not copied: they hold the weights of the whole model
    for made, own in zip(copied.modules(), module.modules(), strict=True):
        _unhook(made)
        for name, value in own._parameters.items():
            if value is not None and value.is_meta:
                made._parameters[name] = nn.Parameter(values_of(own, name), requires_grad=False)
        for name, buffer in own._buffers.items():
            if buffer is not None and buffer.is_meta:
                made._buffers[name] = values_of(own, name)
    return copied


def bare(module: nn.Module) -> Any:
    """A shallow copy of a module without its hooks, for who gives it other weights."""
    copied = copy.copy(module)
    _unhook(copied)
    return copied


def runs_on(hf: Any) -> torch.device:
    """Where the model's first module computes: where token ids go, and what its numbers were made on."""
    first = hf.get_input_embeddings() if hasattr(hf, "get_input_embeddings") else None
    first = hf if first is None else first
    for hook in _hooks(first):
        if hook.execution_device is not None:
            return _device(hook.execution_device, torch.device("cpu"))
    device = next(first.parameters()).device
    return torch.device("cpu") if device.type == "meta" else device


def tied_names(hf: nn.Module) -> dict[str, str]:
    """Parameter -> the one that it is tied to, as the model itself says: hooks put unlike objects in their places."""
    return dict(getattr(hf, "all_tied_weights_keys", None) or {})


def _hooks(module: nn.Module) -> Iterator[Any]:
    hook = module.__dict__.get("_hf_hook")
    for one in getattr(hook, "hooks", (hook,)):  # several in a row, or one
        if one is not None and hasattr(one, "weights_map"):
            yield one


def _unhook(module: nn.Module) -> None:
    if "_hf_hook" in module.__dict__:
        for name in _ADDED:
            module.__dict__.pop(name, None)


def _device(named: Any, otherwise: torch.device) -> torch.device:
    if named is None:
        return otherwise
    return torch.device("cuda", named) if isinstance(named, int) else torch.device(named)
