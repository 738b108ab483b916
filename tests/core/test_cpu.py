"""A CPU that announces AMX and traps on it: the probe dies in a subprocess, and nothing else does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from headwise.core import cpu
from headwise.core.errors import ModelError
from headwise.model import load

DIES_UNLESS_SET = f"""
import os, signal
if os.environ.get("ONEDNN_MAX_CPU_ISA") != "{cpu.SAFE_ISA}":
    os.kill(os.getpid(), signal.SIGILL)
"""

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals")


@pytest.fixture(autouse=True)
def amx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU with AMX, an empty cache and no setting of oneDNN."""
    info = tmp_path / "cpuinfo"
    info.write_text("model name\t: Planted\nflags\t\t: fpu avx512f amx_bf16 amx_tile\n\nmodel name\t: second\n")
    monkeypatch.setattr(cpu, "CPUINFO", info)
    monkeypatch.setenv("HEADWISE_CACHE", str(tmp_path / "cache"))
    for name in cpu.ISA_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    cpu._cached_probe.cache_clear()
    yield
    cpu._cached_probe.cache_clear()


@pytest.fixture
def trapping(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "PROBE", DIES_UNLESS_SET)


@pytest.fixture
def hf() -> torch.nn.Module:
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    return AutoModelForCausalLM.from_config(LlamaConfig(vocab_size=20, **sizes))


def test_the_probe_itself_passes_on_this_machine(tmp_path: Path):
    subprocess.run([sys.executable, "-c", cpu.PROBE], check=True)


def test_a_cpu_without_amx_is_not_probed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cpu, "PROBE", "raise SystemExit('not to be run')")
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: pytest.fail("probed"))
    cpu.CPUINFO.write_text("flags\t\t: fpu avx512f avx512_bf16\n")
    assert cpu.bfloat16_works(tmp_path)
    cpu.CPUINFO.unlink()
    assert cpu.bfloat16_works(tmp_path)


@pytest.mark.usefixtures("trapping")
def test_a_dying_probe_is_noticed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert not cpu.bfloat16_works(tmp_path / "cache")
    cpu._cached_probe.cache_clear()
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: pytest.fail("probed twice"))
    assert not cpu.bfloat16_works(tmp_path / "cache")


@pytest.mark.usefixtures("trapping")
def test_the_setting_is_made_and_heeded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "")
    cpu.rule_out_broken_amx(tmp_path)
    assert os.environ["ONEDNN_MAX_CPU_ISA"] == cpu.SAFE_ISA
    assert cpu.bfloat16_works(tmp_path)


@pytest.mark.parametrize("probe", ["raise SystemExit(3)", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"])
def test_a_probe_that_fails_otherwise_says_nothing_and_is_not_cached(
    probe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(cpu, "PROBE", probe)
    assert cpu.bfloat16_works(tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


@pytest.mark.usefixtures("trapping")
def test_bfloat16_is_refused_with_the_remedy(hf: torch.nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    sentence = (
        r"crashes \(SIGILL\).*; use dtype='float32' .* set ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16 before Python starts\."
    )
    hf.save_pretrained(tmp_path / "model")
    with pytest.raises(ModelError, match=sentence):
        load(tmp_path / "model", device="cpu", dtype="bfloat16")
    assert load(tmp_path / "model", device="cpu").dtype == torch.float32
    with pytest.raises(ModelError, match=sentence):
        load(hf.to(torch.bfloat16))
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", cpu.SAFE_ISA)
    assert load(hf).dtype == torch.bfloat16


def test_float32_asks_nothing(hf: torch.nn.Module, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cpu, "_announced", lambda: pytest.fail("asked"))
    assert load(hf).dtype == torch.float32
