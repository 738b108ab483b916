"""Does an atlas find the heads that were published for its model? Lists of known heads against the maps that should name them.

    known = known_heads("gpt2")                       # packaged lists, or a file of yours
    report = compare_known(atlas, known)              # KnownReport
    report.lists[0].precision, report.text()

A file holds the lists of one model, as facts with their source; each list says which map should be high for its heads:

    {"models": ["gpt2", "openai-community/gpt2"],     the hub ids, or last parts of paths, whose atlases may be compared
     "layers": 12, "heads": 12,
     "lists": [{"label": "induction heads",
                "source": "Wang et al. 2023, arXiv:2211.00593",
                "map": {"study": "profile", "variable": "value", "at": {"statistic": "induction"}},
                "heads": ["L5H5", "L6H9"]}]}

or, where a score was published for every head, ``"scores"`` (layer, head) in place of ``"heads"``, of which those over
``"above"`` (0.5) count as listed; with fewer columns than the model has heads, one per group of heads that share keys and
values. ``"larger": false`` if the map should be low there.

Of each list with k heads:

    precision     the share of the map's k highest heads that are listed, and what it is on average with heads permuted
                  within layers (heads that share keys and values together), with p
    AUROC         of listed against other heads
    correlation   Spearman's, of the published scores (or of membership) and the map, the mean of each layer removed, with p

The smallest p that a list could reach, if the map named exactly its heads, is stated with it: two heads in a layer of four
cannot be distinguished from chance. q: Benjamini-Hochberg over the lists.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import xarray as xr

from headwise.analysis.permutation import permutation_test, rank_vectors_within
from headwise.analysis.study_agreement import PERMUTATIONS, permutation_strata
from headwise.atlas import Atlas
from headwise.core.dims import HEAD, LAYER, head_name, parse_heads
from headwise.core.errors import DataError, did_you_mean, translate_content_errors
from headwise.core.parsing import Finite, parse
from headwise.figures.provenance import model_name, provenance_of
from headwise.stats.auroc import auroc_rows
from headwise.stats.multiple_testing import benjamini_hochberg

FOLDER = Path(__file__).parent / "data" / "known_heads"
MAX_NAMED = 12  # heads of a list that are named with their ranks


class MapSource(msgspec.Struct, frozen=True):
    """A (layer, head) map of an atlas."""

    study: str
    variable: str
    at: dict[str, str] = {}

    def __str__(self) -> str:
        return ".".join([self.study, self.variable, *self.at.values()])


class KnownList(msgspec.Struct, frozen=True):
    """A published list of heads, or a published score of every head."""

    label: str
    source: str
    map: MapSource
    heads: list[str] = []
    scores: list[list[Finite]] = []
    larger: bool = True
    above: Finite = 0.5
    """heads whose score is larger are listed"""


class KnownHeads(msgspec.Struct, frozen=True):
    """The published lists of one model."""

    models: list[str]
    layers: int
    heads: int
    lists: list[KnownList]


@dataclass(frozen=True)
class ListResult:
    """How well a map names the heads of one list.

    Examples:
        >>> previous = MapSource("profile", "value", {"statistic": "previous"})
        >>> lists = [KnownList("previous-token heads", "planted", previous, ["L3H2"])]
        >>> found = compare_known(atlas, KnownHeads([], 6, 6, lists)).lists[0]
        >>> found.label, found.heads, found.precision
        ('previous-token heads', {'L3H2': 1}, 1.0)
    """

    label: str  # of the list
    source: str  # where it was published
    map: str  # which map should be high for its heads
    heads: dict[str, int]  # listed head -> its rank in the map, 1 the highest
    measured: int  # heads that the map has a value for
    precision: float  # share of the k highest heads that are listed, k being the number of listed heads
    expected: float  # the precision on average, heads permuted within layers
    p: float  # of the precision; NaN where no permutation changes it
    p_smallest: float  # of a map that names exactly the listed heads
    auroc: float  # of listed against other heads
    correlation: float  # Spearman's, with published scores or membership, the mean of each layer removed
    correlation_p: float  # of the correlation, heads permuted within layers
    q: float = float("nan")  # of the precision, over all lists


@dataclass(frozen=True)
class KnownReport:
    """What `compare_known` found.

    Examples:
        >>> previous = MapSource("profile", "value", {"statistic": "previous"})
        >>> lists = [KnownList("previous-token heads", "planted", previous, ["L3H2"])]
        >>> report = compare_known(atlas, KnownHeads([], 6, 6, lists))
        >>> report.text().splitlines()[1].split(",")[1]
        ' by profile.value.previous: 1 of the 1 highest of 36 heads are listed'
    """

    model: str  # of the atlas
    lists: tuple[ListResult, ...]  # those that could be compared
    missing: tuple[str, ...]  # sentences on those whose study the atlas does not have

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    def text(self) -> str:
        """The report in words.

        Returns:
            A paragraph per list.
        """
        return "\n".join([f"Known heads of {self.model}", *map(_sentence, self.lists), *self.missing])


def known_heads(name: str | Path) -> KnownHeads:
    """Packaged lists by name, or those of a file.

    Args:
        name: such as "gpt2", or a JSON file.

    Returns:
        The lists.

    Examples:
        >>> [one.label for one in known_heads("gpt2").lists][:2]
        ['previous-token heads', 'duplicate-token heads']
    """
    packaged = {path.stem: path for path in FOLDER.glob("*.json")}
    path = packaged.get(str(name), Path(name))
    if not path.is_file():
        raise DataError(
            f"there are no known heads {str(name)!r}. {did_you_mean(str(name), packaged)} Or give a JSON file of "
            "your own; docs/guide/known-heads.md has the format."
        )
    try:
        found = parse(path.read_bytes(), KnownHeads)
        for one in found.lists:
            _check(one, found)
    except (ValueError, DataError) as cause:
        raise DataError(
            f"{path} does not hold lists of heads: {cause}; docs/guide/known-heads.md has the format"
        ) from cause
    return found


def _check(one: KnownList, known: KnownHeads) -> None:
    if bool(one.heads) == bool(one.scores):
        raise ValueError(f"the list {one.label!r} needs either heads or scores")
    for layer, head in parse_heads(one.heads):
        if layer >= known.layers or head >= known.heads:
            raise ValueError(
                f"{head_name(layer, head)} is not in a model of {known.layers} layers x {known.heads} heads"
            )
    widths = {len(row) for row in one.scores}
    if one.scores and (
        len(one.scores) != known.layers or len(widths) != 1 or not min(widths) or known.heads % min(widths)
    ):
        raise ValueError(
            f"the scores of {one.label!r} must be {known.layers} rows of {known.heads} heads, or of their groups"
        )


def compare_known(atlas: Atlas, known: KnownHeads, *, permutations: int = PERMUTATIONS, seed: int = 0) -> KnownReport:
    """Compare the maps of an atlas with published lists of heads of its model.

    Args:
        atlas: of the model.
        known: from `known_heads`.
        permutations: per test.
        seed: of the permutations.

    Returns:
        Precision, AUROC and rank correlation of each list.

    Examples:
        >>> previous = MapSource("profile", "value", {"statistic": "previous"})
        >>> lists = [KnownList("previous-token heads", "planted", previous, ["L3H2"])]
        >>> compare_known(atlas, KnownHeads([], 6, 6, lists)).lists[0].auroc
        1.0
    """
    with translate_content_errors(f"The atlas {atlas.location}"):
        used = [one for one in known.lists if one.map.study in atlas.studies]
        datasets = {one.map.study: atlas[one.map.study] for one in used}
        missing = tuple(
            f"{one.label}: not compared, since the atlas has no study {one.map.study!r}; add it with headwise build "
            f"--studies {one.map.study}"
            for one in known.lists
            if one not in used
        )
        if not used:
            raise DataError(
                f"the atlas {atlas.location} has none of the studies that these lists need. {' '.join(missing)}"
            )
        origin = provenance_of(next(iter(datasets.values()))).get("model", {})
        model = model_name({"model": origin}) or "the model"
        names = {one.rsplit("/", 1)[-1].lower() for one in known.models}
        if known.models and model.rsplit("/", 1)[-1].lower() not in names:
            raise DataError(
                f"these lists are of {' or '.join(known.models)}, and the atlas is of {model}; give its atlas"
            )
        kv_heads = int(origin.get("kv_heads") or 0)
        found = [_Comparison(one, known, datasets[one.map.study], kv_heads).result(permutations, seed) for one in used]
    q = benjamini_hochberg(np.array([one.p for one in found]))
    results = tuple(
        ListResult(**{**asdict(one), "q": float(value)}) for one, value in zip(found, q, strict=True)
    )  # fmt: skip
    return KnownReport(model, results, missing)


class _Comparison:
    """One list and the map that should name its heads, over the heads that the map measured."""

    def __init__(self, one: KnownList, known: KnownHeads, dataset: xr.Dataset, kv_heads: int):
        self._list, self._known = one, known
        self._map = _values(dataset, one.map) * (1 if one.larger else -1)
        if self._map.shape != (known.layers, known.heads):
            raise DataError(
                f"these lists are of a model of {known.layers} layers x {known.heads} heads, and the atlas has "
                f"{self._map.shape[0]} x {self._map.shape[1]}"
            )
        measured = np.isfinite(self._map)
        self._names, self._strata, _ = permutation_strata(measured, kv_heads)
        self._values = self._map[measured]
        self._scores = self._published[measured]

    @cached_property
    def _published(self) -> np.ndarray:
        """(layer, head): the published scores, or 1 for listed heads."""
        if self._list.scores:
            scores = np.array(self._list.scores, dtype=float)
            return scores.repeat(self._known.heads // scores.shape[1], axis=1)
        member = np.zeros((self._known.layers, self._known.heads))
        for layer, head in parse_heads(self._list.heads):
            member[layer, head] = 1.0
        return member

    def result(self, permutations: int, seed: int) -> ListResult:
        """Precision and correlation against permuted heads."""
        listed = self._scores > self._list.above
        k = int(listed.sum())
        if not 0 < k < len(listed):
            raise DataError(f"the list {self._list.label!r} has {k} of the {len(listed)} heads that the map measured")
        order = np.argsort(-self._values, kind="stable")
        named = np.zeros(len(order))
        named[order[:k]] = 1.0
        sets = np.stack([listed.astype(float), named])
        ranks = rank_vectors_within(np.stack([self._scores, self._values]), self._strata.stratum)

        def tested(first: int, second: int, rows: np.ndarray) -> Any:
            pair = np.array([first]), np.array([second])
            return permutation_test(*pair, rows, self._strata, permutations, seed, within=True)

        overlap, perfect, rank = tested(0, 1, sets), tested(0, 0, sets), tested(0, 1, ranks)
        rank_of = {int(head): number for number, head in enumerate(order, start=1)}
        return ListResult(
            label=self._list.label,
            source=self._list.source,
            map=str(self._list.map),
            heads={
                self._names[head]: rank_of[head]
                for head in sorted(np.flatnonzero(listed).tolist(), key=lambda head: rank_of[head])
            },
            measured=len(order),
            precision=float(overlap.observed[0]) / k,
            expected=float(overlap.expected[0]) / k,
            p=float(overlap.p[0]),
            p_smallest=float(perfect.p[0]),
            auroc=float(auroc_rows(self._values, listed)),
            correlation=float(rank.observed[0]),
            correlation_p=float(rank.p[0]),
        )


def _values(dataset: xr.Dataset, source: MapSource) -> np.ndarray:
    """(layer, head) as floats."""
    if source.variable not in dataset:
        raise DataError(
            f"{source.study} has no {source.variable!r}. {did_you_mean(source.variable, list(map(str, dataset)))}"
        )
    array = dataset[source.variable]
    for dim, label in source.at.items():
        labels = [str(one) for one in array[dim].values] if dim in array.coords else []
        if label not in labels:
            raise DataError(f"{source.study}.{source.variable} has no {dim} {label!r}. {did_you_mean(label, labels)}")
        array = array.isel({dim: labels.index(label)})
    if set(array.dims) != {LAYER, HEAD}:
        raise DataError(f"{source} has the dims {', '.join(map(str, array.dims))}; name one of each with 'at'")
    return array.transpose(LAYER, HEAD).values.astype(float)


def _sentence(one: ListResult) -> str:
    named = [f"{head} ({rank})" for head, rank in list(one.heads.items())[:MAX_NAMED]]
    more = f" and {len(one.heads) - MAX_NAMED} more" if len(one.heads) > MAX_NAMED else ""
    listed = len(one.heads)
    test = f"p {one.p:.2g}, q {one.q:.2g}"
    if np.isnan(one.p):
        test = "no test: no permutation within layers changes it"
    elif one.p_smallest >= 0.05:
        test += f"; a perfect match has p {one.p_smallest:.2g}, too few heads for a test"
    rank = "" if np.isnan(one.correlation_p) else f" (p {one.correlation_p:.2g})"
    return (
        f"{one.label} ({one.source}), by {one.map}: {round(one.precision * listed)} of the {listed} highest of "
        f"{one.measured} heads are listed, {one.expected * listed:.1f} expected within layers ({test}); AUROC "
        f"{one.auroc:.2f}; rank correlation within layers {one.correlation:.2f}{rank}. Ranks: {', '.join(named)}{more}."
    )
