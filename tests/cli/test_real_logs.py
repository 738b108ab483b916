"""With the real packages, where they are installed: lm-eval and Inspect write logs, which are scored; Inspect runs our scorer.

Neither is installed by `make`: Inspect does not go with the pinned versions (pyproject.toml). To run these tests,

    python -m venv /tmp/logs && /tmp/logs/bin/pip install -e ".[inspect]" lm-eval pytest hypothesis
    /tmp/logs/bin/python -m pytest tests/cli/test_real_logs.py
"""

import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from answered import rows, write

OFFLINE = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "INSPECT_DISPLAY": "none"}
needs_inspect = pytest.mark.skipif(
    importlib.util.find_spec("inspect_ai") is None, reason='needs pip install "headwise[inspect]"'
)
needs_lm_eval = pytest.mark.skipif(importlib.util.find_spec("lm_eval") is None, reason="needs pip install lm-eval")

TASK = """
task: facts
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: generate_until
doc_to_text: "Question: {{{{question}}}}\\nAnswer:"
doc_to_target: "{{{{answers[0]}}}}"
generation_kwargs: {{until: ["\\n\\n"], max_gen_toks: 8, do_sample: false}}
metric_list: [{{metric: exact_match, aggregation: mean, higher_is_better: true}}]
metadata: {{version: 1.0}}
"""

EVAL = """
import json, sys
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import match
from inspect_ai.solver import generate
from headwise.inspect_scorer import headwise_detector

atlas, model, data, logs = sys.argv[1:]
made = [json.loads(line) for line in open(data)]
said = {one["question"]: one["response"] for one in made}

def answer(messages, *_):
    made = ModelOutput.from_content("mockllm/model", said[messages[-1].text])
    made.usage = ModelUsage()  # else Inspect counts tokens, with a tokenizer that it downloads
    return made

target = {"correct": lambda one: one["response"], "wrong": lambda one: "gold"}
samples = [Sample(one["question"], target=target[one["label"]](one), id=one["id"]) for one in made]
task = Task(samples, solver=generate(), scorer=[match(location="exact"), headwise_detector(atlas, model)])
[log] = eval(task, get_model("mockllm/model", custom_outputs=answer), log_dir=logs, max_samples=len(made))
assert log.status == "success", log.error.message
print(json.dumps({one.id: one.scores["detector"].model_dump() for one in log.samples}))
"""


def ran(*command: object, cwd: Path) -> str:
    """What a command prints, in a process of its own."""
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        capture_output=True,
        text=True,
        env={**os.environ, **OFFLINE},
        cwd=cwd,
        timeout=600,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return write(tmp_path_factory.mktemp("data") / "facts.jsonl", rows(12))


@pytest.fixture(scope="module")
def evaluated(detected, tiny, data, tmp_path_factory) -> tuple[Path, dict]:
    """A log of Inspect, and what our scorer said within that run."""
    folder = tmp_path_factory.mktemp("inspect")
    printed = ran("-c", EVAL, detected, tiny, data, folder / "logs", cwd=folder)
    [log] = (folder / "logs").glob("*.eval")
    return log, json.loads(printed.splitlines()[-1])


@needs_inspect
def test_the_scorer_says_what_detect_says_of_the_log(headwise, detected, tiny, data, evaluated):
    log, by_scorer = evaluated
    result = headwise("detect", detected, "--log", log, "--model", tiny)
    assert result.code == 0, result.err
    found = {one["id"]: one for one in map(json.loads, result.out.splitlines())}
    made = {one["id"]: one for one in map(json.loads, data.read_text().splitlines())}
    assert set(found) == set(by_scorer) == set(made)
    for name, one in found.items():
        assert one["label"] == made[name]["label"] and one["answer"] == made[name]["response"]
        assert by_scorer[name]["value"] == pytest.approx(one["probability"], abs=1e-4)  # batched here, one by one there
        assert list(by_scorer[name]["metadata"]["heads"]) == list(one["heads"])
    assert "according to match. AUROC" in result.err


@needs_inspect
def test_inspect_finds_the_scorer_by_its_entry_point(detected, tiny, evaluated, tmp_path):
    if "headwise" not in [one.name for one in importlib.metadata.entry_points(group="inspect_ai")]:
        pytest.skip("needs Headwise installed with its entry points: pip install -e .")
    log, by_scorer = evaluated
    scored = tmp_path / "scored.eval"
    words = ["-S", f"atlas={detected}", "-S", f"model={tiny}", "--action", "append", "--output-file", scored]
    ran("-m", "inspect_ai", "score", log, "--scorer", "headwise/detector", *words, cwd=tmp_path)
    shown = json.loads(ran("-m", "inspect_ai", "log", "dump", scored, cwd=tmp_path))
    for sample in shown["samples"]:
        name = next(name for name in reversed(sample["scores"]) if name.startswith("detector"))
        assert sample["scores"][name]["value"] == pytest.approx(by_scorer[sample["id"]]["value"], abs=1e-6)


@needs_lm_eval
def test_samples_that_lm_eval_logs_are_scored(headwise, detected, tiny, data, tmp_path):
    (tmp_path / "facts.yaml").write_text(TASK.format(data=data))
    words = ["--model", "hf", "--model_args", f"pretrained={tiny},dtype=float32", "--device", "cpu", "--tasks", "facts"]
    words += ["--include_path", tmp_path, "--log_samples", "--output_path", tmp_path / "out", "--batch_size", "4"]
    ran("-m", "lm_eval", *words, cwd=tmp_path)
    [log] = (tmp_path / "out").rglob("samples_facts_*.jsonl")
    result = headwise("detect", detected, "--log", log, "--model", tiny)
    assert result.code == 0, result.err
    found = [json.loads(line) for line in result.out.splitlines()]
    assert [one["id"] for one in found] == [str(number) for number in range(12)]
    assert all(one["label"] == "wrong" for one in found)  # "gold" is what a tiny model never says
    assert "according to exact_match,none; an AUROC needs wrong and correct answers" in result.err
