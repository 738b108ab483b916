"""Patterns on the command line: one model, two models, an adapter; figures by option; refusals in one sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from planted import save_tiny, tiny_tokenizer
from transformers import AutoModelForCausalLM

SET = (
    "--set",
    "patterns.prompts=8",
    "--set",
    "patterns.tokens=32",
    "--set",
    "patterns.prompt=the old house had the old door",
)


def make_adapter(base: Path, folder: Path) -> Path:
    peft = pytest.importorskip("peft")
    torch.manual_seed(1)
    config = peft.LoraConfig(r=2, target_modules=["q_proj", "o_proj"], init_lora_weights=False, task_type="CAUSAL_LM")
    peft.get_peft_model(AutoModelForCausalLM.from_pretrained(base), config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def compared(headwise: Any, tiny: Path, texts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model against itself under an adapter."""
    folder = tmp_path_factory.mktemp("patterns")
    adapter = make_adapter(tiny, folder / "adapter")
    result = headwise(
        "build", tiny, "--data", texts, "--studies", "patterns", "--against", adapter, *SET, "-o", folder / "atlas"
    )
    assert result.code == 0, result.err
    return folder / "atlas"


def test_an_adapter_is_compared_with_its_base(headwise: Any, compared: Path) -> None:
    said = headwise("describe", compared, "patterns").out
    assert "tiny + adapter on the same tokens" in said
    assert "The next-token loss is" in said
    rows = json.loads(headwise("heads", compared, "--sort", "patterns.peak.change", "-n", "2", "--json").out)
    assert rows[0]["patterns.peak.change"] >= rows[1]["patterns.peak.change"]
    assert (compared.parent / "atlas-figures" / "patterns.pdf").stat().st_size > 10_000


@pytest.mark.parametrize(
    "options",
    [("--heads", "L1H2,L0H0"), ("--top", "3", "--by", "change"), ("--top", "2", "--by", "peak", "--average"),
     ("--head", "L2H1"), ("--numbers",), ("--statistics", "peak,active")],
)  # fmt: skip
def test_figures_by_option(headwise: Any, compared: Path, tmp_path: Path, options: tuple[str, ...]) -> None:
    path = tmp_path / "figure.svg"
    result = headwise("show", compared, "patterns", *options, "-o", path)
    assert result.code == 0, result.err
    assert path.read_text().startswith("<?xml")


def test_figures_of_heads_that_are_not_there_are_refused(headwise: Any, compared: Path) -> None:
    assert "no head L9H9 in these patterns" in headwise("show", compared, "patterns", "--head", "L9H9").refused()
    assert "is not the name of a head" in headwise("show", compared, "patterns", "--heads", "3.1").refused()
    assert (
        "ranked by 'chnge'. Did you mean 'change'" in headwise("show", compared, "patterns", "--by", "chnge").refused()
    )


def test_one_model_alone(headwise: Any, tiny: Path, texts: Path, tmp_path: Path) -> None:
    result = headwise("build", tiny, "--data", texts, "--studies", "patterns", *SET, "-o", tmp_path / "atlas", "--json")
    assert result.code == 0, result.err
    assert "next to those of" not in headwise("describe", tmp_path / "atlas", "patterns").out


def refused(headwise: Any, model: Path, texts: Path, against: Path | None, folder: Path, *more: str) -> str:
    other = () if against is None else ("--against", against)
    said = headwise(
        "build", model, "--data", texts, "--studies", "patterns", *other, *more, "-o", folder / "refused"
    ).refused()
    assert not (folder / "refused").exists()
    return str(said)


def test_a_model_of_another_shape(headwise: Any, tiny: Path, texts: Path, tmp_path: Path) -> None:
    other = save_tiny(tmp_path / "other", layers=2)
    said = refused(headwise, tiny, texts, other, tmp_path)
    assert "has 3 layers of 4 heads" in said and "has 2 layers of 4 heads: their heads cannot be compared" in said


def test_a_model_with_another_tokenizer(headwise: Any, tiny: Path, texts: Path, tmp_path: Path) -> None:
    other = save_tiny(tmp_path / "other")
    tiny_tokenizer(first=False).save_pretrained(other)
    said = refused(headwise, tiny, texts, other, tmp_path)
    assert "have different tokenizers: token 0 of the prompt to be shown is '<s>' (id 1) for the one" in said
    assert "so give a model of the same tokenizer" in said


def test_a_prompt_longer_than_the_context(headwise: Any, tiny: Path, texts: Path, tmp_path: Path) -> None:
    said = refused(headwise, tiny, texts, None, tmp_path, "--set", f"patterns.prompt={'the ' * 400}")
    assert "A text of 401 tokens is longer than the context of" in said and "(320 tokens)" in said
    said = refused(headwise, tiny, texts, None, tmp_path, "--set", "patterns.tokens=400")
    assert "prompts of 400 tokens were asked for" in said and "is 320; give at most that" in said


def test_an_adapter_for_another_model(headwise: Any, tiny: Path, texts: Path, tmp_path: Path) -> None:
    adapter = make_adapter(save_tiny(tmp_path / "wide", heads=8), tmp_path / "adapter")
    said = refused(headwise, tiny, texts, adapter, tmp_path)
    assert f"use it with the model it was trained on ({tmp_path / 'wide'})" in said


def test_what_is_not_there(headwise: Any, tiny: Path, texts: Path, tmp_path: Path) -> None:
    said = refused(headwise, tiny, texts, tmp_path / "nowhere", tmp_path)
    assert "but there is no such folder; give a folder that contains" in said
