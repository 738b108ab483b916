"""Can torch multiply bfloat16 matrices on this CPU, and who made it?

Some virtual machines announce Intel AMX in ``/proc/cpuinfo`` but trap on its instructions. There the first bfloat16
product that oneDNN runs kills the process with SIGILL, which no exception handler sees. `bfloat16_works` therefore tries
such products in a subprocess, and only on a CPU that announces AMX. The subprocess inherits the environment, so a CPU on
which ``ONEDNN_MAX_CPU_ISA`` already rules AMX out passes.

Cost: one read of ``/proc/cpuinfo`` without AMX; otherwise one start of torch (about two seconds), cached per machine,
CPU, torch version and oneDNN setting.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import signal
import subprocess
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

SAFE_ISA = "AVX512_CORE_FP16"  # the largest instruction set of oneDNN without AMX
ISA_VARIABLES = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
CPUINFO = Path("/proc/cpuinfo")
FATAL_SIGNALS = {-signal.SIGILL, -signal.SIGSEGV, *([-signal.SIGBUS] if hasattr(signal, "SIGBUS") else [])}
TIMEOUT = 120.0  # seconds; a probe that takes longer says nothing
PROBE = """
import torch
from torch.nn import functional as F
x = torch.ones(1, 4, 64, 64, dtype=torch.bfloat16)
F.linear(x, x[0, 0]); x @ x; F.scaled_dot_product_attention(x, x, x, is_causal=True)
"""


def bfloat16_works(folder: Path) -> bool:
    """Whether bfloat16 products run on this CPU, with the environment as it is now.

    Args:
        folder: where the outcome is cached.

    Returns:
        False only if a subprocess died of it.
    """
    cpu = _announced()
    if "amx_bf16" not in cpu:
        return True
    settings = "|".join(os.environ.get(name, "") for name in ISA_VARIABLES)
    key = hashlib.sha256(f"{platform.node()}|{cpu}|{_torch_version()}|{settings}|{PROBE}".encode()).hexdigest()[:16]
    return _cached_probe(folder / f"bfloat16-{key}")


def rule_out_broken_amx(folder: Path) -> None:
    """Set ``ONEDNN_MAX_CPU_ISA`` for this process and its children where AMX traps. Call it before torch is used."""
    if not bfloat16_works(folder):
        os.environ[ISA_VARIABLES[0]] = SAFE_ISA


def is_amd() -> bool:
    """Whether the CPU calls itself an AMD one; False where the system does not say, as on macOS and Windows."""
    return "AuthenticAMD" in _announced()


def _announced() -> str:
    """The first CPU's model and flags; empty where there is no such file, as on macOS and Windows."""
    try:
        lines = CPUINFO.read_text(encoding="utf-8", errors="replace").partition("\n\n")[0].splitlines()
    except OSError:
        return ""
    return "\n".join(
        line for line in lines if line.startswith(("vendor_id", "model name", "stepping", "microcode", "flags"))
    )


def _torch_version() -> str:
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return ""


@cache
def _cached_probe(file: Path) -> bool:
    with suppress(OSError):
        return file.read_text(encoding="utf-8") == "works"
    try:
        run = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, timeout=TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return True
    works = run.returncode not in FATAL_SIGNALS
    if run.returncode == 0 or not works:
        with suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            written = file.with_name(f"{file.name}.{os.getpid()}")
            written.write_text("works" if works else "dies", encoding="utf-8")
            written.replace(file)
    return works
