"""Mistakes in a command: one sentence that says what to type, and exit code 2."""

import pytest

from headwise.cli.main import app
from headwise.cli.usage import VERB_SYNONYMS


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["heads"], "heads needs ATLAS (the folder that headwise build wrote"),
        (["show", "atlas"], "show needs STUDY (the study, such as profile); write: headwise show ATLAS STUDY"),
        (
            ["build", "--studeis", "profile"],
            "build has no option --studeis. Did you mean '--studies'? See headwise build --help",
        ),
        (["build", "--zzz"], "build has no option --zzz. See headwise build --help for its options"),
        (["bild"], "there is no verb 'bild'. Did you mean 'build'? Known: answers, bench, build"),
        (["draw"], "there is no verb 'draw'. Did you mean 'show'? Known: answers, bench, build"),
        (["profile"], "there is no verb 'profile'. profile is a study: headwise show ATLAS profile draws it"),
        (["plan", "one", "two"], "plan got unexpected arguments (two); write: headwise plan [MODEL]"),
        (["plan", "--limit", "many"], "--limit takes a whole number of at least 0, not 'many'."),
        (["heads", "atlas", "-n", "0"], "--limit takes a whole number of at least 1, not '0'."),
        (["heads", "atlas", "-n-3"], "--limit takes a whole number of at least 1, not '-3'."),
        (["answers", "atlas", "--limit=1.5"], "--limit takes a whole number of at least 1, not '1.5'."),
        (["sparsify", "--slack", "some"], "--slack takes a number, not 'some'."),
        (
            ["describe", "atlas", "profile", "extra"],
            "describe got unexpected arguments (extra); write: headwise describe ATLAS STUDY",
        ),
        (["build", "--data"], "'--data' requires an argument; see headwise"),
    ],
)
def test_a_mistake_is_reported_in_one_sentence(headwise, words, sentence):
    result = headwise(*words)
    assert sentence in result.refused()
    assert len(result.err.strip().splitlines()) == 1
    assert not result.out


def test_version_and_help_end_well(headwise):
    assert headwise("--version").code == 0
    assert headwise("heads", "--help").code == 0


def test_an_interruption_says_that_measurements_are_stored(headwise, monkeypatch, tmp_path):
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("headwise.atlas.Atlas.open", interrupt)
    result = headwise("heads", tmp_path)
    assert result.code == 130
    assert "interrupted; finished measurements are stored" in result.err


# ---- help -----------------------------------------------------------------------------------------------------------


def verbs() -> list[str]:
    return [command.name or command.callback.__name__ for command in app.registered_commands]  # type: ignore[union-attr]


@pytest.mark.parametrize("verb", verbs())
def test_every_verb_has_examples_of_its_own_and_nothing_is_cut(headwise, monkeypatch, verb):
    for columns in (80, 120):
        monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", columns)
        said = headwise(verb, "--help")
        assert said.code == 0 and max(map(len, said.out.splitlines())) <= columns
        assert "…" not in said.out
        assert f"headwise {verb}" in said.out.split("Example")[-1]


@pytest.mark.parametrize("verb", [*verbs(), "show atlas patterns", ""])
def test_the_help_names_no_python_types(headwise, verb):
    said = headwise(*verb.split(), "--help").out
    assert "<" not in said.replace("layer <", "").replace("headwise <", ""), said
    assert "NUMBER" in said or verb not in ("heads", "build")


def test_the_help_of_sparsify_lists_every_setting(headwise):
    from dataclasses import fields

    from headwise.cli.sparsify import OWN_OPTIONS
    from headwise.training import SparsityRecipe

    said = " ".join(headwise("sparsify", "--help").out.split())
    for field in fields(SparsityRecipe):
        assert (f" {field.name}=" in said and field.metadata["help"] in said) or field.name in OWN_OPTIONS


def test_synonyms_of_verbs_are_not_verbs():
    assert not {word for words in VERB_SYNONYMS.values() for word in words} & set(verbs())


def test_studies_prints_options_as_one_types_them(headwise):
    answers = headwise("studies", "answers").out
    assert "  --set answers.few_shot=<whole number>  (default: none)" in answers
    assert "  --endpoint URL --endpoint-model NAME  (default: none)" in answers and "<Endpoint>" not in answers
    masking, probing = (headwise("studies", name).out for name in ("function_masking", "probing"))
    assert "function_masking.heads=<whole numbers>  (default: 32)" in masking
    assert "probing.paper=<yes or no>  (default: yes)" in probing and "extractor=... in Python" in probing
    assert "None" not in answers + masking + probing
    assert "(only with --studies circuits)" in headwise("studies").out
    assert "[STUDY]" in headwise("studies", "--help").out and "[[" not in headwise("studies", "--help").out
