"""What changed between two atlases: dense and sparse, base and chat, full precision and quantised?

    found = compare(Atlas.open("dense"), Atlas.open("sparse"))      # Comparison
    found.heads.head(10)                       # a DataFrame: the heads that changed most, over all studies
    comparison_figure(found), describe_comparison(found), found.to_dict()

Steps: match the studies by their provenance; with equal shapes, compare every column per head (`changes`) and rank the
heads; with different shapes, compare by relative depth.

Studies of different data are refused, because a change of the map may be a change of the data. Studies of a model's own
answers (spectral, probing, functions) are an exception: both models got the same questions, and their answers differ; then
the name of the data must agree. Different options or seeds are compared with a warning; different library versions are
only listed.

Heads are matched by index, which is meaningful only if one model was made from the other. Whether heads correspond is
tested: the mean rank correlation of A and B within layers, over all columns, against B's heads permuted within layers.

Cost: seconds.
"""

from __future__ import annotations

import os
import warnings
from collections import namedtuple
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from headwise.analysis.changes import changes, depths, ranked_heads
from headwise.analysis.columns import columns_of
from headwise.analysis.permutation import HeadStrata, layer_strata, permute_within, rank_vectors_within
from headwise.atlas import Atlas, Provenance, difference
from headwise.core.dims import COLUMN, DEPTH, HEAD, LAYER, PLACE
from headwise.core.errors import AtlasError, StudyError, did_you_mean
from headwise.core.markup import card, listing, paragraph, table
from headwise.describe.writer import significant
from headwise.figures.payload import to_jsonable
from headwise.figures.provenance import model_name
from headwise.studies.registry import dataset_spec

__all__ = ["Comparison", "StudyMatch", "compare"]

PERMUTATIONS = 1000


def compare(
    a: Atlas | str | os.PathLike[str],
    b: Atlas | str | os.PathLike[str],
    *,
    studies: Iterable[str] | None = None,
    different_data: bool = False,
    seed: int = 0,
    unlike: bool = False,
) -> Comparison:
    """What changed between two atlases?

    Args:
        a: the first atlas or its location, such as that of the base model.
        b: the second.
        studies: to compare; None: all that both have.
        different_data: whether to compare studies of different data too.
        seed: of the permutations.
        unlike: the former name of ``different_data``.

    Returns:
        Changes per column and per head, next to the change to expect if A were measured on other texts of the same kind;
        by relative depth where the models have different shapes.

    Examples:
        >>> found = compare(atlas, atlas, studies=["profile"])
        >>> found.same, found.changed, found.tested
        (True, 0, 396)
    """
    a, b = (one if isinstance(one, Atlas) else Atlas.open(one) for one in (a, b))
    if unlike:
        warnings.warn(
            "compare(unlike=...) is now compare(different_data=...); use the new name", DeprecationWarning, stacklevel=2
        )
    matches = _matches(a, b, studies, different_data or unlike)
    shared = [match.study for match in matches if match.status in ("compared", "warned")]
    one, other = ({study: atlas[study] for study in shared} for atlas in (a, b))
    _refuse_nothing(matches, shared, one)
    left, right = columns_of(one), columns_of(other)
    origins = a.provenance(shared[0]), b.provenance(shared[0])
    names = _names(a, b, _short_name(origins[0]), _short_name(origins[1]))
    same = (left.layers, left.heads) == (right.layers, right.heads)
    held = {column.study for column in left.columns} & {column.study for column in right.columns}
    warned = [match for match in matches if match.status == "warned" and match.study in held]
    found = changes(left, right, one, other) if same else depths(left, right)
    correspondence, chance = _correspondence(found, seed) if same else (float("nan"), float("nan"))
    shapes = (
        f"A has {left.layers} layers of {left.heads} heads and B {right.layers} of {right.heads}, so heads do not correspond; "
        "the models are compared by relative depth"
    )
    return Comparison(
        dataset=found,
        a=names[0],
        b=names[1],
        reason="" if same else shapes,
        models=_models(*origins),
        warnings=tuple(f"{match.study}: {match.reason}" for match in warned),
        studies=tuple(matches),
        correspondence=correspondence,
        correspondence_by_chance=chance,
    )


def _matches(a: Atlas, b: Atlas, studies: Iterable[str] | None, different_data: bool) -> list[StudyMatch]:
    in_a, in_b = a.studies, b.studies
    wanted = list(dict.fromkeys([*in_a, *in_b])) if studies is None else list(studies)
    for study in wanted:
        if study not in in_a and study not in in_b:
            raise StudyError(f"Neither atlas has the study {study!r}. {did_you_mean(study, {*in_a, *in_b})}")
    found, unreadable = [], a.unreadable | b.unreadable
    for study in wanted:
        if study in unreadable:
            found.append(StudyMatch(study, study, "refused", unreadable[study].rstrip("."), ()))
        elif study in in_a and study in in_b:
            origins = a.provenance(study), b.provenance(study)
            found.append(_match(study, *origins, different_data=different_data))
        else:
            where, other = ("A", b) if study in in_a else ("B", a)
            text = f"add it to the other with headwise build --studies {study} -o {other.location}"
            found.append(StudyMatch(study, study, f"only in {where}", text, ()))
    return found


def _refuse_nothing(matches: list[StudyMatch], shared: list[str], one: dict[str, xr.Dataset]) -> None:
    if any({"layer", "head"} <= set(dataset.sizes) for dataset in one.values()):
        return
    refused = "; ".join(f"{match.study}: {match.reason}" for match in matches if match.status == "refused")
    if refused:
        anyway = "; or compare them anyway with --different-data" if "different data" in refused else ""
        raise AtlasError(f"Nothing can be compared. {refused}{anyway}.")
    raise AtlasError(
        f"The two atlases have no study of heads in common (shared: {', '.join(shared) or 'none'}); build the same studies "
        "for both, as with headwise build --studies profile."
    )


def _correspondence(found: xr.Dataset, seed: int) -> tuple[float, float]:
    """Mean rank correlation of A and B within layers, and the 95th percentile with B's heads permuted.

    Over the columns with at least half of the heads measured, and the heads that both have in all of these; constant
    columns have no rank and are left out.
    """
    heads = found[["a", "b"]].stack({PLACE: (LAYER, HEAD)}, create_index=False)
    heads = heads.isel({COLUMN: (heads["a"] + heads["b"]).notnull().mean(PLACE) >= 0.5})
    heads = heads.dropna(PLACE)
    if not heads.sizes[COLUMN] or heads.sizes[PLACE] < 3:
        return float("nan"), float("nan")
    stratum = layer_strata(heads[LAYER].values)
    one, other = (rank_vectors_within(heads[side].values, stratum) for side in "ab")
    ordered = one.any(1) & other.any(1)
    if not ordered.any():
        return float("nan"), float("nan")
    one, other = one[ordered], other[ordered]
    strata = HeadStrata(stratum, np.arange(len(stratum)))
    order = permute_within(strata, PERMUTATIONS, np.random.default_rng(seed))
    draws = np.array([(one * other[:, each]).sum(1).mean() for each in order])
    return float((one * other).sum(1).mean()), float(np.quantile(draws, 0.95))


def _match(study: str, one: Provenance, other: Provenance, *, different_data: bool) -> StudyMatch:
    """Whether this study can be compared; with ``different_data`` also where the data differ."""
    differences = tuple(text for text in difference(one, other) if not text.startswith("model:"))
    reasons = []
    if one.data.get("digest") != other.data.get("digest"):
        spec, both = dataset_spec(study), f"({_data(one)} against {_data(other)})"
        if spec is not None and spec.on_own_answers and one.data.get("name") == other.data.get("name"):
            reasons.append("each model's own answers to the same questions")
        elif different_data:
            reasons.append(f"different data, compared as requested {both}")
        else:
            refusal = f"different data {both}: build both on the same data"
            return StudyMatch(study, study, "refused", refusal, differences)
    options = [text for text in differences if text.startswith(("parameters:", "seed:"))]
    if options:
        reasons.append(f"different options ({', '.join(options)})")
    return StudyMatch(study, study, "warned" if reasons else "compared", "; ".join(reasons), differences)


def _models(one: Provenance, other: Provenance) -> tuple[str, ...]:
    """What the two models differ in, one sentence per fact; digests last."""
    texts = (text.removeprefix("model: ") for text in difference(one, other) if text.startswith("model:"))
    return tuple(sorted(map(_without_folders, texts), key=lambda text: text.startswith(("digest", "tokenizer"))))


def _short_name(provenance: Provenance) -> str:
    """The model's name without its owner, with its adapter's where there is one."""
    name = model_name({"model": provenance.model}).rsplit("/", 1)[-1] or "the model"
    adapter = provenance.model.get("adapter")
    return f"{name} + {PurePath(str(adapter)).name}" if adapter else name


def _without_folders(text: str) -> str:
    """Paths without their folders, which are private.

    >>> _without_folders("adapter None against /home/me/sparse")
    'adapter none against sparse'
    """
    words = ["none" if word == "None" else word for word in text.split(" ")]
    return " ".join(PurePath(word).name if word.startswith(("/", "~", ".")) else word for word in words)


def _names(a: Atlas, b: Atlas, one: str, other: str) -> tuple[str, str]:
    """Names of two atlases: their models, with the folders where the models have the same name."""
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


MAX_ROWS = 10  # of a notebook's table
_JSON_FIELDS = (
    "a", "b", "same_shape", "reason", "models", "warnings", "studies", "correspondence", "correspondence_by_chance",
)  # fmt: skip


@dataclass(frozen=True)
class StudyMatch:
    """Whether a study can be compared."""

    study: str
    title: str
    status: str
    """"compared"; "warned": compared, but options or versions differ; "refused"; "only in A"; "only in B" """
    reason: str
    """in a sentence; empty where there is nothing to report"""
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

    dataset: xr.Dataset
    """per column of the head table (``column``) what changed in every head, or, where the shapes differ, by relative depth;
    ``long_name`` says what a variable is"""
    a: str
    """name of A, for a reader"""
    b: str
    """name of B"""
    reason: str = ""
    """why heads are not compared one by one; empty where they are"""
    models: tuple[str, ...] = ()
    """what the two models differ in, as the provenance has it"""
    warnings: tuple[str, ...] = ()
    """what makes the comparison less sure, a sentence each"""
    studies: tuple[StudyMatch, ...] = ()
    """which studies could be compared"""
    correspondence: float = float("nan")
    """mean over columns of the rank correlation of A and B within layers: 1 where heads keep their order; columns in which
    all heads of a layer are equal, in A or in B, are left out; NaN where no column is left"""
    correspondence_by_chance: float = float("nan")
    """95th percentile with B's heads permuted within layers"""

    @property
    def same_shape(self) -> bool:
        """Whether both have as many layers and heads."""
        return LAYER in self.dataset.dims

    @cached_property
    def columns(self) -> tuple[Any, ...]:
        """The columns of ``dataset`` as named tuples; empty where the shapes differ."""
        return self._rows("ColumnChange") if self.same_shape else ()

    @cached_property
    def depths(self) -> tuple[Any, ...]:
        """The columns of ``dataset`` as named tuples; empty where the shapes agree."""
        return () if self.same_shape else self._rows("DepthChange")

    def _rows(self, kind: str) -> tuple[Any, ...]:
        data = self.dataset.reset_coords().rename({COLUMN: "name"})
        values = {str(name): array.values for name, array in data.variables.items() if "name" in array.dims}
        if DEPTH in data:
            values[DEPTH] = np.tile(data[DEPTH].values, (data.sizes["name"], 1))
        row = namedtuple(kind, values)  # type: ignore[misc]
        return tuple(map(row, *(each.tolist() if each.ndim == 1 else each for each in values.values())))

    @cached_property
    def heads(self) -> pd.DataFrame:
        """One row per head, the most changed first: change, noise (expected on other texts), times (change / noise), and the
        columns that changed most; empty where the shapes differ. Where change and noise are both 0, times is 0.
        """
        return ranked_heads(self.dataset) if self.same_shape else pd.DataFrame()

    @property
    def tested(self) -> int:
        """Head x column values whose change was tested."""
        return sum(column.tested for column in self.columns)

    @property
    def changed(self) -> int:
        """Those with q < 0.05."""
        return sum(column.changed for column in self.columns)

    @property
    def same(self) -> bool:
        """Whether every number of every head is the same in both."""
        return self.same_shape and self.dataset["a"].equals(self.dataset["b"])

    @property
    def within_noise(self) -> bool:
        """Whether nothing changed beyond noise: no value with q < 0.05, and what was not tested is the same in both."""
        if self.same or not self.tested or self.changed:
            return self.same
        loose = self.dataset.isel({COLUMN: self.dataset["tested"] == 0})
        return loose["a"].equals(loose["b"])

    def to_dict(self, *, top: int | None = None) -> dict[str, Any]:
        """As JSON: maps become lists; the ``top`` first heads, or all."""
        table = self.heads if top is None else self.heads.head(top)
        found = {name: getattr(self, name) for name in _JSON_FIELDS}
        found |= {name: [one._asdict() for one in getattr(self, name)] for name in ("columns", "depths")}
        jsonable: dict[str, Any] = to_jsonable(found | {"heads": table.reset_index().to_dict("records")})
        return jsonable

    def __repr__(self) -> str:
        about = f"{len(self.columns)} numbers of {len(self.heads)} heads" if self.same_shape else self.reason
        return f"<Comparison of {self.a} and {self.b}: {about}>"

    def _repr_html_(self) -> str:
        first = self.heads.head(MAX_ROWS).reset_index()
        rows = [
            [significant(cell) if isinstance(cell, float) else cell for cell in row] for row in first.values.tolist()
        ]
        body = paragraph(self.reason) if self.reason else table(rows, header=list(first.columns))
        if self.within_noise:
            body = paragraph(
                "Nothing changed." if self.same else "Nothing changed beyond noise (no value with q < 0.05)."
            )
        note = f"{self.a} against {self.b}" + (
            "" if self.reason or self.within_noise else "; the heads that changed most"
        )
        return card("Comparison of two atlases", body, listing(self.warnings), note=note)
