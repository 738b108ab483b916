"""What is named and is not there is refused before anything is loaded: torch is not even imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headwise.cli.preflight import refuse_missing_file, refuse_missing_model
from headwise.core.errors import DataError, ModelError

QUICK = """
import sys
from headwise.cli.main import main
sys.argv = ["headwise", *{words!r}]
try:
    main()
except SystemExit as end:
    assert end.code == 2, end.code
    assert not {{"torch", "transformers"}} & set(sys.modules)
"""


def run_at_once(*words: str) -> str:
    """The refusal of a command that must not load torch."""
    done = subprocess.run([sys.executable, "-c", QUICK.format(words=words)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("build", "--steps", "nowhere.jsonl"), "--steps names 'nowhere.jsonl', but there is no such file or folder"),
        (
            ("build", "--against", "nowhere"),
            "--reference names 'nowhere', but there is no such folder; give a folder that contains",
        ),
        (("check", "--adapter", "nowhere"), "contains adapter_config.json, or OWNER/NAME on the hub"),
        (("build", "--set", "patterns.heads_off=L3"), "'L3' is not the name of a head"),
        (
            ("build", "--set", "patterns.prompts=few"),
            "prompts of the study patterns takes a whole number, not 'few'",
        ),
        (("build", "--set", "patterns.heads_off=L3H1", "--against", "who/what"), "not both at once; omit one"),
    ],
)
def test_a_slip_costs_a_second(words: tuple[str, ...], sentence: str) -> None:
    assert sentence in run_at_once(*words)


def test_files_that_are_nearly_there(tmp_path: Path) -> None:
    (tmp_path / "steps.jsonl").touch()
    with pytest.raises(DataError, match=r"but that file is empty; give a file that contains text"):
        refuse_missing_file("--steps", tmp_path / "steps.jsonl")
    (tmp_path / "steps.jsonl").write_text("{}", encoding="utf-8")
    refuse_missing_file("--steps", tmp_path / "steps.jsonl")
    refuse_missing_file("--steps", None)
    with pytest.raises(DataError, match=r"did you mean '.*steps.jsonl'\?"):
        refuse_missing_file("--steps", tmp_path / "step.jsonl")


def test_models_and_adapters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    for fine in (None, "none", "who/what"):
        refuse_missing_model("--reference", fine)
    (tmp_path / "hub" / "models--gpt2").mkdir(parents=True)
    refuse_missing_model("--reference", "gpt2")
    with pytest.raises(ModelError, match=r"which has no adapter_config.json; give the folder that does"):
        refuse_missing_model("--adapter", str(tmp_path), ("adapter_config.json",))
    (tmp_path / "adapter_config.json").touch()
    refuse_missing_model("--adapter", str(tmp_path), ("adapter_config.json",))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    refuse_missing_model("--reference", "gpt2")
    with pytest.raises(ModelError, match=r"nor in the local Hugging Face cache, and HF_HUB_OFFLINE forbids downloads"):
        refuse_missing_model("--reference", "who/what")
