"""Errors a user can act on.

Every error Headwise raises on purpose is one of these, and its text is one sentence (or two) that says what was
found, what was expected, and what to do. The command line prints that text without a traceback and exits with 2;
anything else that escapes is a bug and keeps its traceback.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["AtlasError", "DataError", "HeadwiseError", "ModelError", "SeamError", "StudyError", "did_you_mean"]


class HeadwiseError(Exception):
    """Base of all errors whose text is meant for the person at the keyboard."""


class ModelError(HeadwiseError):
    """The model cannot be found, loaded or understood."""


class SeamError(HeadwiseError):
    """The model's attention cannot be observed right, so it is not observed at all."""


class DataError(HeadwiseError):
    """What the model was to be shown is missing, empty, malformed or too long."""


class StudyError(HeadwiseError):
    """A study is unknown, or was asked for something it cannot measure."""


class AtlasError(HeadwiseError):
    """The atlas on disk is missing, damaged, unwritable, or about something else."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The tail of an error message about an unknown name.

    >>> did_you_mean("profil", ["profile", "spectral"])
    "Did you mean 'profile'? Known: profile, spectral."
    >>> did_you_mean("xyz", ["profile"])
    'Known: profile.'
    """
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    guess = f"Did you mean {close[0]!r}? " if close else ""
    return f"{guess}Known: {', '.join(known)}."
