"""Errors a user can act on.

Every error Headwise raises on purpose is one of these, and its text is one sentence (or two) that says what was
found, what was expected, and what to do. The command line prints that text without a traceback and exits with 2;
anything else that escapes is a bug: it says so, writes its traceback to a file, and exits with 70.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

__all__ = [
    "AtlasError",
    "ContentError",
    "DataError",
    "EngineError",
    "HeadwiseError",
    "HeadwiseWarning",
    "ModelError",
    "SeamError",
    "StudyError",
    "did_you_mean",
    "reason",
    "translate_content_errors",
]


class HeadwiseError(Exception):
    """Base of all errors whose text is meant for the person at the keyboard (docs/errors/index.md).

    Examples:
        >>> try:
        ...     hw.Atlas.open("nowhere")
        ... except hw.HeadwiseError as error:
        ...     print(type(error).__name__, "-", error)
        AtlasError - There is no atlas at nowhere; make one with headwise build -o nowhere.
    """


class ModelError(HeadwiseError):
    """The model cannot be found, loaded or understood (docs/errors/model-not-found.md and the pages after it).

    Examples:
        >>> hw.load("./no-such-folder")
        Traceback (most recent call last):
            ...
        headwise.core.errors.ModelError: There is no folder or file './no-such-folder'; check the path.
    """


class SeamError(HeadwiseError):
    """The model's attention cannot be observed right, so it is not observed at all (docs/errors/no-seam.md and after).

    Examples:
        >>> with hw.observe(model, hw.Spectrum()) as seen:
        ...     pass  # the model was not run
        >>> seen["spectrum"]
        Traceback (most recent call last):
            ...
        headwise.core.errors.SeamError: Spectrum has no readings yet; run the model inside `with observe(...)`
    """


class DataError(HeadwiseError):
    """What the model was to be shown is missing, empty, malformed or too long (docs/errors/data-files.md and after).

    Examples:
        >>> model.encode([])
        Traceback (most recent call last):
            ...
        headwise.core.errors.DataError: There is no text to encode: the list is empty.
    """


class StudyError(HeadwiseError):
    """A study is unknown, or was asked for something it cannot measure (docs/errors/studies-and-options.md and after).

    Examples:
        >>> hw.build(model, ["profil"])  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        headwise.core.errors.StudyError: There is no study 'profil'. Did you mean 'profile'? ...
    """


class AtlasError(HeadwiseError):
    """The atlas is missing, damaged, unwritable, or about something else (docs/errors/no-atlas.md and after).

    Examples:
        >>> hw.Atlas.open("nowhere")
        Traceback (most recent call last):
            ...
        headwise.core.errors.AtlasError: There is no atlas at nowhere; make one with headwise build -o nowhere.
    """


class ContentError(AtlasError):
    """An atlas fits its schema, and yet a figure or a description of it fails (docs/errors/damaged-atlas.md)."""


class EngineError(HeadwiseError):
    """What runs a build (workers, or the cluster they are on) is missing, has no room, or has failed (docs/errors/engines.md).

    Examples:
        >>> from headwise.engines import RayEngine
        >>> RayEngine(workers=0)
        Traceback (most recent call last):
            ...
        headwise.core.errors.EngineError: workers=0 makes no sense for an engine; give at least 1, or leave it out.
    """


class HeadwiseWarning(UserWarning):
    """What the person at the keyboard should know although there is a result; the command line prints it as a note."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The tail of an error message about an unknown name.

    >>> did_you_mean("profil", ["profile", "spectral"])
    "Did you mean 'profile'? Known: profile, spectral."
    >>> did_you_mean("xyz", ["profile"])
    'Known: profile.'
    >>> did_you_mean("xyz", ["RAUQ", "Log-probability, min"])  # quoted where a name has a comma
    "Known: 'Log-probability, min', 'RAUQ'."
    """
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    guess = f"Did you mean {close[0]!r}? " if close else ""
    listed = map(repr, known) if any("," in one for one in known) else known
    return f"{guess}Known: {', '.join(listed)}."


LONGEST_REASON = 300  # characters
_WRONG_TYPE = "a value is of another type than expected"
_CLASS = re.compile(r"<class '(?:[\w.]+\.)?(\w+)'>")
_EXCEPTION = re.compile(r"\b(?:\w+\.)*\w*(?:Error|Exception): ")


def reason(error: BaseException) -> str:
    """What another library says of an input, as a part of a sentence: one line, without the names of Python's classes.

    >>> reason(KeyError("shape")), reason(ValueError("3 is not even\\nand more"))
    ("'shape' is missing", '3 is not even and more')
    >>> reason(TypeError("'int' object is not iterable"))
    'a value is of another type than expected'
    """
    text = _EXCEPTION.sub("", _CLASS.sub(r"\1", str(error))).replace("NoneType", "None")
    text = " ".join(text.split()).rstrip(".")
    if isinstance(error, RecursionError):
        text = "it is nested too deep"
    elif isinstance(error, MemoryError):
        text = "there is too little memory for it"
    elif isinstance(error, ZeroDivisionError):
        text = "a size is zero"
    elif type(error) is KeyError and len(str(error)) < 100:
        text = f"{text} is missing"
    elif isinstance(error, LookupError):
        text = "an entry is missing"
    elif isinstance(error, AttributeError | TypeError) or "object" in text:
        text = _WRONG_TYPE
    text = text or "it gives no reason"
    return text if len(text) <= LONGEST_REASON else f"{text[: LONGEST_REASON - 3]}..."


@contextmanager
def translate_content_errors(what: str) -> Iterator[None]:
    """Raise what goes wrong in reading ``what`` (an atlas, which is the only input) as one sentence about it.

    A schema declares names, dims and dtypes. Somebody who writes Zarr can still leave out what the words of a study count on.
    The cause is kept: the command line writes it to a file, since the same may be a bug.
    """
    try:
        yield
    except HeadwiseError:  # some of them are ValueErrors, too
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError) as cause:
        raise ContentError(
            f"{what} does not hold what Headwise writes ({reason(cause)}); build it again with --redo, or get it again from "
            "where it came."
        ) from cause
