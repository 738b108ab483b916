"""Options of studies (``--set answers.temperature=0.7``) and of figures (``--value all``): parsing, validation and help.

A study's options are the fields of its dataclass; a figure's options are declared by its spec. Both carry types, so a new
study or figure needs no code here, and a misspelt name is refused with a suggestion.

    text        value
    7, 0.5      int, float, if the option takes one
    yes, no     bool; a bare ``--matched`` means yes
    a,b         a list, if the option takes several values
    none        None, if the option may be None

``headwise show ATLAS patterns --help`` also lists the options of that figure. The study is only known from the arguments, so
`FigureCommand` finds it among them and adds the options to the help; `figure_options` parses them when the command runs.
"""

from __future__ import annotations

import collections.abc
import copy
import dataclasses
import inspect
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from headwise.cli.usage import TYPED, Verb
from headwise.core.errors import StudyError, did_you_mean
from headwise.studies.registry import dataset_spec, producers, studies

TRUTH_VALUES = {"yes": True, "true": True, "on": True, "1": True, "no": False, "false": False, "off": False, "0": False}
SEQUENCE_TYPES = (list, tuple, collections.abc.Sequence, collections.abc.Iterable, collections.abc.Collection)
TAKES_A_VALUE = ("-o", "--output")
FIGURE_METAVARS = {"names": "NAMES", "whole number": "NUMBER", "number": "NUMBER", "whole numbers": "NUMBERS"}
TYPE_NAMES = {bool: "yes or no", int: "whole number", float: "number", str: "text", type(None): "none"}


def study_options(
    settings: Sequence[str], known: Mapping[str, type] | None = None, *, quick: bool = False
) -> dict[str, Any]:
    """``["spectral.k=50"]`` as ``{"spectral": SpectralOptions(k=50)}``; ``known``: study -> dataclass, by default all.

    ``quick``: what is not set has the value of a quick build.
    """
    chosen: dict[str, dict[str, Any]] = {}
    known = {name: spec.options for name, spec in studies().items()} if known is None else known
    names = {study: [field.name for field in dataclasses.fields(kind)] for study, kind in known.items()}
    for setting in settings:
        study, option, text = parts_of(setting, names)
        hint = typing.get_type_hints(known[study])[option]
        if is_object(hint):
            field = next(one for one in dataclasses.fields(known[study]) if one.name == option)
            raise StudyError(f"{study}.{option} cannot be set with --set; use {set_with(field)}.")
        chosen.setdefault(study, {})[option] = value_of(f"The option {option} of the study {study}", text, hint)
    defaults = {study: known[study].for_quick_build() if quick else known[study]() for study in chosen}  # type: ignore[attr-defined]
    return {study: dataclasses.replace(defaults[study], **options) for study, options in chosen.items()}


def refuse_unknown(names: Sequence[str], settings: Sequence[str] = ()) -> None:
    """Refuse unknown studies, unknown options in ``STUDY.OPTION=VALUE``, and values of the wrong type."""
    producers(names)
    study_options(settings)


def refuse_table(study: str, atlas: str, what: str) -> None:
    """Refuse a table, which has no ``what`` ("figure", "description"), and name the command that reads it."""
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
    """The studies that have an option of this name, as the end of an error message."""
    option, _, text = setting.partition("=")
    owners = [study for study, options in known.items() if option.strip() in options]
    written = " or ".join(f"{study}.{option.strip()}={text or 'VALUE'}" for study in owners)
    return f"; write {written}" if owners else ""


def fields_of(settings: Sequence[str], kind: type, what: str) -> dict[str, Any]:
    """``["length=1024"]`` as ``{"length": 1024}``, by the fields of a dataclass; ``what``: "training setting"."""
    hints = typing.get_type_hints(kind)
    names = [field.name for field in dataclasses.fields(kind)]
    chosen = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise StudyError(f"--set takes NAME=VALUE, such as length=1024, not {setting!r}")
        name = name.strip()
        if name not in names:
            raise StudyError(f"There is no {what} {name!r}. {did_you_mean(name, names)}")
        chosen[name] = value_of(f"The {what} {name}", text.strip(), hints[name])
    return chosen


def figure_options(words: Sequence[str], hints: Mapping[str, Any], study: str) -> dict[str, Any]:
    """``["--value", "all", "--matched"]`` as ``{"value": "all", "matched": True}``; ``hints``: types by name."""
    options: dict[str, Any] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            raise StudyError(f"unexpected argument {word!r}; write an option of the figure as --name value")
        name, equals, text = word[2:].partition("=")
        if (name := name.replace("-", "_")) == "style" and name not in hints:
            from headwise.studies.present import refuse_style

            refuse_style(study, [name])
        name = _known(name, list(hints), study)
        if not equals:
            flag = bool in _choices(hints[name]) and (not rest or rest[0].lower() not in TRUTH_VALUES)
            if not flag and not rest:
                raise StudyError(f"{word} needs a value ({kind_of(hints[name])}); write: {word} VALUE")
            text = "yes" if flag else rest.pop(0)
        options[name] = value_of(f"--{name.replace('_', '-')} of the {study} figure", text, hints[name])
    return options


def _known(option: str, names: Sequence[str], study: str) -> str:
    if option not in names:
        known = did_you_mean(option, names) if names else "It has none; omit the option."
        raise StudyError(f"{study} has no option {option!r}. {known}")
    return option


def value_of(name: str, text: str, hint: Any) -> Any:
    """The text converted to the type of the option, trying the narrowest type first."""
    choices = _choices(hint)
    if type(None) in choices and text.lower() == "none":
        return None
    if bool in choices and text.lower() in TRUTH_VALUES:
        return TRUTH_VALUES[text.lower()]
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
    raise StudyError(f"{name} takes {_expected(hint)}, not {text!r}.")


def typed(value: Any) -> str:
    """A value as one types it after ``--set NAME=``.

    >>> [typed(value) for value in (None, True, (1, 2.5), 0.0, "raw")]
    ['none', 'yes', '1,2.5', '0', 'raw']
    """
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    if isinstance(value, list | tuple):
        return ",".join(typed(one) for one in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def is_object(hint: Any) -> bool:
    """Whether an option takes an object, such as an endpoint, which no text can express."""
    return any(dataclasses.is_dataclass(one) for one in _choices(hint))


def set_with(field: dataclasses.Field[Any]) -> str:
    """How an option that takes an object is set."""
    return str(field.metadata.get("cli") or f"{field.name}=... in Python")


def kind_of(hint: Any) -> str:
    """The type of an option in words; None is omitted, since it is the same as not giving the option.

    >>> kind_of(int | None), kind_of(bool), kind_of(tuple[int, ...]), kind_of(str)
    ('whole number', 'yes or no', 'whole numbers', 'text')
    """
    choices = [one for one in _choices(hint) if one is not type(None)]
    each = _each(choices)
    if each is not None:
        return "names" if each is str else f"{kind_of(each)}s"
    return " or ".join(TYPE_NAMES.get(one, getattr(one, "__name__", str(one))) for one in choices)


def _expected(hint: Any) -> str:
    kind = kind_of(hint)
    expected = kind if kind.endswith("s") or kind == "yes or no" else f"a {kind}"
    return f"{expected} or none" if type(None) in _choices(hint) else expected


def _each(choices: Sequence[Any]) -> Any:
    """The element type of the sequence type among the choices; None if there is none."""
    sequence = next((one for one in choices if (typing.get_origin(one) or one) in SEQUENCE_TYPES), None)
    if sequence is None:
        return None
    return next((one for one in typing.get_args(sequence) if one is not Ellipsis), str)


def _choices(hint: Any) -> tuple[Any, ...]:
    """The types that an annotation allows: ``int | None`` is (int, NoneType)."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return typing.get_args(hint)
    return (hint,)


# ---- the help of a figure -------------------------------------------------------------------------------------------


class FigureCommand(Verb):
    """A verb whose second argument is a study with a figure."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """The help of the verb and, if a study was named, of its figure."""
        study = study_in(ctx.meta.get(TYPED, ()))
        command = self if study is None else self._with_options_of(study)
        Verb.format_help(command, ctx, formatter)

    def _with_options_of(self, study: str) -> FigureCommand:
        command = copy.copy(self)
        command.params = [*self.params, *_figure_parameters(study)]
        command.epilog = _figure_examples(study)
        return command


def study_in(words: Sequence[str]) -> str | None:
    """The study with a figure among the arguments: the second positional argument, or the only one.

    >>> study_in(["atlas", "-o", "a.pdf", "patterns", "--help"]), study_in(["patterns"]), study_in(["atlas"])
    ('patterns', 'patterns', None)
    """
    positional = [word for before, word in zip(["", *words], words, strict=False)
                  if not word.startswith("-") and before not in TAKES_A_VALUE]  # fmt: skip
    named = positional[1:2] or positional[:1]
    return named[0] if named and (spec := dataset_spec(named[0])) is not None and not spec.read_with else None


def _figure_parameters(study: str) -> list[Any]:
    """The options of a figure as typer parameters, made from a function with that signature that is never called."""
    from headwise.studies.present import figure_types

    spec = dataset_spec(study)
    known = {} if spec is None else spec.figure_options
    parameters = []
    for name, hint in figure_types(study).items():
        declared = known[name]
        shown = typer.Option(
            f"--{name.replace('_', '-')}",
            help=declared.meaning + (f" Example: {declared.example}." if declared.example else ""),
            rich_help_panel=f"Options of the {study} figure",
            metavar="" if hint is bool else FIGURE_METAVARS.get(kind_of(hint), "TEXT"),
        )
        kind: Any = bool if hint is bool else str | None
        default = False if kind is bool else None
        parameters.append(
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, shown])
        )

    def figure() -> None: ...

    figure.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    figure.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    app = typer.Typer(add_completion=False)
    app.command()(figure)
    return list(typer.main.get_command(app).params)


def _figure_examples(study: str) -> str:
    """The default figure, then one example per option, with the other options that it requires."""
    from headwise.studies.present import figure_defaults

    spec = dataset_spec(study)
    known = {} if spec is None else spec.figure_options
    defaults = figure_defaults(study)
    lines = [f"headwise show atlas {study} -o {study}.pdf"]
    for name in defaults:
        option = known[name]
        met = (str(defaults[other]) in values for other, values in option.needs.items())
        needs = [] if all(met) else [f"--{other} {values[0]}" for other, values in option.needs.items()]
        words = [f"headwise show atlas {study}", *needs, f"--{name.replace('_', '-')}", option.example]
        lines.append(" ".join(words).rstrip())
    return "\n\n".join(["[b]Examples[/b]", *lines])
