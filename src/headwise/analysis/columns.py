"""Which numbers does each study have per head, with which confidence interval, test and baseline?

A study's spec declares `HeadColumn`s: a variable, and the variables that hold its interval, p, q and baseline. `columns_of`
turns the Datasets of an atlas into `Columns`: one (layer, head) map per column, named as in the head table
(``profile.induction``, ``relations.copying.score``). A study that declares none gives the numbers of its head table, with
intervals where it has variables ``x_low`` and ``x_high``.

p and q belong to an effect and are no columns of their own; of the patterns only those of the model itself are included,
not those of the reference model.

Cost: copies of the maps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from headwise.atlas.head_table import columns_of as table_columns
from headwise.core.dims import HEAD, LAYER, head_name
from headwise.core.errors import AtlasError
from headwise.core.schema import head_table_variables
from headwise.stats.ranks import rank_stats
from headwise.studies.registry import dataset_spec, datasets
from headwise.studies.spec import HeadColumn

COLUMNS_PER_OTHER_STUDY = 2  # of a study that declares no default columns


@dataclass(frozen=True, eq=False)
class Column:
    """One number per head: a map (layer, head), NaN where a head was not measured, with interval, test and baseline.

    Examples:
        >>> columns = columns_of({"profile": atlas["profile"]})
        >>> one = next(column for column in columns.columns if column.name == "profile.induction")
        >>> one.label, one.values.shape, one.baseline_name
        ('Induction', (6, 6), 'a uniform head')
    """

    name: str  # as the head table has it
    study: str  # where it comes from
    label: str  # for readers
    values: np.ndarray  # (layer, head)
    low: np.ndarray | None = None  # lower ends of the 95 % confidence intervals
    high: np.ndarray | None = None  # upper ends
    p: np.ndarray | None = None  # of the study's test
    q: np.ndarray | None = None  # the same after Benjamini and Hochberg
    q_matched: np.ndarray | None = None  # the same among answers of the same length
    within: np.ndarray | None = None  # the values among answers to similar questions
    q_within: np.ndarray | None = None  # their q
    baseline: np.ndarray | None = None  # the value of a head without this property
    baseline_name: str = ""  # what the baseline is
    unit: str = ""  # of the values
    definition: str = ""  # a phrase
    entry: str = ""  # of the variable's own dims
    hits: str = ""  # the Dataset's variable of which the values are shares
    hits_of: str = ""  # its coordinate that says which entry an example belongs to
    compared_alike: bool = False  # the numbers themselves are of answers to similar questions

    @property
    def controlled(self) -> bool:
        """Whether it has a test among answers to similar questions."""
        return self.compared_alike or self.q_within is not None

    @property
    def test_q(self) -> np.ndarray | None:
        """The q-values of its strictest test: among answers to similar questions, where there is one."""
        return self.q if self.q_within is None else self.q_within


@dataclass(frozen=True, eq=False)
class Columns:
    """All columns of an atlas, over the same heads. Made by `columns_of`.

    Examples:
        >>> columns = columns_of({"profile": atlas["profile"], "spectral": atlas["spectral"]})
        >>> columns.studies, columns.matrix().shape
        (['profile', 'spectral'], (36, 23))
    """

    layers: int  # of the model
    heads: int  # per layer
    columns: tuple[Column, ...]  # study by study

    @property
    def names(self) -> list[str]:
        """Of the heads, layer by layer."""
        return [head_name(layer, head) for layer in range(self.layers) for head in range(self.heads)]

    @property
    def studies(self) -> list[str]:
        """Those that have columns, in their order."""
        return list(dict.fromkeys(column.study for column in self.columns))

    def matrix(self) -> np.ndarray:
        """(head, column) in the order of ``names``."""
        if not self.columns:
            return np.empty((self.layers * self.heads, 0))
        return np.stack([column.values.ravel() for column in self.columns], axis=1)


def columns_of(datasets: Mapping[str, xr.Dataset]) -> Columns:
    """The columns of all studies that measured heads, all on the same (layer, head) grid.

    Args:
        datasets: by study, as an atlas gives them.

    Returns:
        The input of all analyses.

    Examples:
        >>> columns_of({"profile": atlas["profile"]}).names[:3]
        ['L0H0', 'L0H1', 'L0H2']
    """
    headed = {study: one for study, one in datasets.items() if {LAYER, HEAD} <= set(one.sizes)}
    if not headed:
        raise AtlasError(
            f"None of the studies here ({', '.join(datasets) or 'none'}) measured heads; "
            "add one with headwise build --studies profile."
        )
    layers, heads = (max(one.sizes[dim] for one in headed.values()) for dim in (LAYER, HEAD))
    found = [column for study, one in headed.items() for column in _of_study(study, one, layers, heads)]
    return Columns(layers, heads, tuple(found))


def _of_study(study: str, dataset: xr.Dataset, layers: int, heads: int) -> Iterator[Column]:
    for spec in _head_columns(study, dataset):
        if spec.variable not in dataset:  # an older version of the study
            continue
        chosen = dataset.sel({dim: [label] for dim, label in spec.only.items() if dim in dataset.dims})
        maps_of = {
            role: [_grid(array, layers, heads) for _, array in table_columns(study, chosen, [variable])]
            for role in ("low", "high", "p", "q", "q_matched", "within", "q_within", "baseline")
            if (variable := getattr(spec, role)) and variable in chosen
        }
        for index, (name, array) in enumerate(table_columns(study, chosen, [spec.variable])):
            companions: dict[str, Any] = {role: maps[index if len(maps) > 1 else 0] for role, maps in maps_of.items()}
            if "baseline" not in companions and np.isfinite(spec.level):
                companions["baseline"] = np.full((layers, heads), spec.level)
            words = _words(chosen, spec, index)
            yield Column(
                name,
                study,
                words["label"],
                _grid(array, layers, heads),
                **companions,
                baseline_name=spec.baseline_name,
                unit=words["unit"],
                definition=words["definition"],
                entry=words["entry"],
                hits=spec.hits,
                hits_of=spec.hits_of,
                compared_alike=spec.controlled,
            )


def _head_columns(study: str, dataset: xr.Dataset) -> tuple[HeadColumn, ...]:
    """As the study's spec declares them; else the numeric variables of the head table, with intervals where there are some."""
    declared = dataset_spec(study)
    if declared is not None and declared.head_columns is not None:
        return declared.head_columns
    names = [
        name for name in head_table_variables(dataset) if dataset[name].dtype.kind in "fiub" and name not in ("p", "q")
    ]
    return tuple(HeadColumn(name) for name in names)


def default_columns(columns: Iterable[object]) -> list[str]:
    """The columns that the head table shows first, on the command line and on the pages.

    Args:
        columns: of the head table.

    Returns:
        Those that the studies' specs name, then the first few of every other study.

    Examples:
        >>> default_columns(["layer", "head", "profile.sink", "profile.induction", "mine.a", "mine.b", "mine.c"])
        ['profile.induction', 'profile.sink', 'mine.a', 'mine.b']
    """
    names = [str(name) for name in columns if name not in (LAYER, HEAD)]
    declared = [name for spec in datasets().values() for name in spec.default_columns]
    shown = [name for name in declared if name in names]
    covered = {name.partition(".")[0] for name in shown}
    others = dict.fromkeys(study for name in names if (study := name.partition(".")[0]) not in covered)
    first = [
        name
        for study in others
        for name in [one for one in names if one.partition(".")[0] == study][:COLUMNS_PER_OTHER_STUDY]
    ]
    return [*shown, *first]


def _grid(array: xr.DataArray, layers: int, heads: int) -> np.ndarray:
    grid = np.full((layers, heads), np.nan)
    values = array.transpose(LAYER, HEAD).values
    grid[: values.shape[0], : values.shape[1]] = values
    return grid


def _words(dataset: xr.Dataset, spec: HeadColumn, column: int) -> dict[str, str]:
    """Label, definition and unit of one of the columns that a variable with own dims unfolds to."""
    array = dataset[spec.variable]
    own_dims = [str(dim) for dim in array.dims if dim not in (LAYER, HEAD)]
    indices = np.unravel_index(column, [array.sizes[dim] for dim in own_dims]) if own_dims else ()
    found: dict[str, list[str]] = {"label": [], "definition": [], "unit": []}
    for dim, index in zip(own_dims, indices, strict=True):
        own = {key: dataset[key] for key in found if key in dataset.coords and dataset[key].dims == (dim,)}
        found["label"].append(str(own["label"].values[index] if "label" in own else dataset[dim].values[index]))
        found["definition"] += [str(own["definition"].values[index])] if "definition" in own else []
        found["unit"] += [str(own["unit"].values[index])] if "unit" in own else []
    names = [name for dim, name in zip(own_dims, found["label"], strict=True) if dim not in spec.only]
    label = spec.label.format(", ".join(names[::-1])) if names else spec.label.replace("{}", spec.variable)
    definition = "; ".join([*found["definition"], *([spec.definition] if spec.definition else [])])
    entry = ", ".join(found["label"])
    return {"label": label, "definition": definition, "unit": " ".join(found["unit"]).strip(), "entry": entry}


def percentiles(frame: pd.DataFrame) -> pd.DataFrame:
    """The head table with every number replaced by its percentile; layer, head and text are left out.

    Args:
        frame: the head table, from `Atlas.heads`.

    Returns:
        0 for the smallest of all heads, 100 for the largest.

    Examples:
        >>> percentiles(pd.DataFrame({"layer": [0, 0, 1], "profile.sink": [0.2, 0.9, 0.4]}))["profile.sink"].tolist()
        [0.0, 100.0, 50.0]
    """
    numbers = frame.select_dtypes("number").drop(columns=[LAYER, HEAD], errors="ignore")
    found = rank_stats(numbers.to_numpy(dtype=float))[0]
    return pd.DataFrame(found, index=numbers.index, columns=numbers.columns)


def with_percentiles(frame: pd.DataFrame) -> pd.DataFrame:
    """The head table with every number replaced by its percentile; layer, head and text stay as they are.

    Args:
        frame: the head table, from `Atlas.heads`.

    Returns:
        The same table, in percentiles.

    Examples:
        >>> float(with_percentiles(atlas.heads()).loc["L3H2", "profile.previous"])
        100.0
    """
    return frame.assign(**{str(name): column for name, column in percentiles(frame).items()})
