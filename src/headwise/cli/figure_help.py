"""The help of `headwise show`, with the options of the figure that is asked about.

    headwise show ATLAS patterns --help     names --heads, --top, --by, ...: type, meaning and an example each

A figure's options are its own matter (its spec, and `studies.present.figure_types`), so a command line cannot list them before
it knows the study. Steps: look for the study among the words that were typed; make an option of each of the figure's, for
the help alone; show the verb's help with these in a box of their own, and with examples of this study.

What is typed to be done is read by `settings.figure_options`, not here.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from headwise.cli.settings import kind_of
from headwise.studies.registry import dataset_spec

__all__ = ["FigureCommand", "study_in"]

TYPED = "headwise.typed"
TAKES_A_VALUE = ("-o", "--output")


class FigureCommand(TyperCommand):
    """A verb whose second word is a study that is drawn."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Keep what was typed: help is shown before anything is read."""
        ctx.meta[TYPED] = list(args)
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """The help of the verb and, where a study was named, of its figure."""
        study = study_in(ctx.meta.get(TYPED, ()))
        told = self if study is None else self._of(study)
        TyperCommand.format_help(told, ctx, formatter)

    def _of(self, study: str) -> FigureCommand:
        told = copy.copy(self)
        told.params = [*self.params, *_parameters(study)]
        told.epilog = _examples(study)
        return told


def study_in(words: Sequence[str]) -> str | None:
    """The study with a figure that was named: the second word, or the first where there is one only.

    >>> study_in(["atlas", "-o", "a.pdf", "patterns", "--help"]), study_in(["patterns"]), study_in(["atlas"])
    ('patterns', 'patterns', None)
    """
    said = [word for before, word in zip(["", *words], words, strict=False)
            if not word.startswith("-") and before not in TAKES_A_VALUE]  # fmt: skip
    named = said[1:2] or said[:1]
    return named[0] if named and (spec := dataset_spec(named[0])) is not None and not spec.read_with else None


def _parameters(study: str) -> list[Any]:
    """The figure's options as a command line's."""
    from headwise.studies.present import figure_types

    spec = dataset_spec(study)
    known = {} if spec is None else spec.figure_options
    parameters = []
    for name, hint in figure_types(study).items():
        told = known[name]
        example = f" Such as {told.example}." if told.example else ""
        shown = typer.Option(
            f"--{name.replace('_', '-')}", help=told.meaning + example, rich_help_panel=f"Options of the {study} figure",
            show_default=False, metavar=f"<{'flag' if hint is bool else kind_of(hint)}>",
        )  # fmt: skip
        kind: Any = bool if hint is bool else str | None
        parameters.append((name, Annotated[kind, shown], False if kind is bool else None))
    return _as_parameters(parameters)


def _as_parameters(fields: Sequence[tuple[str, Any, Any]]) -> list[Any]:
    """What typer makes of a function with these parameters."""

    def asked() -> None:
        """Never called."""

    given = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, kind, default in fields
    ]
    asked.__signature__ = inspect.Signature(given)  # type: ignore[attr-defined]
    asked.__annotations__ = {name: kind for name, kind, _ in fields}
    app = typer.Typer(add_completion=False)
    app.command()(asked)
    return list(typer.main.get_command(app).params)


def _examples(study: str) -> str:
    """The figure as it is, then each option with what it needs."""
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
