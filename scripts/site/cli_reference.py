"""The reference of the command line, made from the commands themselves.

    python scripts/site/cli_reference.py          # writes docs/reference/cli.md

For each verb: what it does, how it is written, its arguments, its options box by box as ``--help`` has them, its
examples; for ``show`` also the options of every study's figure. `tests/docs/test_cli_reference.py` fails when the page is
not what this writes.
"""

from __future__ import annotations

import typing
from itertools import groupby
from pathlib import Path
from typing import Any

import typer
from rich.text import Text

from headwise.cli.main import VERBS, app
from headwise.studies.present import figure_types, has_figure
from headwise.studies.registry import datasets

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"
HEAD = """\
<!-- Written by scripts/site/cli_reference.py from the commands themselves; change those, then run it again. -->

# Command line

Everything that Headwise does can be done from a shell. `headwise --help` lists the verbs, `headwise VERB --help` shows what
stands here. Errors are one sentence that says what to do, without a traceback; the exit code is 2. An interrupted command
(exit code 130) goes on where it was when it is given again.
"""
PLAIN = "Options"  # the box without a name
KINDS = {int: "number", float: "number", Path: "path", str: "text"}


def page() -> str:
    """The whole page."""
    group: Any = typer.main.get_command(app)
    verbs = {verb.__name__: group.commands[verb.__name__] for verb in VERBS}
    table = ["| verb | what it does |", "|---|---|"]
    table += [f"| [`{name}`](#headwise-{name}) | {_first(verb)} |" for name, verb in verbs.items()]
    start = ["## Where to start", _examples(group.epilog)]
    blocks = [HEAD, "\n".join(table), *start, *(_verb(name, verb) for name, verb in verbs.items())]
    return "\n\n".join(block.strip() for block in blocks if block.strip()) + "\n"


def _verb(name: str, verb: Any) -> str:
    shown = [one for one in verb.params if one.param_type_name == "argument"]
    options = [one for one in verb.params if one.param_type_name == "option" and not one.hidden]
    usage = " ".join(["headwise", name, *(_argument(one) for one in shown), "[OPTIONS]" if options else ""]).strip()
    blocks = [f"## headwise {name}", verb.help or "", f"```console\n$ {usage}\n```"]
    if shown:
        rows = [f"| `{_named(one)}` | {_cell(one.help)} |" for one in shown]
        blocks.append("\n".join(["| argument | what it is |", "|---|---|", *rows]))
    boxes = sorted(options, key=lambda one: list(map(_box, options)).index(_box(one)))
    for box, members in groupby(boxes, key=_box):
        blocks += [f"### {box} {{ #{name}-{_anchor(box)} }}", _table(members, _kinds(name))]
    if name == "show":
        blocks += _figures()
    return "\n\n".join([*blocks, f"### Examples {{ #{name}-examples }}", _examples(verb.epilog)])


def _kinds(name: str) -> dict[str, str]:
    """What each option of a verb takes, from the verb's own signature."""
    verb = next(verb for verb in VERBS if verb.__name__ == name)
    found = {}
    for option, hint in typing.get_type_hints(verb).items():
        inside = {
            hint,
            *typing.get_args(hint),
            *(deep for one in typing.get_args(hint) for deep in typing.get_args(one)),
        }
        found[option] = next((word for kind, word in KINDS.items() if kind in inside), "")
    return found


def _table(options: Any, kinds: dict[str, str]) -> str:
    rows = [
        f"| {_names(one)} | {_kind(one, kinds.get(one.name, ''))} | {_cell(one.help)}{_default(one)} |"
        for one in options
    ]
    return "\n".join(["| option | takes | what it does |", "|---|---|---|", *rows])


def _figures() -> list[str]:
    """The options of the figures, study by study; they are written after the study's name."""
    blocks = ["### Options of the figures { #show-figures }", "Written after the study's name."]
    for study, spec in datasets().items():
        known = spec.figure_options
        if not has_figure(study) or not figure_types(study):
            continue
        rows = [
            f"| `--{name.replace('_', '-')}` | {_cell(known[name].meaning)} | "
            + (f"`{known[name].example}` |" if known[name].example else "|")
            for name in figure_types(study)
        ]
        blocks += [f"**{study}**", "\n".join(["| option | what it does | such as |", "|---|---|---|", *rows])]
    return blocks


def _first(verb: Any) -> str:
    return _cell((verb.help or "").split("\n\n")[0])


def _box(option: Any) -> str:
    return str(getattr(option, "rich_help_panel", None) or PLAIN)


def _anchor(text: str) -> str:
    return "-".join(text.lower().split())


def _named(argument: Any) -> str:
    return str(argument.metavar or argument.name.upper()).strip("[]")


def _argument(one: Any) -> str:
    return _named(one) if one.required else f"[{_named(one)}]"


def _names(option: Any) -> str:
    spelt = sorted([*option.opts, *option.secondary_opts], key=len, reverse=True)
    return ", ".join(f"`{name}`" for name in spelt)


def _kind(option: Any, kind: str) -> str:
    taken = "" if option.is_flag else str(option.metavar or kind)
    return f"`{taken.upper()}`" if taken else ""


def _default(option: Any) -> str:
    if option.is_flag or not option.show_default or option.default in (None, "", ()):
        return ""
    return f" Default: `{option.default}`."


def _cell(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|").replace("<", "&lt;")


def _examples(epilog: str | None) -> str:
    """The commands, each under what it does."""
    lines = Text.from_markup(epilog or "").plain.split("\n\n")[1:]
    blocks = []
    for block in lines:
        command, _, does = block.partition("\n")
        blocks.append(f"# {does.strip()}\n{command.strip()}" if does.strip() else command.strip())
    return "```bash\n" + "\n\n".join(blocks) + "\n```"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE)
