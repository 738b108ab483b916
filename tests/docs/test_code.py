"""Code on a page runs, and prints what the page says it prints.

Pages run in an empty folder; those about errors find an atlas in it, as the reader of such a page has one.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from page_code import DOCS, RUN, blocks, compare, run
from synthetic.atlas import synthetic_atlas
from transformers import LlamaConfig, LlamaForCausalLM

import headwise as hw
from headwise.model import open_stored
from headwise.studies.registry import studies as all_studies

PAGES = [
    page
    for pattern in (
        "adding/*.md",
        "errors/*.md",
        "guide/own-*.md",
        "guide/thresholds.md",
        "how-it-works/*.md",
        "index.md",
        "comparison.md",
    )
    for page in sorted(DOCS.glob(pattern))
    if any(block.language in RUN for block in blocks(page))
]


@pytest.fixture(scope="module")
def default_model() -> hw.Model:
    """The default model, loaded once for all pages."""
    return hw.load()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, default_model: hw.Model) -> Iterator[Path]:
    """Where a page runs; the modules that it writes there, and studies that it adds, are forgotten afterwards."""
    load = hw.load
    monkeypatch.setattr(hw, "load", lambda *given, **how: load(*given, **how) if given or how else default_model)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before, studies = set(sys.modules), set(all_studies())
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]
    for name in set(all_studies()) - studies:
        del all_studies()[name]


@pytest.fixture(scope="module")
def an_atlas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A made-up atlas, to be copied."""
    return Path(synthetic_atlas(tmp_path_factory.mktemp("made") / "atlas", layers=8, heads=6).path)


@pytest.fixture(scope="module")
def a_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model of two layers with the words of the default one, as a folder, to be copied."""
    path = tmp_path_factory.mktemp("made") / "my-model"
    tokenizer = open_stored().tokenizer
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **sizes)).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_a_page_does_what_it_says(page: Path, folder: Path, an_atlas: Path, a_model: Path):
    if page.parent.name == "errors":
        shutil.copytree(an_atlas, folder / "atlas")
    if "my-model/" in page.read_text(encoding="utf-8"):
        shutil.copytree(a_model, folder / "my-model")
    assert run(page) > 0


def test_a_page_that_says_something_else_is_found(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1 + 1)\n```\n\n```text\n3\n```\n", encoding="utf-8")
    with pytest.raises(pytest.fail.Exception, match="and it is"):
        run(page)


def test_dots_stand_for_what_may_differ():
    compare("There are 12 heads in /tmp/x", "There are ... heads in ...", "page")
    with pytest.raises(pytest.fail.Exception):
        compare("There are 12 layers", "There are ... heads", "page")
