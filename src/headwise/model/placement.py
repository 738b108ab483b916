"""In which dtype and on which device a model is put.

``"auto"`` is the checkpoint's own dtype on a GPU, and float32 on a CPU, where half precision is slower and less exact.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import torch

from headwise.core.cpu import SAFE_ISA, bfloat16_works
from headwise.core.errors import ModelError, did_you_mean
from headwise.model.cache import cache_folder
from headwise.model.spread import Spread

__all__ = ["choose_device", "choose_dtype", "named_dtype", "require_working_dtype"]

SHORT = {"fp16": "float16", "half": "float16", "bf16": "bfloat16", "fp32": "float32", "float": "float32"}
DTYPES = ("float16", "bfloat16", "float32", "float64")


def named_dtype(dtype: str | torch.dtype) -> Any:
    """``"auto"``, or a torch dtype."""
    if isinstance(dtype, torch.dtype) or dtype == "auto":
        return dtype
    name = SHORT.get(str(dtype).removeprefix("torch."), str(dtype).removeprefix("torch."))
    if name not in DTYPES:
        raise ModelError(f"{dtype!r} is not a dtype for a model. {did_you_mean(name, ['auto', *DTYPES])}")
    return getattr(torch, name)


def choose_dtype(dtype: str | torch.dtype, config: Any, device: torch.device) -> torch.dtype:
    """The dtype a model of this config will have once it is loaded there."""
    wanted = named_dtype(dtype)
    if wanted != "auto":
        return wanted
    own = getattr(config.get_text_config(), "dtype", None) or torch.float32
    return torch.float32 if device.type == "cpu" else getattr(torch, own) if isinstance(own, str) else own


def require_working_dtype(dtype: Any, device: torch.device, name: str) -> None:
    """Refuse bfloat16 on a CPU that announces AMX but traps on it."""
    if device.type == "cpu" and dtype == torch.bfloat16 and not bfloat16_works(cache_folder()):
        raise ModelError(
            f"{name} cannot run in bfloat16 on this CPU, which announces AMX but dies by SIGILL when torch uses it; use "
            f"dtype='float32', or set ONEDNN_MAX_CPU_ISA={SAFE_ISA} before Python starts."
        )


def choose_device(device: str | torch.device | None = None, spread: Spread | None = None) -> torch.device:
    """The device that was named, or where a spread model runs, or a GPU if there is one, or the CPU."""
    if device is not None and spread:
        raise ModelError("device puts the whole model on one device and device_map spreads it; give one of the two.")
    if spread and importlib.util.find_spec("accelerate") is None:
        raise ModelError("device_map needs the package accelerate; run `pip install accelerate`.")
    if device is None:
        on_cpu = spread.on_cpu if spread else not torch.cuda.is_available()
        return torch.device("cpu" if on_cpu else "cuda")
    try:
        device = torch.device(device)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ModelError(
            f"The device {str(device)!r} cannot be used here ({str(error).splitlines()[0]}); use 'cpu', or a "
            "device that torch sees."
        ) from error
    return device
