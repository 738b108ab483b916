"""Options that nothing in a build would look at: refused, for who gave them thinks that they were heeded.

    headwise build --studies profile --questions mine.csv      profile asks no questions
    headwise build --studies profile --set spectral.k=50       spectral is not made
    headwise build --redo samples                              made only when it is named

Which study looks at what is read from the studies' own table (`catalogue`), so that nothing heavy is loaded. What stands in
the files is not looked at here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headwise.cli.catalogue import catalogue, chosen, shown
from headwise.core.errors import StudyError

__all__ = ["refuse_unused"]

LOOKED_AT = {  # option -> what it changes of `studies.sources`
    "--data": "passages",
    "--questions": "questions",
    "--limit": "questions",
    "--one-means": "questions",
    "--endpoint": "questions",
    "--judge": "questions",
    "--relations": "relations",
    "--steps": "steps",
    "--against": "against",
}


def refuse_unused(
    studies: Sequence[str] | None,
    given: Mapping[str, object],
    settings: Sequence[str] = (),
    redo: Sequence[str] = (),
) -> None:
    """``given``: options and their values, None where one was not given; ``settings``: those of ``--set``, known to exist."""
    made = chosen(studies)
    for option, value in given.items():
        if value is not None and str(value).lower() != "none":
            _refuse_unread(option, made)
    for setting in settings:
        study = setting.partition(".")[0].strip()
        if study not in made:
            raise StudyError(
                f"--set {setting} is for the study {study}, and this build makes {', '.join(made)}; add {study} to "
                "--studies, or leave it out."
            )
    for study in redo:
        if study not in made:
            raise StudyError(
                f"--redo names {study}, and this build makes {', '.join(made)}; add {study} to --studies, or leave it out."
            )


def _refuse_unread(option: str, made: Sequence[str]) -> None:
    """Refuse an option that no study of this build looks at."""
    readers = set(shown()[LOOKED_AT[option]])
    if readers.isdisjoint(made):
        those = [study for study in catalogue() if not readers.isdisjoint(chosen([study]))]
        raise StudyError(
            f"{option} is for {', '.join(those[:-1])} and {those[-1]}, and this build makes {', '.join(made)}; add one of "
            f"them to --studies, or leave {option} out."
        )
