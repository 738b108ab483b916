"""check and plan."""

import json

import pytest
from planted import save_tiny


def test_check_passes_and_prints_its_errors(headwise, tiny):
    result = headwise("check", tiny)
    assert result.code == 0, result.out
    for name in ("layers", "logits", "reductions", "heads", "causality", "padding"):
        assert f"ok  {name}" in result.out
    assert "error" in result.out


def test_check_in_json(headwise, tiny):
    verdict = json.loads(headwise("check", tiny, "--json").out)
    assert verdict["passed"] is True
    assert all(check["error"] is None or check["error"] < 1e-4 for check in verdict["checks"])


@pytest.mark.parametrize(("family", "words"), [("bloom", "never asks"), ("mamba", "no attention heads")])
def test_check_tells_what_is_refused_and_why(headwise, tmp_path, family, words):
    result = headwise("check", save_tiny(tmp_path / family, family=family))
    assert result.code in (1, 2)
    assert words in result.out + result.err


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
