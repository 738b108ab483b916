"""Commands that are not written right: one sentence that says what to type, and exit code 2."""

import pytest


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["heads"], "heads needs ATLAS (the folder that headwise build wrote); write: headwise heads ATLAS"),
        (["show", "atlas"], "show needs STUDY (the study, such as profile); write: headwise show ATLAS STUDY"),
        (
            ["build", "--studeis", "profile"],
            "build has no option --studeis. Did you mean '--studies'? See headwise build --help",
        ),
        (["build", "--zzz"], "build has no option --zzz. See headwise build --help for those it has"),
        (["bild"], "there is no verb 'bild'. Did you mean 'build'? Known: answers, build"),
        (["plan", "--limit", "many"], "--limit was not understood: "),
        (
            ["describe", "atlas", "profile", "extra"],
            "describe was given more than it takes (extra); write: headwise describe ATLAS STUDY",
        ),
        (["build", "--data"], "'--data' requires an argument; see headwise"),
    ],
)
def test_a_slip_is_told_in_one_sentence(headwise, words, sentence):
    result = headwise(*words)
    assert sentence in result.refused()
    assert len(result.err.strip().splitlines()) == 1
    assert not result.out


def test_no_words_at_all_give_the_help(headwise):
    result = headwise()
    assert result.code == 2
    assert "Reads a language model one attention head at a time." in result.out + result.err


def test_version_and_help_end_well(headwise):
    assert headwise("--version").code == 0
    assert headwise("heads", "--help").code == 0


def test_an_interruption_says_that_the_work_is_kept(headwise, monkeypatch, tmp_path):
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("headwise.atlas.Atlas.open", interrupt)
    result = headwise("heads", tmp_path)
    assert result.code == 130
    assert "interrupted; what was measured is kept" in result.err
