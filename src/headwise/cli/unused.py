"""Options that nothing in a build would look at: refused, for who gave them thinks that they were heeded.

    headwise build --studies profile --questions mine.csv      profile asks no questions
    headwise build --studies profile --set spectral.k=50       spectral is not made
    headwise build --redo samples                              made only when it is named

Which study reads what is in its spec (`inputs`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headwise.core.errors import StudyError
from headwise.studies.registry import default_studies, producers, with_dependencies
from headwise.studies.registry import studies as all_studies

__all__ = ["refuse_unused"]

READ_AS = {  # option -> the input of a study that it changes
    "--data": "passages",
    "--questions": "questions",
    "--limit": "questions",
    "--one-means": "questions",
    "--endpoint": "questions",
    "--judge": "questions",
    "--relations": "relations",
    "--steps": "steps",
    "--reference": "reference",
}


def refuse_unused(
    studies: Sequence[str] | None,
    given: Mapping[str, object],
    settings: Sequence[str] = (),
    redo: Sequence[str] = (),
) -> None:
    """``given``: options and their values, None where one was not given; ``settings``: those of ``--set``, known to exist."""
    made = with_dependencies(default_studies() if studies is None else studies)
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
    for study in producers(redo):
        if study not in made:
            raise StudyError(
                f"--redo names {study}, and this build makes {', '.join(made)}; add {study} to --studies, or leave it out."
            )


def _refuse_unread(option: str, made: Sequence[str]) -> None:
    """Refuse an option that no study of this build looks at."""
    readers = {name for name, spec in all_studies().items() if READ_AS[option] in spec.inputs}
    if readers.isdisjoint(made):
        those = [study for study in all_studies() if not readers.isdisjoint(with_dependencies([study]))]
        raise StudyError(
            f"{option} is for {', '.join(those[:-1])} and {those[-1]}, and this build makes {', '.join(made)}; add one of "
            f"them to --studies, or leave {option} out."
        )
