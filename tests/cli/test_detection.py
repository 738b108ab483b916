"""From answers a user already has to a detector that scores new ones."""

import json

import pytest
from answered import rows, write

from headwise.atlas import Atlas


def test_the_atlas_holds_maps_table_and_detector(detected):
    atlas = Atlas.open(detected)
    assert atlas.studies == ["answers", "detection", "spectral"]
    assert (detected / "detector.safetensors").exists()
    assert atlas["spectral"]["p"].dims == ("part", "feature", "layer", "head")
    assert float(atlas["detection"]["auroc"].sel(detector="Length")) > 0.95  # the labels are made of it
    assert any(column.startswith("spectral.") for column in atlas.heads().columns)


def test_figures_and_words_are_written(detected):
    figures = {file.name for file in (detected.parent / "atlas-figures").iterdir()}
    assert {"spectral.png", "detection.pdf"} <= figures
    assert 'data-path="study/detection"' in (detected.parent / "atlas-report.html").read_text(encoding="utf-8")


def test_answers_are_shown(headwise, detected):
    shown = headwise("answers", detected, "--label", "wrong", "-n", "3")
    assert shown.code == 0, shown.err
    assert "wrong" in shown.out


def test_a_given_answer_is_scored_and_explained(headwise, detected, tiny):
    made = rows(4)
    said = made[0]["response"]
    result = headwise("detect", detected, "--ask", made[0]["question"], "--answer", said, "--model", tiny)
    assert result.code == 0, result.err
    score = json.loads(result.out)
    assert 0 <= score["probability"] <= 1
    assert score["answer"] == said
    assert len(score["heads"]) == 5
    assert all(name.startswith("L") for name in score["heads"])
    assert isinstance(score["unusual"], list)


def test_a_file_of_answers_is_scored_line_by_line(headwise, detected, tiny, tmp_path):
    data = write(tmp_path / "new.jsonl", rows(12))
    result = headwise("detect", detected, "--data", data, "--model", tiny)
    assert result.code == 0, result.err
    scores = [json.loads(line) for line in result.out.splitlines()]
    assert [score["id"] for score in scores] == [f"q{i}" for i in range(12)]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "detect needs a question or answers to score"),
        (["--ask", "why", "--data", "x.jsonl"], "--ask scores one question and --data a file"),
        (["--data", "nowhere.jsonl"], "nowhere.jsonl"),
    ],
)
def test_wrong_requests_are_refused(headwise, detected, arguments, words):
    assert words in headwise("detect", detected, *arguments).refused()


def test_a_column_of_a_table_names_the_command_that_reads_it(headwise, detected):
    words = headwise("heads", detected, "--sort", "answers.label").refused()
    assert f"the study answers has no values per head; read it with headwise answers {detected}." in words


def test_another_model_is_refused(headwise, detected, tmp_path):
    from planted import save_tiny

    other = save_tiny(tmp_path / "other", seed=9)
    result = headwise("detect", detected, "--ask", "why", "--answer", "so", "--model", other)
    assert "their own model only; give that model with --model, or build an atlas of this one" in result.refused()


def test_an_atlas_without_a_detector_is_refused(headwise, atlas):
    assert "headwise build --studies spectral" in headwise("detect", atlas, "--ask", "why").refused()


@pytest.mark.parametrize("label", ["correct", "wrong"])
def test_one_class_only_is_refused_and_the_answers_are_kept(headwise, tiny, tmp_path, label):
    questions = write(tmp_path / "answers.jsonl", rows(40, label))
    result = headwise("build", tiny, "--studies", "spectral", "--questions", questions, "-o", tmp_path / "atlas")
    assert "at least 20 " in result.refused()
    assert Atlas.open(tmp_path / "atlas").studies == ["answers"]
