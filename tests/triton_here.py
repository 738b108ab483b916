"""Whether and where Triton kernels can be tested: on a GPU, or through Triton's interpreter in a process of its own.

The interpreter must be chosen before Triton is loaded, so a test file runs itself again with it (`under_the_interpreter`).
"""

import os
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec

import pytest
import torch

from headwise.kernels import Attention

HAS_TRITON = find_spec("triton") is not None
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
runs = pytest.mark.skipif(
    not HAS_TRITON or not (INTERPRETED or DEVICE.type == "cuda"), reason="run by the test of the interpreter"
)
interprets = pytest.mark.skipif(
    not HAS_TRITON or INTERPRETED or DEVICE.type == "cuda", reason="needs Triton, and no GPU"
)
needs_triton = pytest.mark.skipif(not HAS_TRITON, reason="Triton is not installed")


def on_device(attention: Attention) -> Attention:
    """The same layer on the device under test."""
    mask = attention.mask
    moved = {
        name: None if getattr(mask, name) is None else getattr(mask, name).to(DEVICE)
        for name in ("key_valid", "query_valid", "explicit")
    }
    parts = {name: getattr(attention, name) for name in ("q", "k", "sinks", "lse")}
    return replace(
        attention,
        mask=replace(mask, device=DEVICE, **moved),
        **{name: None if part is None else part.to(DEVICE) for name, part in parts.items()},
    )


def under_the_interpreter(file: str, *more: str) -> None:
    """Run a test file's kernels on the CPU; `more` goes to pytest."""
    command = [sys.executable, "-m", "pytest", file, "-q", "-p", "no:cacheprovider", "-W", "ignore", *more]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "TRITON_INTERPRET": "1"}, timeout=600
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout
