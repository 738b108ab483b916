"""Usage messages: mistakes in a command as one sentence, and the examples below a verb's help.

    show needs STUDY (the study, such as profile); write: headwise show ATLAS STUDY

Click raises a different error for each kind of mistake; they are distinguished by their attributes.
"""

from __future__ import annotations

import os
import re
import typing
from pathlib import Path
from typing import Any

import typer
from rich.markup import escape
from typer.core import TyperCommand, TyperGroup

from headwise.core.errors import DataError, did_you_mean
from headwise.studies.registry import datasets

VERB_SYNONYMS = {
    "build": ("make", "run", "measure", "create", "atlas", "map"),
    "plan": ("estimate", "cost", "dry-run"),
    "check": ("verify", "validate", "test"),
    "show": ("draw", "plot", "figure", "paint", "image", "view"),
    "describe": ("tell", "words", "summary", "summarise", "summarize", "explain"),
    "heads": ("table", "list", "ls", "rows"),
    "head": ("dossier",),
    "answers": ("questions", "labels"),
    "detect": ("score", "predict", "judge"),
    "drift": ("monitor", "shift"),
    "sparsify": ("train", "prune", "finetune"),
    "compare": ("diff", "against"),
    "report": ("html", "page"),
    "serve": ("explore", "explorer", "open", "browse", "web", "start"),
}

TYPED = "headwise.typed"  # key of a command's arguments in its context
METAVARS = {bool: "", int: "NUMBER", float: "NUMBER", Path: "PATH", str: "TEXT"}  # what an option takes, in the help

UsageError: type[Any] = typer.BadParameter.__mro__[1]  # click's, which some versions of typer vendor


def describe_error(error: Any) -> str:
    """A usage error in one sentence: what was found, what was expected, what to type."""
    context = error.ctx
    typed = context.command_path if context is not None else "headwise"
    verb = typed.rsplit(" ", 1)[-1]
    name, parameter = getattr(error, "option_name", None), getattr(error, "param", None)
    if name is not None and hasattr(error, "possibilities"):
        return f"{verb} has no option {name}. {_suggest_option(name, context, typed)}"
    if parameter is not None and type(error).__name__ == "MissingParameter":
        return f"{verb} needs {_called(parameter)}{_meaning(parameter)}; write: {_form(context, typed)}"
    if parameter is not None:
        expected, given = _expected(parameter), _typed_text(parameter, context)
        if expected and given is not None:
            return f"{_called(parameter)} takes {expected}, not {given!r}."
        return f"{_called(parameter)} is invalid: {_start(error.message)}; see {typed} --help"
    commands = getattr(context.command, "commands", None) if context is not None else None
    if commands and "'" in error.message:
        verb = error.message.split("'")[1]
        return f"there is no verb {verb!r}. {_suggest_verb(verb, commands)}"
    if "extra argument" in error.message:
        given = error.message.partition("(s) ")[2].strip("()") or error.message
        return f"{verb} got unexpected arguments ({given}); write: {_form(context, typed)}"
    return f"{_start(error.message)}; see {typed} --help"


def _suggest_verb(word: str, verbs: Any) -> str:
    """A suggestion for an unknown verb: the nearest name, a synonym, or the verbs that read a study."""
    if word in datasets():
        return f"{word} is a study: headwise show ATLAS {word} draws it, headwise describe ATLAS {word} describes it"
    known = f"Known: {', '.join(sorted(verbs))}."
    verb = next((verb for verb, others in VERB_SYNONYMS.items() if word.lower() in others and verb in verbs), None)
    return did_you_mean(word, verbs) if verb is None else f"Did you mean {verb!r}? {known}"


def _suggest_option(name: str, context: Any, typed: str) -> str:
    known = [option for parameter in context.command.params for option in parameter.opts if option.startswith("--")]
    guess, question, _ = did_you_mean(name, known).partition("?")
    return f"{guess}? See {typed} --help" if question else f"See {typed} --help for its options"


def _called(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return str(parameter.metavar or parameter.name.upper())
    return str(max(parameter.opts, key=len))


def _expected(parameter: Any) -> str:
    """The numbers that an option takes, in words; empty text for other options."""
    described, converter = (
        getattr(parameter, "type_descriptor", None),
        getattr(parameter, "type", None),
    )  # new, old typer
    kind = str(getattr(described, "annotation", None) or getattr(converter, "name", ""))
    if "int" not in kind and "float" not in kind:
        return ""
    limits = [getattr(parameter, name, getattr(converter, name, None)) for name in ("min", "max")]
    bounds = [
        f"{word} {limit}" for word, limit in zip(("at least", "at most"), limits, strict=True) if limit is not None
    ]
    noun = "a whole number" if "int" in kind else "a number"
    return f"{noun} of {' and '.join(bounds)}" if bounds else noun


def _typed_text(parameter: Any, context: Any) -> str | None:
    """What was typed as the value of an option; the last, if it was given several times."""
    words = list(context.meta.get(TYPED, ()))
    found = None
    for number, word in enumerate(words):
        for name in parameter.opts:
            if word == name:
                found = next(iter(words[number + 1 : number + 2]), None)
            elif word.startswith(f"{name}=") or (not name.startswith("--") and word.startswith(name)):
                found = word.removeprefix(name).removeprefix("=")
    return found


def _meaning(parameter: Any) -> str:
    text = (getattr(parameter, "help", None) or "").rstrip(".")
    return f" ({_start(text)})" if text else ""


def _form(context: Any, typed: str) -> str:
    """The verb with its arguments: ``headwise show ATLAS STUDY``."""
    arguments = [one for one in context.command.params if one.param_type_name == "argument"]
    return " ".join([typed, *(_called(one) if one.required else f"[{_called(one)}]" for one in arguments)])


def _start(text: str) -> str:
    """The text as the middle of a sentence."""
    return text[:1].lower() + text[1:].rstrip(".")


# ---- help -----------------------------------------------------------------------------------------------------------


class Verb(TyperCommand):
    """A command whose help shows what its options take (NUMBER, PATH, TEXT) and nothing after flags and arguments."""

    def __init__(self, *args: Any, **given: Any):
        super().__init__(*args, **given)
        for parameter in self.params:
            if parameter.param_type_name == "argument":  # its name says what it is; typer would add the Python type
                parameter.display_type_rich = lambda ctx: ""  # type: ignore[attr-defined]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Store the arguments: error messages quote them, and the help of a figure depends on them."""
        ctx.meta[TYPED] = list(args)
        return super().parse_args(ctx, args)

    def get_help_option(self, ctx: Any) -> Any:
        """``--help``, a flag."""
        return _without_value(super().get_help_option(ctx))


class Verbs(TyperGroup):
    """The command line as a whole; every argument passes here before a verb reads it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse what is not text, and expand ``~``."""
        return list(super().parse_args(ctx, [_argument(one) for one in args]))

    def get_help_option(self, ctx: Any) -> Any:
        """``--help``, a flag."""
        return _without_value(super().get_help_option(ctx))


def _argument(text: str) -> str:
    """One argument, with the home folder for ``~`` where a path begins.

    >>> [_argument(text).replace(os.path.expanduser("~"), "HOME") for text in ("--output=~/atlas", "-o~/a", "~", "a~b")]
    ['--output=HOME/atlas', '-oHOME/a', 'HOME', 'a~b']
    """
    try:
        text.encode()
    except UnicodeEncodeError as cause:
        raise DataError(
            f"{text!r} is not UTF-8 text, which arguments are; rename that file, or type it again."
        ) from cause
    return re.sub(r"^(--?[\w-]+=|-[a-zA-Z])?~(?=/|$)", lambda found: (found[1] or "") + os.path.expanduser("~"), text)


def _without_value(option: Any) -> Any:
    if option is not None:
        option.metavar = ""
    return option


def name_values(verb: Any) -> None:
    """Give the options of a verb a metavar by their type, where they have none."""
    verb.__annotations__ = typing.get_type_hints(verb, include_extras=True)  # evaluated once, so that it can be changed
    for hint in verb.__annotations__.values():
        for info in getattr(hint, "__metadata__", ()):
            if getattr(info, "metavar", "") is None:
                kinds = {hint.__origin__, *typing.get_args(hint.__origin__)}
                kinds |= {deep for one in kinds for deep in typing.get_args(one)}
                info.metavar = next(name for kind, name in METAVARS.items() if kind in kinds)


def paragraphs(text: str) -> str:
    """A docstring with one line per paragraph, which the terminal wraps to its width.

    >>> paragraphs("Build it.\\n\\n    A killed build\\n    resumes.")
    'Build it.\\n\\nA killed build resumes.'
    """
    return "\n\n".join(" ".join(block.split()) for block in text.split("\n\n"))


def examples(*commands: str | tuple[str, str]) -> str:
    """Commands for the end of a help text, each with an optional explanation; written to fit in 80 columns.

    >>> print(examples("headwise plan", ("headwise check", "the default model")))
    [b]Examples[/b]
    <BLANKLINE>
    headwise plan
    <BLANKLINE>
    headwise check
      [dim]the default model[/dim]
    """
    pairs = [(command, "") if isinstance(command, str) else command for command in commands]
    lines = [f"{escape(command)}\n  [dim]{escape(note)}[/dim]" if note else escape(command) for command, note in pairs]
    return "\n\n".join(["[b]Examples[/b]", *lines])
