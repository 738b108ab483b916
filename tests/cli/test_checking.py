"""check and plan."""

import itertools
import json

import pytest
from planted import save_tiny
from synthetic.atlas import synthetic_atlas


def test_check_passes_and_prints_its_errors(headwise, tiny):
    result = headwise("check", tiny)
    assert result.code == 0, result.out
    for name in ("layers", "plain", "logits", "reductions", "heads", "causality", "padding", "decoding"):
        assert f"ok  {name}" in result.out
    assert "error" in result.out


def test_check_in_json(headwise, tiny):
    report = json.loads(headwise("check", tiny, "--json").out)
    assert report["passed"] is True
    assert all(check["error"] is None or check["error"] < 1e-4 for check in report["checks"])


@pytest.mark.parametrize(("family", "words"), [("bloom", "never asks"), ("mamba", "no attention heads")])
def test_check_tells_what_is_refused_and_why(headwise, tmp_path, family, words):
    result = headwise("check", save_tiny(tmp_path / family, family=family))
    assert result.code in (1, 2)
    assert words in result.out + result.err


def test_known_heads_of_an_atlas(headwise, tmp_path):
    synthetic_atlas(tmp_path / "atlas", 30, 9, ("profile",))
    induction = {"study": "profile", "variable": "value", "at": {"statistic": "induction"}}
    heads = {"label": "induction", "source": "planted", "heads": ["L12H3", "L14H7"]}
    lists = [heads | {"map": induction}, heads | {"map": {"study": "relations", "variable": "score"}}]
    known = {"models": ["SmolLM2-135M-Instruct"], "layers": 30, "heads": 9, "lists": lists}
    (tmp_path / "known.json").write_text(json.dumps(known))
    said = headwise("check", "atlas", "--known", "known.json", cwd=tmp_path)
    assert said.code == 0, said.err
    assert "2 of the 2 highest of 270 heads are listed" in said.out
    assert "not compared, since the atlas has no study 'relations'" in said.out
    found = json.loads(headwise("check", "atlas", "--known", "known.json", "--json", cwd=tmp_path).out)
    assert found["lists"][0]["precision"] == 1
    for words in (("--known", "gpt2"), ("atlas", "--known", "gpt2"), ("atlas", "--known", "no-such-list")):
        assert headwise("check", *words, cwd=tmp_path).code == 2


def test_plan(headwise, tiny, texts):
    result = headwise("plan", tiny, "--data", texts)
    assert result.code == 0, result.err
    assert "It fits." in result.out
    plan = json.loads(headwise("plan", tiny, "--data", texts, "--json").out)
    assert plan["memory_total"] == sum(plan["memory"].values())
    assert plan["studies"]["profile"]["examples"] == 12 + 16
    assert plan["seconds"] == sum(row["seconds"] for row in plan["studies"].values()) > 0


def test_plan_counts_questions(headwise, tiny):
    few, many = (
        json.loads(headwise("plan", tiny, "--studies", "spectral", "--limit", limit, "--json").out)["studies"]
        for limit in ("100", "1000")
    )
    assert list(few) == ["answers", "spectral"]  # and what it is made from
    assert many["answers"]["tokens"] == 10 * few["answers"]["tokens"]
    assert many["spectral"]["seconds"] > few["spectral"]["seconds"]


def test_plan_counts_what_each_study_is_asked(headwise, tiny):
    from headwise.corpora import packaged_steps
    from headwise.studies.functions.spec import FunctionsOptions
    from headwise.studies.functions.step_sampling import sample_steps

    rows = json.loads(headwise("plan", tiny, "--json").out)["studies"]
    asked = sample_steps(packaged_steps(), FunctionsOptions().steps, FunctionsOptions().seed)
    steps = sum(map(len, asked.chains))
    assert rows["functions"]["examples"] == len(asked.chains) == 108
    assert rows["functions"]["unit"] == f"questions of {steps} steps"
    assert rows["function_masking"]["examples"] == len(asked.functions)
    assert {name: row["unit"] for name, row in rows.items() if name != "functions"} == {
        "profile": "texts", "patterns": "prompts", "answers": "questions", "spectral": "answers", "streaming": "answers",
        "probing": "answers",
        "relations": "layers", "relation_validation": "relations", "function_masking": "functions, and whole questions",
    }  # fmt: skip
    assert f"108 questions of {steps} steps, " in headwise("plan", tiny, "--studies", "functions").out


def test_plan_of_the_default_model_is_near_what_it_took(monkeypatch):
    """On two quiet cores, whose speed is stated in `cost`."""
    from headwise.model import read_card
    from headwise.studies.inputs import StudyInputs
    from headwise.studies.planning import estimate, planned_inputs

    took = {
        "profile": 97,
        "patterns": 33,
        "answers": 61,
        "probing": 88,
        "relations": 50,
    }  # others: defaults have changed since
    monkeypatch.setattr("headwise.studies.planning.measured_flops", lambda *_: 180e9)
    found = estimate(read_card(), planned_inputs(StudyInputs(limit=500), reference=True), list(took))
    for study, seconds in took.items():
        assert found.studies[study]["seconds"] == pytest.approx(seconds, rel=0.1), study
    assert found.seconds == pytest.approx(sum(took.values()), rel=0.05)


def test_plan_measures_the_fastest_product(monkeypatch):
    """One that others held up does not count."""
    import torch

    from headwise.studies import planning

    calls = iter(itertools.accumulate([0.05] * 5 + [0.01] + [0.05] * 40))  # the second product takes 10 ms, others 50
    monkeypatch.setattr(planning.time, "perf_counter", lambda: next(calls))
    speed = planning._fastest(torch.randn(8, 32), 16, torch.get_num_threads(), 1.0)
    assert speed == pytest.approx(2 * 16 * 8 * 32 / 0.01)


def test_plan_leaves_the_number_of_threads_as_it_was():
    import torch

    from headwise.studies.planning import measured_flops

    before = torch.get_num_threads()
    assert measured_flops(64, torch.float32, torch.device("cpu"), 0.05) > 1e6
    assert torch.get_num_threads() == before


def test_plan_loads_no_weights(headwise, tiny, texts, tmp_path):
    import shutil

    folder = shutil.copytree(tiny, tmp_path / "weightless")
    (folder / "model.safetensors").unlink()
    assert headwise("plan", folder, "--data", texts).code == 0


def test_plan_says_when_it_does_not_fit(headwise, tiny, texts, tmp_path):
    import shutil

    folder = shutil.copytree(tiny, tmp_path / "huge")
    config = json.loads((folder / "config.json").read_text())
    config |= {"num_hidden_layers": 400, "hidden_size": 16384, "intermediate_size": 65536, "head_dim": 128,
               "num_attention_heads": 128, "num_key_value_heads": 8}  # fmt: skip
    config.pop("layer_types", None)
    (folder / "config.json").write_text(json.dumps(config))
    result = headwise("plan", folder, "--data", texts)
    assert result.code == 1
    assert "It does not fit" in result.out
