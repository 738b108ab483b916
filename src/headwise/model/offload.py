"""Offloaded weights: stored in CPU memory or on disk, and loaded by hooks when a module runs.

``accelerate`` leaves such a weight in the model as a shape on the ``meta`` device and adds a hook that loads the values
before the module is called and releases them afterwards. Forward passes work unchanged and hold one offloaded module at a
time, but code that reads a weight directly finds a shape without values. These functions read it from the hook's storage:

    load_parameter(module, "weight")   its values, on the device where the module runs
    materialize(module)                a copy with all its values, de-quantised and without hooks
    execution_device(hf)               the device of computation, which may differ from the first parameter's

Cost: `load_parameter` reads one tensor from disk and caches nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from headwise.core.errors import ModelError
from headwise.model.packed import is_packed, unpacked

_HOOK_ATTRIBUTES = ("_hf_hook", "forward", "_old_forward")  # that accelerate adds to a module


def is_offloaded(hf: nn.Module) -> bool:
    """Whether hooks load some of its weights on demand."""
    return any(hook.offload for module in hf.modules() for hook in _hooks(module))


def load_parameter(module: nn.Module, name: str) -> Tensor:
    """A module's own parameter or buffer with its values; an offloaded one is loaded now and not cached."""
    value: Tensor = getattr(module, name)
    if not value.is_meta:
        return value.detach()
    for hook in _hooks(module):
        try:
            found: Tensor = hook.weights_map[name]
        except (KeyError, TypeError):  # another hook's weight, or a hook without weights
            continue
        return found.detach().to(_device(hook.execution_device, found.device))
    raise ModelError("This model has shapes but no weights (it is on the 'meta' device); load it with its weights.")


def materialize(module: nn.Module) -> nn.Module:
    """A copy of a module with its values, as if it had been neither offloaded nor quantised."""
    known: dict[int, Any] = {}  # id -> what the copy has in its place
    for part in module.modules():
        if (hook := part.__dict__.get("_hf_hook")) is not None:
            known[id(hook)] = hook  # not copied: it refers to all weights of the model
        if is_packed(part):
            known[id(part)] = unpacked(part)
    copied = copy.deepcopy(module, known)
    for made, own in zip(copied.modules(), module.modules(), strict=True):
        _unhook(made)
        for name, value in own._parameters.items():
            if value is not None and value.is_meta:
                made._parameters[name] = nn.Parameter(load_parameter(own, name), requires_grad=False)
        for name, buffer in own._buffers.items():
            if buffer is not None and buffer.is_meta:
                made._buffers[name] = load_parameter(own, name)
    return copied


def without_hooks(module: nn.Module) -> Any:
    """A shallow copy of a module without its hooks, to be given other weights."""
    copied = copy.copy(module)
    _unhook(copied)
    return copied


def execution_device(hf: Any) -> torch.device:
    """The device on which the model's first module computes, and which token ids must be on."""
    first = hf.get_input_embeddings() if hasattr(hf, "get_input_embeddings") else None
    first = hf if first is None else first
    for hook in _hooks(first):
        if hook.execution_device is not None:
            return _device(hook.execution_device, torch.device("cpu"))
    device = next(first.parameters()).device
    return torch.device("cpu") if device.type == "meta" else device


def tied_parameters(hf: nn.Module) -> dict[str, str]:
    """Parameter -> the one it is tied to, as the model declares it: under hooks, tied parameters are distinct objects."""
    return dict(getattr(hf, "all_tied_weights_keys", None) or {})


def _hooks(module: nn.Module) -> Iterator[Any]:
    hook = module.__dict__.get("_hf_hook")
    for one in getattr(hook, "hooks", (hook,)):  # a sequence of hooks, or one
        if one is not None and hasattr(one, "weights_map"):
            yield one


def _unhook(module: nn.Module) -> None:
    if "_hf_hook" in module.__dict__:
        for name in _HOOK_ATTRIBUTES:
            module.__dict__.pop(name, None)


def _device(named: Any, otherwise: torch.device) -> torch.device:
    if named is None:
        return otherwise
    return torch.device("cuda", named) if isinstance(named, int) else torch.device(named)
