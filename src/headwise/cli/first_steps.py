"""What comes next: the end of `headwise build`, and what `headwise` says when nothing else is typed.

    summary(atlas, files)        one screen: a headline per study, where everything is, three commands to try
    welcome(Path.cwd())          the atlases in this folder and what to do with them, or how to make the first one

A headline is the short form of a study's words. Where it is longer than three lines, it ends with the last sentence or clause
that fits, so that no number is cut.
"""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headwise.cli.preflight import sibling_path
from headwise.core.provenance import public_name
from headwise.studies.registry import dataset_spec, datasets

if TYPE_CHECKING:
    from headwise.atlas import Atlas

WIDTHS = (60, 120)  # characters per line, at least and at most
HEADLINE_LINES = 3
LIKELY = (".", "demo")  # folders in which an atlas is looked for
FIRST_HEAD = re.compile(r"\bL\d+H\d+\b")
CLAUSE_ENDS = (r"(?<=[.;:])\s", r"(?<=,)\s")  # a comma only where no other clause ends in the second half
QUICK_NOTE = (
    "A quick build: fewer texts, questions and shuffles, so intervals are wide. For results to report, leave out --quick "
    "and choose another folder."
)


def summary(atlas: Atlas, report: Path, figures: Path | None, seconds: float) -> list[str]:
    """The lines that end a build."""
    from headwise.studies.present import has_figure

    shown = [study for study in datasets() if study in atlas and has_figure(study)]
    model = _model_of(atlas)
    headlines = {study: _without_model(atlas.describe(study).short(), model) for study in shown}
    indent = max(map(len, shown), default=0) + 4
    found = ["", f"{model}{', a quick build' if is_quick(atlas) else ''}", ""]
    for study, headline in headlines.items():
        found += _hanging(f"  {study.replace('_', ' ')}", headline, indent)
    found += ["", f"The atlas is in {atlas.location}: {list_studies(atlas.studies)}. This took {_duration(seconds)}."]
    found += [f"The report is {report}; open it in a browser."]
    found += [f"The figures are in {figures}."] if figures is not None else []
    if is_quick(atlas):
        found += textwrap.wrap(QUICK_NOTE, _width())
    return [*found, "", "Try", *_commands(str(atlas.location), atlas)]


def welcome(folder: Path) -> list[str]:
    """What to do next in this folder."""
    lines = ["Headwise reads a language model one attention head at a time.", ""]
    atlases = list(_atlases(folder))
    for place, atlas in atlases:
        kind = "a quick atlas" if is_quick(atlas) else "an atlas"
        model = _model_of(atlas)
        lines.append(
            f"{place} is {kind}{f' of {model}' if model else ''}: {list_studies(atlas.studies) or 'still empty'}."
        )
        report = sibling_path(Path(place), "-report.html")
        if (folder / report).is_file():
            lines.append(f"{report} is its report; open it in a browser.")
    if atlases:
        lines += ["", "Next", *_commands(*atlases[0])]
    else:
        first = {
            "headwise build --quick": "a first look at the default model, about two minutes on two CPU cores",
            "headwise build": "all default studies, about ten minutes",
            "headwise check MODEL": "whether your own model can be read: a hub id, a folder or a .gguf file",
        }
        lines += ["There is no atlas in this folder yet. Next", *_columns(first)]
    return [*lines, "", "All verbs: headwise --help. One of them, with examples: headwise build --help."]


def is_quick(atlas: Atlas) -> bool:
    """Whether a quick build made an atlas."""
    return any(origin.quick for origin in atlas.provenances().values())


def list_studies(studies: Sequence[str]) -> str:
    """The studies with a page; the others are read by these.

    >>> list_studies(["profile", "relations", "salience"])
    'profile, relations'
    """
    return ", ".join(name for name in studies if (spec := dataset_spec(name)) is None or spec.has_page)


def clipped(text: str, length: int) -> str:
    """A text, or as many of its clauses as fit, so that no number is cut.

    >>> clipped("A third of the heads look at the first token; L18H6 (0.896) does induction.", 60)
    'A third of the heads look at the first token …'
    """
    if len(text) <= length:
        return text
    for end in CLAUSE_ENDS:
        ends = [match.start() for match in re.finditer(end, text) if length // 2 <= match.start() <= length - 2]
        if ends:
            break
    cut = text[: ends[-1]] if ends else text[: length - 1].rpartition(" ")[0]
    return f"{cut.rstrip('.;:,')} …"


def _hanging(name: str, text: str, indent: int) -> list[str]:
    width = _width() - indent
    for length in range(width * HEADLINE_LINES, 0, -10):  # wrapping may need a line more than the characters suggest
        wrapped = textwrap.wrap(clipped(text, length), width)
        if len(wrapped) <= HEADLINE_LINES:
            break
    return [f"{name:<{indent}}{wrapped[0]}", *(" " * indent + line for line in wrapped[1:])] if wrapped else [name]


def _model_of(atlas: Atlas) -> str:
    return public_name(str(next(iter(atlas.provenances().values())).model.get("id", ""))) if atlas.studies else ""


def _without_model(headline: str, model: str) -> str:
    """A headline for a place where the model and the kind of build are known.

    >>> _without_model("30 maps of my-model (30 layers of 9 heads) differ. (Quick build, for a first look.)", "my-model")
    '30 maps of the model differ.'
    """
    shorter = headline.replace(model, "the model") if model else headline
    shorter = re.sub(r" \(\d+ layers of \d+ heads\)| \(Quick build[^)]*\)$", "", shorter)
    return shorter[:1].upper() + shorter[1:]


def _width() -> int:
    """Characters per line: those of the terminal, within limits; 100 where there is none."""
    return min(max(shutil.get_terminal_size((100, 24)).columns, WIDTHS[0]), WIDTHS[1])


def _commands(place: str, atlas: Atlas) -> list[str]:
    """What to try, with the first study and the first head that its words name."""
    from headwise.studies.present import has_figure

    found = {}
    if shown := [study for study in datasets() if study in atlas and has_figure(study)]:
        found = {
            f"headwise head {place} {_first_head(atlas, shown[0])}": "everything that is known about one head",
            f"headwise describe {place} {shown[0]}": "a whole map in words; show draws it",
        }
    return _columns(
        found | {f"headwise serve {place} --live": "in the browser, with the model: type a prompt, switch heads off"}
    )


def _first_head(atlas: Atlas, study: str) -> str:
    """The first head that the words of a study name: in the headline, else anywhere."""
    from headwise.core.errors import HeadwiseError

    try:
        words = atlas.describe(study)
    except HeadwiseError:  # a damaged study: the command that reads it says what to do
        return "L0H0"
    named = FIRST_HEAD.search(words.short()) or FIRST_HEAD.search(words.text())
    return named[0] if named else "L0H0"


def _columns(rows: dict[str, str]) -> list[str]:
    width = max(map(len, rows))
    return [f"  {command:<{width}}   {note}" for command, note in rows.items()]


def _atlases(folder: Path) -> Iterator[tuple[str, Atlas]]:
    from headwise.atlas import Atlas
    from headwise.core.errors import HeadwiseError

    for parent in LIKELY:
        for file in sorted((folder / parent).glob("*/zarr.json")):
            try:
                atlas = Atlas.open(file.parent)
            except HeadwiseError:  # damaged, or of another program; naming it helps nobody here
                continue
            yield str(Path(parent, file.parent.name)), atlas


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
