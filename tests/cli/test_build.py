"""headwise build, as a user types it."""

import json
import os
import shutil
import subprocess
import sys

import pytest
import xarray as xr
from planted import save_tiny


def test_it_leaves_an_atlas_figures_and_a_report(atlas):
    beside = atlas.parent
    assert {f.suffix for f in (beside / "atlas-figures").iterdir()} == {".png", ".svg", ".pdf"}
    report = (beside / "atlas-report.html").read_text(encoding="utf-8")
    assert 'data-path="study/profile"' in report
    assert 'data-path="figure/profile/value"' in report
    assert xr.open_datatree(atlas, engine="zarr")["profile"].ds.value.dims == ("statistic", "layer", "head")


def test_a_second_build_measures_nothing(headwise, atlas, tiny, texts):
    before = (atlas / "profile" / "zarr.json").stat().st_mtime_ns
    result = headwise("build", tiny, "--data", texts, "--studies", "profile", "-o", atlas, "--json")
    assert result.code == 0
    assert json.loads(result.out)["studies"] == ["profile"]
    assert (atlas / "profile" / "zarr.json").stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--studies", "profil"], "Did you mean 'profile'?"),
        (["--redo", "spectre"], "There is no study 'spectre'"),
        (["--data", "nowhere.jsonl"], "--data names 'nowhere.jsonl', but there is no such file or folder"),
        (["--dtype", "float3"], "is not a dtype"),
        (["--device", "cuda:7"], "cannot be used here"),
    ],
)
def test_wrong_options_are_refused_in_one_sentence(headwise, tiny, tmp_path, arguments, words):
    assert words.lower() in headwise("build", tiny, "-o", tmp_path / "atlas", *arguments).refused().lower()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "that file is empty; give a file that contains text"),
        ('{"text": "fine"}\n{"txt": 1}', 'needs a field "text"'),
        ('{"text": "fine"}\nnot json', "line 2"),
        ('{"text": "one text alone, and not very long at all, but with enough tokens in it to count"}', "need two"),
    ],
)
def test_bad_data_is_refused_in_one_sentence(headwise, tiny, tmp_path, content, words):
    data = tmp_path / "data.jsonl"
    data.write_text(content, encoding="utf-8")
    assert words in headwise("build", tiny, "--data", data, "--studies", "profile", "-o", tmp_path / "atlas").refused()


def test_an_unknown_model_is_refused(headwise, tmp_path):
    assert "nobody/nothing" in headwise("build", "nobody/nothing", "-o", tmp_path / "atlas").refused()
    assert "no folder or file" in headwise("build", "./not-there", "-o", tmp_path / "atlas").refused()


def test_a_model_without_observable_heads_is_refused(headwise, tmp_path, texts):
    folder = save_tiny(tmp_path / "bloom", family="bloom")
    result = headwise("build", folder, "--data", texts, "-o", tmp_path / "atlas")
    assert "never asks transformers' AttentionInterface" in result.refused()


def test_nan_weights_are_refused_by_name(headwise, tiny, texts, tmp_path):
    from safetensors.torch import load_file, save_file

    folder = shutil.copytree(tiny, tmp_path / "broken")
    weights = load_file(folder / "model.safetensors")
    name = next(key for key in weights if "o_proj" in key or "c_proj" in key)
    weights[name][0, 0] = float("nan")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    assert name in headwise("build", folder, "--data", texts, "-o", tmp_path / "atlas").refused()


def test_an_atlas_is_never_mixed(headwise, atlas, tiny, texts, tmp_path):
    copy = shutil.copytree(atlas, tmp_path / "atlas")
    other_texts = tmp_path / "other.jsonl"
    other_texts.write_text("\n".join(texts.read_text(encoding="utf-8").splitlines()[:5]), encoding="utf-8")
    assert (
        "--redo profile" in headwise("build", tiny, "--data", other_texts, "--studies", "profile", "-o", copy).refused()
    )
    other_model = save_tiny(tmp_path / "other", seed=7)
    message = headwise("build", other_model, "--data", texts, "--studies", "profile", "-o", copy).refused()
    assert "choose another folder with -o" in message
    redone = headwise("build", tiny, "--data", other_texts, "--studies", "profile", "--redo", "profile", "-o", copy)
    assert redone.code == 0
    assert xr.open_datatree(copy, engine="zarr")["profile"].ds.sizes["example"] == 5 + 16


def test_a_folder_with_other_things_in_it_is_left_alone(headwise, tiny, texts, tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    assert "not empty" in headwise("build", tiny, "--data", texts, "-o", tmp_path).refused()
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_a_file_where_the_atlas_should_go(headwise, tiny, texts, tmp_path):
    (tmp_path / "atlas").write_text("a file")
    assert str(tmp_path / "atlas") in headwise("build", tiny, "--data", texts, "-o", tmp_path / "atlas").refused()


@pytest.mark.skipif(os.geteuid() != 0, reason="making a small disk needs root: run the tests as root for this one")
def test_a_full_disk_is_named_and_the_rest_survives(headwise, tiny, texts, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting a small disk is not permitted here: run on a machine that allows tmpfs")
    try:
        message = headwise("build", tiny, "--data", texts, "--studies", "profile", "-o", disk / "atlas").refused()
        assert "full" in message or "space" in message
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_help_has_examples(headwise):
    for verb in ("build", "plan", "check", "show", "describe", "heads"):
        result = headwise(verb, "--help")
        assert result.code == 0
        assert f"headwise {verb}" in result.out.split("Example")[-1]


def test_version():
    code = "import headwise; print(headwise.__version__)"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "0.1.0"
