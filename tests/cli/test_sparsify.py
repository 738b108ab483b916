import json

import pytest


@pytest.fixture(scope="module")
def trained(headwise, tiny, texts, tmp_path_factory):
    """A run of a few steps, stopped once on its way."""
    folder = tmp_path_factory.mktemp("sparse") / "run"
    command = (
        "sparsify", tiny, "--data", texts, "--held-out", texts, "-o", folder, "--steps", 6, "--rank", 4,
        "--set", "length=32", "--set", "batch=4", "--set", "evaluate=2", "--set", "rows=2",
    )  # fmt: skip
    stopped = headwise(*command, "--stop-at", 3)
    assert stopped.code == 0, stopped.err
    assert "The same command resumes from it" in stopped.out
    return folder, command, headwise(*command)


def test_an_adapter_with_its_gate_its_numbers_and_a_picture(trained):
    folder, _, done = trained
    assert done.code == 0, done.err
    assert "training.png" in done.out
    assert "texts (held-out)" in done.out
    for name in ("adapter_config.json", "adapter_model.safetensors", "headwise_gate.json", "training.png"):
        assert (folder / name).is_file()
    told = json.loads((folder / "training.json").read_text())
    assert [look["step"] for look in told["evaluations"]] == [2, 4, 6]


def test_other_verbs_take_it(trained, headwise, tiny):
    folder, *_ = trained
    done = headwise("check", tiny, "--adapter", folder)
    assert done.code == 0, done.err + done.out


def test_an_adapter_for_another_model(trained, headwise, tmp_path):
    from planted import save_tiny

    folder, *_ = trained
    other = save_tiny(tmp_path / "other", heads=2, kv_heads=1)
    assert (
        "or train one for this model with headwise sparsify" in headwise("check", other, "--adapter", folder).refused()
    )


def test_a_finished_run_is_kept(trained, headwise):
    _, command, _ = trained
    assert "finished run" in headwise(*command).refused()


def test_what_is_refused(headwise, tiny, texts, tmp_path):
    assert "--held-out" in headwise("sparsify", tiny, "--data", texts, "-o", tmp_path / "a").refused()
    wrong = ("sparsify", tiny, "--data", texts, "--held-out", texts, "-o", tmp_path / "b")
    assert "Did you mean" in headwise(*wrong, "--set", "lenght=32").refused()
    assert "NAME=VALUE" in headwise(*wrong, "--set", "length").refused()
    assert "a row needs 4096" in headwise(*wrong, "--set", "length=4096").refused()
