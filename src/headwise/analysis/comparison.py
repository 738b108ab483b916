"""What is different between two atlases: dense and sparse, base and chat, whole and quantised?

    found = compare(Atlas.open("dense"), Atlas.open("sparse"))
    found.heads.head(10)

Steps: match the studies by provenance (`matching`); where layers and heads agree, compare every column head by head
(`changes`, with the noise of `pairing`) and rank the heads; where they do not, refuse that and compare by relative depth.

Heads are compared by place, which means something only if one model was made from the other. Whether they correspond is
measured: the mean rank correlation of A with B within layers, over all columns, against B's heads shuffled within layers.

Cost: seconds. This module does not know how anything is measured.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from headwise.analysis.changes import ColumnChange, DepthChange, changes, depths, ranked_heads
from headwise.analysis.columns import Columns, columns_of
from headwise.analysis.jsonable import to_jsonable
from headwise.analysis.permutation import bands, shuffled_within, within
from headwise.atlas import Atlas, Provenance, difference
from headwise.core.errors import AtlasError, StudyError, did_you_mean
from headwise.core.markup import card, listing, paragraph, table
from headwise.describe.words import significant
from headwise.figures.origin import model_name
from headwise.studies.registry import dataset_spec

__all__ = ["Comparison", "StudyMatch", "compare"]

SHUFFLES = 1000


def compare(
    a: Atlas, b: Atlas, *, studies: Iterable[str] | None = None, unlike: bool = False, seed: int = 0
) -> Comparison:
    """What changed between two atlases?

    Args:
        a: one, such as that of the base model.
        b: the other.
        studies: those that are compared; None: all that both have.
        unlike: whether studies of unlike data are compared too, at the reader's own risk.
        seed: of the shuffles.

    Returns:
        Column by column and head by head, with the noise that a re-run would give; by relative depth where the models
        have unlike shapes.

    Examples:
        >>> found = compare(atlas, atlas, studies=["profile"])
        >>> found.same, found.changed, found.tested
        (True, 0, 396)
    """
    matches = _matches(a, b, studies, unlike)
    shared = [match.study for match in matches if match.status in ("compared", "warned")]
    one, other = ({study: atlas[study] for study in shared} for atlas in (a, b))
    _refuse_nothing(matches, shared, one)
    left, right = columns_of(one), columns_of(other)
    origins = a.provenance(shared[0]), b.provenance(shared[0])
    names = names_of(a, b, called(origins[0]), called(origins[1]))
    same = (left.layers, left.heads) == (right.layers, right.heads)
    held = {column.study for column in left.columns} & {column.study for column in right.columns}
    warned = [match for match in matches if match.status == "warned" and match.study in held]
    found = changes(left, right, one, other) if same else ()
    correspondence, chance = _correspondence(found, left, seed) if found else (float("nan"), float("nan"))
    return Comparison(
        a=names[0],
        b=names[1],
        same_shape=same,
        reason="" if same else _unlike_shapes(left, right),
        models=models_of(*origins),
        warnings=tuple(f"{match.study}: {match.reason}" for match in warned),
        studies=tuple(matches),
        columns=found,
        depths=() if same else depths(left, right),
        heads=ranked_heads(found, left.names, left.heads) if found else pd.DataFrame(),
        correspondence=correspondence,
        correspondence_by_chance=chance,
    )


def _matches(a: Atlas, b: Atlas, studies: Iterable[str] | None, unlike: bool) -> list[StudyMatch]:
    inside, beside = a.studies, b.studies
    wanted = list(dict.fromkeys([*inside, *beside])) if studies is None else list(studies)
    for study in wanted:
        if study not in inside and study not in beside:
            raise StudyError(f"Neither atlas has the study {study!r}. {did_you_mean(study, {*inside, *beside})}")
    found = []
    for study in wanted:
        if study in inside and study in beside:
            found.append(match_of(study, study, a.provenance(study), b.provenance(study), unlike=unlike))
        else:
            where, other = ("A", b) if study in inside else ("B", a)
            text = f"add it to the other with headwise build --studies {study} -o {other.location}"
            found.append(StudyMatch(study, study, f"only in {where}", text, ()))
    return found


def _refuse_nothing(matches: list[StudyMatch], shared: list[str], one: dict[str, xr.Dataset]) -> None:
    if any({"layer", "head"} <= set(dataset.sizes) for dataset in one.values()):
        return
    refused = "; ".join(f"{match.study}: {match.reason}" for match in matches if match.status == "refused")
    if refused:
        raise AtlasError(f"Nothing can be compared. {refused}; or say that it may be with --unlike.")
    raise AtlasError(
        f"The two atlases have no study of heads in common (shared: {', '.join(shared) or 'none'}); build the same studies "
        "for both, as with headwise build --studies profile."
    )


def _unlike_shapes(a: Columns, b: Columns) -> str:
    return (
        f"A has {a.layers} layers of {a.heads} heads and B {b.layers} of {b.heads}, so no head of A is a head of B; "
        "they are compared by relative depth"
    )


def _correspondence(found: tuple[ColumnChange, ...], columns: Columns, seed: int) -> tuple[float, float]:
    """Mean rank correlation within layers of A with B, and what 95 % of shuffles of B's heads stay below.

    Over the heads that both have in all columns, columns of which less than half was measured left out; and over the
    columns whose heads differ within layers in both, as a constant has no order.
    """
    half = columns.layers * columns.heads / 2
    found = tuple(each for each in found if np.isfinite(each.change).sum() >= half)
    if not found:
        return float("nan"), float("nan")
    there = np.logical_and.reduce([np.isfinite(each.a.ravel()) & np.isfinite(each.b.ravel()) for each in found])
    if there.sum() < 3:
        return float("nan"), float("nan")
    layer = np.repeat(np.arange(columns.layers), columns.heads)[there]
    band = bands(layer)
    one = within(np.stack([each.a.ravel()[there] for each in found]), band)
    other = within(np.stack([each.b.ravel()[there] for each in found]), band)
    ordered = one.any(1) & other.any(1)
    if not ordered.any():
        return float("nan"), float("nan")
    one, other = one[ordered], other[ordered]
    order = shuffled_within(band, np.arange(len(band)), SHUFFLES, np.random.default_rng(seed))
    draws = np.array([(one * other[:, each]).sum(1).mean() for each in order])
    return float((one * other).sum(1).mean()), float(np.quantile(draws, 0.95))


def match_of(study: str, title: str, one: Provenance, other: Provenance, *, unlike: bool) -> StudyMatch:
    """Whether this study of A may be held against the same of B; with ``unlike`` also where the data differ."""
    told = tuple(text for text in difference(one, other) if not text.startswith("model:"))
    status, reason = "compared", ""
    if one.data.get("digest") != other.data.get("digest"):
        same_name = one.data.get("name") == other.data.get("name")
        spec = dataset_spec(study)
        if spec is not None and spec.on_own_answers and same_name:
            status, reason = "warned", "each model's own answers to the same questions"
        elif unlike:
            status, reason = (
                "warned",
                f"unlike data, compared because it was asked for ({_data(one)} against {_data(other)})",
            )
        else:
            status, reason = "refused", f"unlike data ({_data(one)} against {_data(other)}): build both on the same"
    options = [text for text in told if text.startswith(("parameters:", "seed:"))]
    if options and status != "refused":
        status, reason = "warned", "; ".join([*([reason] if reason else []), f"unlike options ({', '.join(options)})"])
    return StudyMatch(study, title, status, reason, told)


def models_of(one: Provenance, other: Provenance) -> tuple[str, ...]:
    """What the two models differ in, one sentence a fact; digests last, as they say least."""
    told = [text.removeprefix("model: ") for text in difference(one, other) if text.startswith("model:")]
    told = [_without_folders(text) for text in told]
    return tuple(sorted(told, key=lambda text: text.startswith(("digest", "tokenizer"))))


def called(provenance: Provenance) -> str:
    """The model's own name, with its adapter's where there is one."""
    name = model_name({"model": provenance.model}).rsplit("/", 1)[-1] or "the model"
    adapter = provenance.model.get("adapter")
    return f"{name} + {PurePath(str(adapter)).name}" if adapter else name


def _without_folders(text: str) -> str:
    """How somebody's folders are called is none of a reader's business.

    >>> _without_folders("adapter None against /home/me/sparse")
    'adapter none against sparse'
    """
    words = ["none" if word == "None" else word for word in text.split(" ")]
    return " ".join(PurePath(word).name if word.startswith(("/", "~", ".")) else word for word in words)


def names_of(a: Atlas, b: Atlas, one: str, other: str) -> tuple[str, str]:
    """What to call two atlases: their models, with the folders where the models are called alike."""
    if one != other:
        return one, other
    folders = PurePath(a.location.address), PurePath(b.location.address)
    depth = 1
    while folders[0] != folders[1] and folders[0].parts[-depth:] == folders[1].parts[-depth:]:
        depth += 1
    parts = ["/".join(path.parts[-depth:]) for path in folders]
    return f"{one} ({parts[0]})", f"{other} ({parts[1]})"


def _data(provenance: Provenance) -> str:
    data = provenance.data
    return f"{data.get('name', 'unnamed')}, {data.get('size', 'unknown')} examples, {str(data.get('digest', ''))[:8]}"


SHOWN = 10  # heads in a notebook's cell
_PLAIN = (
    "a",
    "b",
    "same_shape",
    "reason",
    "models",
    "warnings",
    "studies",
    "correspondence",
    "correspondence_by_chance",
)


@dataclass(frozen=True)
class StudyMatch:
    """Whether a study can be compared."""

    study: str
    title: str
    status: str
    """"compared"; "warned": compared, but options or versions differ; "refused"; "only in A"; "only in B" """
    reason: str
    """in a sentence; empty where nothing is to be said"""
    differences: tuple[str, ...]
    """of the provenance, one sentence each"""


@dataclass(frozen=True, eq=False)
class Comparison:
    """Two atlases, A and B. Made by `compare`.

    Examples:
        >>> from headwise.analysis import compare
        >>> found = compare(atlas, atlas, studies=["profile"])
        >>> found.same_shape, found.within_noise, len(found.heads)
        (True, True, 36)
    """

    a: str
    """name of A, for a reader"""
    b: str
    """name of B"""
    same_shape: bool
    """whether both have as many layers and heads"""
    reason: str
    """why heads are not compared one by one; empty where they are"""
    models: tuple[str, ...]
    """what the two models differ in, as the provenance has it"""
    warnings: tuple[str, ...]
    """what makes the comparison less sure, a sentence each"""
    studies: tuple[StudyMatch, ...]
    """which studies could be compared"""
    columns: tuple[ColumnChange, ...]
    """empty where the shapes differ"""
    depths: tuple[DepthChange, ...]
    """empty where the shapes agree"""
    heads: pd.DataFrame
    """one row a head, the most changed first: change, noise (what a re-run would give), times (change / noise), and the
    columns that changed most; empty where the shapes differ. Where change and noise are both 0, times is 0"""
    correspondence: float = float("nan")
    """mean over columns of the rank correlation of A with B within layers: 1 where heads kept their places; columns in which
    the heads of a layer are all alike, in A or in B, have none and are left out; NaN where no column has one"""
    correspondence_by_chance: float = float("nan")
    """95 % of shuffles of B's heads within layers stay below"""

    @property
    def tested(self) -> int:
        """Values, head by head and column by column, whose change was tested."""
        return sum(column.tested for column in self.columns)

    @property
    def changed(self) -> int:
        """Those with q < 0.05."""
        return sum(column.changed for column in self.columns)

    @property
    def same(self) -> bool:
        """Whether every number of every head is the same in both."""
        return bool(self.columns) and all(column.same for column in self.columns)

    @property
    def within_noise(self) -> bool:
        """Whether nothing changed beyond noise: no value with q < 0.05, and what was not tested is the same in both."""
        loose = any(not column.tested and not column.same for column in self.columns)
        return self.same or (self.tested > 0 and self.changed == 0 and not loose)

    def to_dict(self, *, top: int | None = None) -> dict[str, Any]:
        """As JSON: maps become lists; of the heads the ``top`` first, or all."""
        table = self.heads if top is None else self.heads.head(top)
        found = {name: to_jsonable(getattr(self, name)) for name in _PLAIN}
        found["columns"] = [to_jsonable(one) | {"change": to_jsonable(one.change)} for one in self.columns]
        found["depths"] = to_jsonable(self.depths)
        found["heads"] = [to_jsonable(row) for row in table.reset_index().to_dict("records")]
        return found

    def __repr__(self) -> str:
        told = f"{len(self.columns)} numbers of {len(self.heads)} heads" if self.same_shape else self.reason
        return f"<Comparison of {self.a} and {self.b}: {told}>"

    def _repr_html_(self) -> str:
        first = self.heads.head(SHOWN).reset_index()
        rows = [
            [significant(cell) if isinstance(cell, float) else cell for cell in row] for row in first.values.tolist()
        ]
        told = paragraph(self.reason) if self.reason else table(rows, header=list(first.columns))
        if self.within_noise:
            told = paragraph(
                "Nothing changed." if self.same else "Nothing changed beyond noise (no value with q < 0.05)."
            )
        note = f"{self.a} against {self.b}" + (
            "" if self.reason or self.within_noise else "; the heads that changed most"
        )
        return card("Comparison of two atlases", told, listing(self.warnings), note=note)
