"""Options of studies and figures as words on the command line: ``answers.temperature=0.7``, ``--value all``.

A study's options are the fields of its dataclass, a figure's are the keyword parameters of its function; both carry their
types. So a new study or figure brings its options to the command line without a line here, and what is misspelt is
refused with what there is.

    text        becomes
    7, 0.5      int, float, where the option is one
    yes, no     bool; a bare ``--matched`` is yes
    a,b         a list, where the option takes several
    none        None, where the option may be None
"""

from __future__ import annotations

import collections.abc
import dataclasses
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from headwise.core.errors import StudyError, did_you_mean
from headwise.studies.registry import dataset_spec, producers, studies

__all__ = [
    "fields_of",
    "figure_options",
    "kind_of",
    "parts_of",
    "refuse_table",
    "refuse_unknown",
    "study_options",
    "value_of",
]

TRUTHS = {"yes": True, "true": True, "on": True, "1": True, "no": False, "false": False, "off": False, "0": False}
SEVERAL = (list, tuple, collections.abc.Sequence, collections.abc.Iterable, collections.abc.Collection)
KINDS = {bool: "yes or no", int: "whole number", float: "number", str: "text", type(None): "none"}


def study_options(settings: Sequence[str], known: Mapping[str, type] | None = None) -> dict[str, Any]:
    """``["spectral.k=50"]`` as ``{"spectral": SpectralOptions(k=50)}``; ``known``: study -> dataclass, by default all."""
    chosen: dict[str, dict[str, Any]] = {}
    known = {name: spec.options for name, spec in studies().items()} if known is None else known
    names = {study: [field.name for field in dataclasses.fields(kind)] for study, kind in known.items()}
    for setting in settings:
        study, option, text = parts_of(setting, names)
        hint = typing.get_type_hints(known[study])[option]
        chosen.setdefault(study, {})[option] = value_of(f"The option {option} of the study {study}", text, hint)
    return {study: known[study](**options) for study, options in chosen.items()}


def refuse_unknown(names: Sequence[str], settings: Sequence[str] = ()) -> None:
    """Refuse unknown studies, unknown options in ``STUDY.OPTION=VALUE``, and values that an option does not take."""
    producers(names)
    study_options(settings)


def refuse_table(study: str, atlas: str, what: str) -> None:
    """Point to the command that reads a Dataset which has no ``what`` ("figure", "words") because it is a table."""
    spec = dataset_spec(study)
    if spec is not None and spec.read_with:
        raise StudyError(f"{study} is a table and has no {what}; read it with {spec.read_with.format(atlas=atlas)}")


def parts_of(setting: str, known: Mapping[str, Sequence[str]]) -> tuple[str, str, str]:
    """Study, option and value of ``STUDY.OPTION=VALUE``; ``known``: the options of each study.

    >>> parts_of("spectral.k = 50", {"spectral": ["k"]})
    ('spectral', 'k', '50')
    """
    name, equals, text = setting.partition("=")
    study, dot, option = name.strip().partition(".")
    if not (equals and dot):
        raise StudyError(
            f"--set takes STUDY.OPTION=VALUE, such as answers.temperature=0.7, not {setting!r}{_owners(setting, known)}"
        )
    if study not in known:
        raise StudyError(f"There is no study {study!r} with options. {did_you_mean(study, known)}")
    return study, _known(option, known[study], study), text.strip()


def _owners(setting: str, known: Mapping[str, Sequence[str]]) -> str:
    """The studies that have an option of this name, as the end of a sentence."""
    option, _, text = setting.partition("=")
    owners = [study for study, options in known.items() if option.strip() in options]
    written = " or ".join(f"{study}.{option.strip()}={text or 'VALUE'}" for study in owners)
    return f"; write {written}" if owners else ""


def fields_of(settings: Sequence[str], kind: type) -> dict[str, Any]:
    """``["length=1024"]`` as ``{"length": 1024}``, by the fields of a dataclass."""
    hints = typing.get_type_hints(kind)
    chosen = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise StudyError(f"--set takes NAME=VALUE, such as length=1024, not {setting!r}")
        name = _known(name.strip(), [field.name for field in dataclasses.fields(kind)], kind.__name__.lower())
        chosen[name] = value_of(f"The option {name} of the {kind.__name__.lower()}", text.strip(), hints[name])
    return chosen


def figure_options(words: Sequence[str], hints: Mapping[str, Any], study: str) -> dict[str, Any]:
    """``["--value", "all", "--matched"]`` as ``{"value": "all", "matched": True}``; ``hints``: the types by name."""
    options: dict[str, Any] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            raise StudyError(f"{word!r} was not expected; write an option of the figure as --name value")
        name, equals, text = word[2:].partition("=")
        name = _known(name.replace("-", "_"), list(hints), study)
        if not equals:
            flag = bool in _choices(hints[name]) and (not rest or rest[0].lower() not in TRUTHS)
            if not flag and not rest:
                raise StudyError(f"--{name} needs a value after it")
            text = "yes" if flag else rest.pop(0)
        options[name] = value_of(f"--{name.replace('_', '-')} of the {study} figure", text, hints[name])
    return options


def _known(option: str, names: Sequence[str], study: str) -> str:
    if option not in names:
        there = did_you_mean(option, names) if names else "It has none."
        raise StudyError(f"{study} has no option {option!r}. {there}")
    return option


def value_of(name: str, text: str, hint: Any) -> Any:
    """The text as what the option takes: tried from the narrowest kind to the widest."""
    choices = _choices(hint)
    if type(None) in choices and text.lower() == "none":
        return None
    if bool in choices and text.lower() in TRUTHS:
        return TRUTHS[text.lower()]
    for kind in (int, float):
        if kind in choices:
            try:
                return kind(text)
            except ValueError:
                continue
    each = _each(choices)
    if each is not None:
        return tuple(value_of(name, part.strip(), each) for part in text.split(",") if part.strip())
    if str in choices:
        return text
    raise StudyError(f"{name} takes {_wanted(hint)}, and was given {text!r}")


def kind_of(hint: Any) -> str:
    """What an option takes, in a word or three; None, which is the same as leaving it out, is not told.

    >>> kind_of(int | None), kind_of(bool), kind_of(tuple[int, ...]), kind_of(str)
    ('whole number', 'yes or no', 'whole numbers', 'text')
    """
    choices = [one for one in _choices(hint) if one is not type(None)]
    each = _each(choices)
    if each is not None:
        return "names" if each is str else f"{kind_of(each)}s"
    return " or ".join(KINDS.get(one, getattr(one, "__name__", str(one))) for one in choices)


def _wanted(hint: Any) -> str:
    kind = kind_of(hint)
    told = kind if kind.endswith("s") or kind == "yes or no" else f"a {kind}"
    return f"{told} or none" if type(None) in _choices(hint) else told


def _each(choices: Sequence[Any]) -> Any:
    """What a list among the choices holds; None where there is no list."""
    several = next((one for one in choices if (typing.get_origin(one) or one) in SEVERAL), None)
    if several is None:
        return None
    return next((one for one in typing.get_args(several) if one is not Ellipsis), str)


def _choices(hint: Any) -> tuple[Any, ...]:
    """The kinds an annotation allows: ``int | None`` is (int, NoneType)."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return typing.get_args(hint)
    return (hint,)
