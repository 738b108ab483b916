"""Faults that need no model are refused before one is loaded; ignored options are refused, too."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from answered import rows, write

import headwise.model
import headwise.studies.runner
import headwise.watching.scoring
from headwise.cli.preflight import refuse_ignored_options
from headwise.core.errors import StudyError


@pytest.fixture(autouse=True)
def no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading a model fails the test."""

    def loaded(*given: object, **how: object) -> None:
        raise AssertionError("a model was loaded before the refusal")

    for module in (headwise.model, headwise.studies.runner, headwise.watching.scoring):
        for name in ("load", "open_stored"):
            monkeypatch.setattr(module, name, loaded, raising=False)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.csv").touch()
    (tmp_path / "head.csv").write_text("question,answers\n", encoding="utf-8")
    (tmp_path / "other.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    (tmp_path / "texts.jsonl").write_text('{"txt": 1}\n', encoding="utf-8")
    (tmp_path / "blank.txt").write_text("\n \n", encoding="utf-8")
    (tmp_path / "good.txt").write_text("the old river", encoding="utf-8")
    (tmp_path / "pairs.json").write_text("[1]", encoding="utf-8")
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "thesis.tex").write_text("years of work", encoding="utf-8")
    write(tmp_path / "ones.jsonl", [{**row, "label": 1} for row in rows(4)])
    return tmp_path


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("build --questions empty.csv", "--questions names 'empty.csv', but that file is empty"),
        ("build --questions head.csv", "head.csv contains no rows"),
        ("build --questions other.csv", "has no field 'question'; it has a, b"),
        ("build --questions nowhere.csv", "--questions names 'nowhere.csv', but there is no such file"),
        ("build --questions triviaqaa", "Did you mean 'triviaqa'?"),
        ("build --questions ones.jsonl", "--one-means"),
        ("build --questions triviaqa=nowhere", "nowhere"),
        ("build --data texts.jsonl", 'needs a field "text"'),
        ("build --relations pairs.json", "pairs.json"),
        ("build --steps other.csv", "other.csv"),
        ("build --limit -1", "--limit"),
        ("build --studies spectre", "no study 'spectre'"),
        ("build --reference nowhere", "there is no such folder"),
        ("build -o good.txt", "good.txt is a file, but a folder is needed; choose another folder with -o"),
        ("build -o good.txt/atlas", "good.txt is a file, but a folder is needed"),
        ("build -o thesis", "thesis is not empty (it holds thesis.tex) and is not an atlas"),
        ("build --engine ray --workers 0", "workers=0 makes no sense for an engine"),
        ("build --endpoint localhost --endpoint-model m", "an endpoint is a URL"),
        ("build --judge-model m", "--judge-model needs the URL of the server; add --judge URL."),
        ("build --judge http://x", "--judge needs the model's name there; add --judge-model NAME."),
        ("build --offload parts", "add --device-map auto or --memory cpu=8GiB, or omit it."),
        ("check --offload parts", "add --device-map auto or --memory cpu=8GiB, or omit it."),
        (
            "build --one-means wrong",
            "and the packaged questions have none; give the file with --questions, or omit it.",
        ),
        ("build --questions triviaqa=here --one-means wrong", "and the questions of triviaqa have none"),
        ("build --questions ones.jsonl --one-means right", "takes correct or wrong, not 'right'."),
        (
            "build --set answers.endpoint=http://x",
            "answers.endpoint cannot be set with --set; use --endpoint URL --endpoint-model NAME.",
        ),
        ("build --set probing.extractor=x", "probing.extractor cannot be set with --set; use extractor=... in Python."),
        ("build -o /proc/atlas", "Cannot create the folder /proc/atlas ("),
        ("compare nowhere nowhere --columns profile.sink", "--columns is for the figure; add -o FILE.png, or omit it."),
        ("compare nowhere nowhere --columns profile.sink -o heads.csv", "--columns is for the figure"),
        ("build --set answers.temperature=-1", "must be at least 0, not -1"),
        ("plan --questions other.csv", "has no field 'question'"),
        ("plan --studies profile --questions head.csv", "omit --questions"),
        ("detect nowhere --ask why", "no atlas at nowhere"),
        ("detect nowhere --data nowhere.csv", "--data names 'nowhere.csv'"),
        ("detect nowhere", 'detect needs a question or answers to score; add --ask "...", --data FILE or --log FILE.'),
        ("detect nowhere --answer Oslo", '--answer needs the question it answers; add --ask "...".'),
        ("detect nowhere --ask why --data head.csv", "--ask scores one question and --data a file; give one of them."),
        ("detect nowhere --log nowhere.eval", "--log names 'nowhere.eval'"),
        ("detect nowhere --ask why --verdict match", "add --log FILE, or omit it."),
        ("detect nowhere --ask why --one-means wrong", "--one-means is for the labels of a file"),
        ("detect nowhere --ask why --at 10", "did you mean 10%?"),
        ("detect nowhere --ask why --at 10% --risk 10%", "--at and --risk both set the threshold; give one of them"),
        ("detect nowhere --ask why --risk much", "--risk takes a rate between 0 and 1 (0% and 100%), not 'much'"),
        ("sparsify --data good.txt", "--held-out"),
        ("sparsify --data nowhere.txt --held-out good.txt", "--data names 'nowhere.txt'"),
        ("sparsify --data empty.csv --held-out good.txt", "that file is empty"),
        ("sparsify --data blank.txt --held-out good.txt", "blank.txt contains no text"),
        ("sparsify --data texts.jsonl --held-out good.txt", "line 1 of texts.jsonl has no text; every line needs"),
        (
            "sparsify --data good.txt --held-out good.txt --set foo=1",
            "There is no training setting 'foo'. Known: anneal, ",
        ),
        (
            "sparsify --data good.txt --held-out good.txt --steps 0",
            "--steps takes a whole number of at least 1, not '0'.",
        ),
        ("sparsify --data good.txt --held-out good.txt -o good.txt", "is a file, but a folder is needed"),
    ],
)
def test_a_fault_is_reported_before_the_model_is_loaded(headwise, here, words, sentence):
    assert sentence in headwise(*words.split()).refused()
    assert not (here / "atlas").exists()


@pytest.mark.parametrize("words", ["build --studies profile", "build --studies relations"])
def test_nothing_refused_would_be_found(headwise, here, words):
    """The loaders that these tests watch are the ones that a build calls."""
    assert "a model was loaded before the refusal" in headwise(*words.split()).err


def test_a_missing_package_is_reported_before_the_model_is_loaded(headwise, here, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert 'pip install "headwise[datasets]"' in headwise("build", "--questions", "triviaqa").refused()


@pytest.mark.parametrize("words", [("-o", "made/atlas"), ("-o", "made")])
def test_a_folder_that_may_not_be_written_to(headwise, here, monkeypatch, words):
    """Also where only the figures next to the atlas could not be written."""
    (here / "made").mkdir()
    closed = here / "made" if words[1] == "made/atlas" else here
    monkeypatch.setattr("os.access", lambda place, how: Path(place).resolve() != closed)
    said = headwise("build", *words).refused()
    assert f"{closed.name} is not readable and writable" in said or ". is not readable" in said
    assert "choose another folder with -o" in said


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            "--studies profile,relations --questions ones.jsonl",
            "--questions is for causal, answers, spectral, streaming, probing, causal_answers, samples and uncertainty, but "
            "this build measures only profile, relations; add one of them to --studies, or omit --questions.",
        ),
        ("--studies profile --limit 20", "omit --limit"),
        ("--studies profile --one-means wrong", "omit --one-means"),
        ("--studies profile --endpoint http://localhost/v1 --endpoint-model m", "omit --endpoint"),
        ("--studies profile --judge http://localhost/v1 --judge-model m", "omit --judge"),
        (
            "--studies relations --data good.txt",
            "--data is for profile, patterns, causal, sparsity and causal_answers, but",
        ),
        ("--studies profile --relations pairs.json", "--relations is for relations and relation_validation, but"),
        ("--studies profile --steps other.csv", "--steps is for functions and function_masking, but"),
        ("--studies profile --reference good.txt", "--reference is for patterns and circuits, but"),
        (
            "--studies profile --set spectral.k=5",
            "--set spectral.k=5 is for the study spectral, but this build measures only profile",
        ),
        ("--redo samples", "--redo names samples, but this build measures only profile, patterns, answers"),
    ],
)
def test_an_ignored_option_is_refused(headwise, here, words, sentence):
    assert sentence in headwise("build", *words.split()).refused()


def test_options_that_a_study_reads_pass():
    refuse_ignored_options(["spectral"], {"--questions": "mine.csv", "--limit": 0}, ["answers.few_shot=1"], ["answers"])
    refuse_ignored_options(["profile"], {"--reference": "none", "--questions": None})
    refuse_ignored_options(
        None, dict.fromkeys(("--data", "--questions", "--relations", "--steps", "--reference"), "given")
    )
    with pytest.raises(StudyError):
        refuse_ignored_options(["relations"], {"--data": "given"})
