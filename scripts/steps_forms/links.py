"""Links: a step of low order and the step of high order that builds on it, with the scene they are about.

One line of ``steps_facts/links.txt`` is one form of link:

    K>L @kinds | Every {q} has {r}. {a} sees a {p}. | A {p} is a kind of ... | {q} | So the {p} has ... | {r}

that is: the letters of the two functions; the table (of ``steps_facts/tables.txt``) whose rows fill {p}, {q}, {r}, if any;
the scene; and the two open sentences, each with its right answers, a slash between them. The other slots are drawn
(`steps_forms.scenes`). More notation:

    K-M             the high step comes after the low one but does not need it (">": it does)
    X ... ## Y ...  two sentences of one kind: the first is completed with yes, the second with no

In a table a field may have several right forms ("small/little"): sentences show the first, answers accept all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FACTS = Path(__file__).resolve().parent.parent / "steps_facts"
LETTERS = {
    "R": "Retrieval", "K": "Knowledge Recall", "S": "Semantic Understanding", "Y": "Syntactic Understanding",
    "M": "Math Calculation", "I": "Inference", "L": "Logical Reasoning", "D": "Decision-making",
}  # fmt: skip
LOW, HIGH = "RKSY", "MILD"

Slots = Mapping[str, object]


@dataclass(frozen=True)
class Form:
    """One line: how a link of two functions is worded."""

    low: str  # a letter
    high: str
    builds: bool  # whether the high step needs what the low one found
    table: str  # its name; empty where all is drawn
    scene: str
    sentences: tuple[tuple[str, str], tuple[str, str]]  # (open sentence, answers) of the low and of the high step


@dataclass(frozen=True)
class Part:
    """One open sentence that becomes a step."""

    function: str
    text: str
    answers: tuple[str, ...]


@dataclass(frozen=True)
class Link:
    """A scene with its two steps."""

    scene: str
    low: Part
    high: Part
    builds: bool


def forms() -> list[Form]:
    """All lines of ``links.txt``."""
    found = []
    for line in (FACTS / "links.txt").read_text(encoding="utf-8").splitlines():
        head, scene, *rest = (field.strip() for field in line.split("|"))
        letters, _, table = head.partition(" @")
        low, builds, high = letters
        found.append(Form(low, high, builds == ">", table, scene, ((rest[0], rest[1]), (rest[2], rest[3]))))
    return found


def tables() -> dict[str, list[tuple[str, ...]]]:
    """The tables by name: rows of fields."""
    found = {}
    for line in (FACTS / "tables.txt").read_text(encoding="utf-8").splitlines():
        name, rows = line.split(" = ")
        found[name] = [tuple(field.strip() for field in row.split(",")) for row in rows.split(";")]
    return found


def link_of(form: Form, slots: Slots, turn: int) -> Link:
    """A link with its slots filled; `turn` says which of two variants is made."""
    shown = {name: str(value).split("/")[0] for name, value in slots.items()}
    (low, right), (high, follows) = form.sentences
    return Link(
        form.scene.format(**shown),
        _part(LETTERS[form.low], low, right, slots, shown, turn),
        _part(LETTERS[form.high], high, follows, slots, shown, turn),
        form.builds,
    )


def _part(function: str, text: str, answers: str, slots: Slots, shown: Slots, turn: int) -> Part:
    if "##" in text:
        return Part(function, text.split("##")[turn % 2].strip().format(**shown), (("yes", "no")[turn % 2],))
    return Part(function, text.format(**shown), tuple(dict.fromkeys(answers.format(**slots).split("/"))))
