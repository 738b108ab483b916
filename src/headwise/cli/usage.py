"""A command that was not written right, in one sentence: what was found, what was expected, what to type.

    show needs STUDY (the study, such as profile); write: headwise show ATLAS STUDY

The library that reads the command line raises an error of its own for each kind of slip; they are told apart by what they
carry. This module does not know any verb.
"""

from __future__ import annotations

from typing import Any

import typer

from headwise.core.errors import did_you_mean
from headwise.studies.registry import datasets

__all__ = ["UsageError", "paragraphs", "sentence"]

MEANT = {  # other words for a verb
    "build": ("make", "run", "measure", "create", "atlas", "map"),
    "plan": ("estimate", "cost", "dry-run"),
    "check": ("verify", "validate", "test"),
    "show": ("draw", "plot", "figure", "paint", "image", "view"),
    "describe": ("tell", "words", "summary", "summarise", "summarize", "explain"),
    "heads": ("table", "list", "ls", "rows"),
    "head": ("dossier",),
    "answers": ("questions", "labels"),
    "detect": ("score", "predict", "judge"),
    "sparsify": ("train", "prune", "finetune"),
    "compare": ("diff", "against"),
    "report": ("html", "page"),
    "serve": ("explore", "explorer", "open", "browse", "web", "start"),
}

UsageError: type[Any] = typer.BadParameter.__mro__[1]  # click's, wherever this typer keeps its click


def sentence(error: Any) -> str:
    """What the person at the keyboard is told."""
    context = error.ctx
    typed = context.command_path if context is not None else "headwise"
    verb = typed.rsplit(" ", 1)[-1]
    name, parameter = getattr(error, "option_name", None), getattr(error, "param", None)
    if name is not None and hasattr(error, "possibilities"):
        return f"{verb} has no option {name}. {_guess(name, context, typed)}"
    if parameter is not None and type(error).__name__ == "MissingParameter":
        return f"{verb} needs {_called(parameter)}{_meaning(parameter)}; write: {_form(context, typed)}"
    if parameter is not None:
        return f"{_called(parameter)} was not understood: {_start(error.message)}; see {typed} --help"
    commands = getattr(context.command, "commands", None) if context is not None else None
    if commands and "'" in error.message:
        verb = error.message.split("'")[1]
        return f"there is no verb {verb!r}. {_verb(verb, commands)}"
    if "extra argument" in error.message:
        given = error.message.partition("(s) ")[2].strip("()") or error.message
        return f"{verb} was given more than it takes ({given}); write: {_form(context, typed)}"
    return f"{_start(error.message)}; see {typed} --help"


def _verb(word: str, verbs: Any) -> str:
    """What was meant by a word that is no verb: a slip of the fingers, another word for one, or a study."""
    if word in datasets():
        return f"{word} is a study: headwise show ATLAS {word} draws it, headwise describe ATLAS {word} tells it"
    known = f"Known: {', '.join(sorted(verbs))}."
    meant = next((verb for verb, others in MEANT.items() if word.lower() in others and verb in verbs), None)
    return did_you_mean(word, verbs) if meant is None else f"Did you mean {meant!r}? {known}"


def _guess(name: str, context: Any, typed: str) -> str:
    known = [option for parameter in context.command.params for option in parameter.opts if option.startswith("--")]
    guess, question, _ = did_you_mean(name, known).partition("?")
    return f"{guess}? See {typed} --help" if question else f"See {typed} --help for those it has"


def _called(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return str(parameter.metavar or parameter.name.upper())
    return str(max(parameter.opts, key=len))


def _meaning(parameter: Any) -> str:
    said = (getattr(parameter, "help", None) or "").rstrip(".")
    return f" ({_start(said)})" if said else ""


def _form(context: Any, typed: str) -> str:
    """The verb with its arguments: ``headwise show ATLAS STUDY``."""
    arguments = [one for one in context.command.params if one.param_type_name == "argument"]
    return " ".join([typed, *(_called(one) if one.required else f"[{_called(one)}]" for one in arguments)])


def _start(text: str) -> str:
    """As the middle of a sentence."""
    return text[:1].lower() + text[1:].rstrip(".")


def paragraphs(text: str) -> str:
    """A docstring without the line ends inside its paragraphs, for a terminal of any width.

    >>> paragraphs("Build it.\\n\\n    A killed build\\n    goes on.")
    'Build it.\\n\\nA killed build goes on.'
    """
    return "\n\n".join(" ".join(block.split()) for block in text.split("\n\n"))
