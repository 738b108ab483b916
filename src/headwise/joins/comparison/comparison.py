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

import numpy as np
import pandas as pd
import xarray as xr

from headwise.atlas import Atlas
from headwise.core.errors import AtlasError, StudyError, did_you_mean
from headwise.joins.agreement.evidence import within
from headwise.joins.columns import Columns, columns_of
from headwise.joins.comparison.changes import changes, depths, ranked_heads
from headwise.joins.comparison.matching import called, match_of, models_of, names_of
from headwise.joins.comparison.result import ColumnChange, Comparison, StudyMatch
from headwise.joins.shuffles import bands, shuffled_within

__all__ = ["compare"]

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
            text = f"add it to the other with headwise build --studies {study} -o {other.place}"
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
