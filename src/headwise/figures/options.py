"""What a study's figure can be asked for: each option's meaning, an example, and what it goes with.

    OPTIONS["patterns"]["top"]           Option(meaning="...", example="12", ...)
    refuse_conflicts("patterns", given)  an option that the rest would leave without effect is refused, never dropped

The types are the keyword parameters of a figure's function (`figures.options_of`); what cannot be read from a type stands
here, once, for the command line and whoever else offers figures. A test holds the two together.

This module knows the options by name only: neither a Dataset nor how anything is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headwise.core.errors import StudyError

__all__ = ["OPTIONS", "Option", "refuse_conflicts"]


@dataclass(frozen=True)
class Option:
    """One option of a figure.

    ``needs``: another option and the values of it that this one has an effect with, the first of them the one to suggest;
    ``without``: options that leave this one without effect.
    """

    meaning: str
    example: str = ""
    needs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    without: tuple[str, ...] = ()


def _kind(*values: str) -> dict[str, tuple[str, ...]]:
    return {"kind": values}


_STATISTICS = "Which numbers, comma-separated, in this order"
_FUNCTIONS = Option("Which functions, comma-separated, in this order; all by default.", "Retrieval,Inference")
_NOT_HEAD = ("head", "numbers", "statistics")

OPTIONS: dict[str, dict[str, Option]] = {
    "profile": {
        "statistics": Option(f"{_STATISTICS}; all by default.", "induction,previous"),
        "relative": Option("Each value less what a head would have that looks evenly at all it can see."),
    },
    "patterns": {
        "heads": Option("The maps of these heads, in this order.", "L3H1,L5H2", without=("top", "by", *_NOT_HEAD)),
        "top": Option("The maps of so many heads, the first by --by.", "12", without=_NOT_HEAD),
        "by": Option(
            "What --top goes by: change (or similarity, the least alike first), a number such as peak, or how much it "
            "changed, such as peak_change.",
            "peak_change",
            without=_NOT_HEAD,
        ),
        "average": Option("The average over all prompts instead of the one that is shown.", without=_NOT_HEAD),
        "head": Option("One head, large, with the tokens on both axes.", "L5H2", without=("numbers", "statistics")),
        "numbers": Option("Layer x head maps of the numbers of the maps, and of how they changed."),
        "statistics": Option(f"{_STATISTICS}, as with --numbers.", "peak,open"),
    },
    "circuits": {
        "kind": Option("curves: what growing circuits explain; maps: the effect of every head.", "maps"),
        "tasks": Option("Which tasks, comma-separated, in this order; all by default.", "induction,greater_than"),
    },
    "sparsity": {
        "kind": Option("costs: what dropping weights costs; maps: which heads can bear it.", "maps"),
        "rules": Option(
            "Which rules, comma-separated; one setting of each by default.", "'top 8'", needs=_kind("maps")
        ),
    },
    "spectral": {
        "features": Option("Which features, comma-separated, in this order; none is all of them.", "laplacian,entropy"),
        "part": Option("whole: prompt and answer; answer: the answer alone.", "answer"),
        "value": Option(
            "p, q or effect (AUROC of the feature alone), all three with all; p_cauchy and p_min combine the tests of single "
            "eigenvalues.",
            "all",
        ),
        "matched": Option("Tests between wrong and correct answers that are paired by length."),
        "scale": Option(
            "Of p- and q-values: linear or log.", "log", needs={"value": ("p", "q", "all", "p_cauchy", "p_min")}
        ),
    },
    "detection": {},
    "probing": {
        "kind": Option(
            "tokens: layer x token; heads: layer x head; transfer: from one topic to another; table: probes beside "
            "baselines.",
            "heads",
        ),
        "site": Option(
            "What the probe reads, of those measured; the first by default.", "residual", needs=_kind("tokens", "transfer")
        ),
        "positions": Option(
            "Some of the tokens, comma-separated; all by default.", "exact_answer_first,exact_answer_last",
            needs=_kind("tokens"),
        ),
        "layers": Option("Layers to frame, in place of those near the best.", "10-20", needs=_kind("tokens")),
    },
    "samples": {},
    "relations": {
        "kind": Option(
            "categories: the categories of every head; relations: a map of each relation; layers: heads of each category by "
            "layer.",
            "relations",
        ),
        "value": Option("score or suppression.", "suppression", needs=_kind("relations")),
        "relations": Option(
            "Which relations, comma-separated, in this order; all by default.", "copying", needs=_kind("relations")
        ),
        "beyond_null": Option(
            "Only what is over every shuffle of a relation's targets, too.", needs=_kind("categories", "layers")
        ),
    },
    "relation_validation": {
        "kind": Option(
            "outputs: scores from weights against outputs in texts; scatter: the same, one point a head; removal: tasks "
            "without a relation's heads.",
            "removal",
        ),
        "relations": Option(
            "Which relations, comma-separated, in this order; all by default.", "copying", needs=_kind("scatter")
        ),
    },
    "functions": {
        "kind": Option(
            "maps: importance of every head; sorted: the same, largest first; layers: heads by layer; similarity: which maps "
            "are alike; probe: how well functions are told apart; confusion: what is taken for what.",
            "sorted",
        ),
        "value": Option(
            "magnitude: absolute importance; importance: with its sign; alone: AUROC of a probe on the head alone.",
            "alone",
            needs=_kind("maps"),
        ),
        "functions": _FUNCTIONS,
        "cap": Option("Where the colour scale ends.", "0.004", needs=_kind("maps")),
    },
    "function_masking": {
        "kind": Option(
            "masking: accuracy without a function's heads; effects: what that costs beyond random heads; cross: heads of one "
            "function, steps of another; augment: heads strengthened; hierarchy: whole chains.",
            "cross",
        ),
        "functions": _FUNCTIONS,
    },
}  # fmt: skip


def refuse_conflicts(study: str, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    """Refuse an option that has no effect beside the others; one that has its default value counts as not given."""
    known = OPTIONS.get(study, {})
    asked = {name: value for name, value in given.items() if name in known and value != defaults.get(name)}
    for name in asked:
        for other in known[name].without:
            if other in asked:
                raise StudyError(
                    f"The {study} figure was asked for {_written(name)} and {_written(other)}, and can do only one of the two; "
                    "leave the other out."
                )
        for other, values in known[name].needs.items():
            found = str(given.get(other, defaults.get(other)))
            if found not in values:
                raise StudyError(
                    f"{_written(name)} of the {study} figure has no effect with {_written(other)} {found}; leave it out, or "
                    f"choose {_written(other)} {values[0]}."
                )


def _written(name: str) -> str:
    """As on the command line.

    >>> _written("beyond_null")
    '--beyond-null'
    """
    return f"--{name.replace('_', '-')}"
