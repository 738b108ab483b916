"""Studies that have neither figure nor words, and the verb that reads each of them."""

from __future__ import annotations

from headwise.core.errors import StudyError

__all__ = ["refuse_unpictured"]

READ_WITH = {
    "answers": "headwise answers {atlas}",
    "salience": "headwise heads {atlas} --columns relations.best,salience.tokens",
}


def refuse_unpictured(study: str, atlas: str, what: str) -> None:
    """Point to the verb that reads this study, where it is one without ``what`` ("figure", "words")."""
    if study in READ_WITH:
        raise StudyError(
            f"The study {study} is a table and has no {what}; read it with {READ_WITH[study].format(atlas=atlas)}"
        )
