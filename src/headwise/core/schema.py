"""What must a study's Dataset look like? The contract between the code that measures and the code that shows.

A `Schema` lists the variables of one Dataset: names, dims, dtypes, and what each of them is in words. `check` refuses a
Dataset that does not match, naming the first variable that is wrong; what a Dataset holds beyond its schema is allowed.
Every dim is one of `headwise.core.dims.DIMS`, ``layer`` and ``head`` are numbered 0, 1, 2, ..., the provenance is present
and belongs to this study. Nothing is converted, except names: `upgrade` renames what an older version of the study called
differently, so that old atlases stay readable.

Cost: metadata only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from headwise.core import dims
from headwise.core.errors import AtlasError, did_you_mean
from headwise.core.parsing import parse_attribute
from headwise.core.provenance import Provenance

if TYPE_CHECKING:
    import xarray as xr

__all__ = [
    "INTERVAL_ENDS", "TEXT", "Renames", "Schema", "Variable", "annotate", "check", "head_table_variables", "upgrade",
    "with_interval",
]  # fmt: skip

HEAD_TABLE = "record"  # attribute: JSON list of the variables that become columns of the head table
TEXT = "text"  # dtype of strings, however xarray stores them
INTERVAL_ENDS = ("", "_low", "_high")  # of the names of a variable and of the ends of its 95 % confidence interval
SHARED_COORDINATES: Mapping[str, str] = {
    "example": "one text, or one question with its answer",
    "layer": "layer, 0 next to the embedding",
    "head": "query head of the layer, from 0",
    "query": "position of the query token",
    "key": "position of the key token",
    "pooled_query": "pooled range of queries, in a map of reduced size",
    "pooled_key": "pooled range of keys, in a map of reduced size",
    "token": "position in a text, or a named position",
    "rank": "index in a sorted list, 0 is the largest",
    "statistic": "statistic of a head's attention",
    "ablation": "what the output of an ablated head is replaced by",
    "token_class": "class of the predicted token",
    "measure": "what is compared with and without a head",
    "head_set": "set of heads that are ablated together, or that a study names",
    "other_set": "head set of another study",
    "column": "column of the head table",
    "depth": "relative depth of a band of layers, 0 the first layer, 1 the last",
    "feature": "feature that is tested or compared",
    "site": "hook point in a block at which an activation was read",
    "width": "entry of an activation vector",
    "relation": "relation between a source and a target token",
    "category": "category of relations",
    "function": "cognitive function of a step",
    "fold": "fold of the cross-validation",
    "part": "part of a question with its answer: whole or answer",
    "detector": "method that scores an answer",
    "topic": "topic of a question",
    "trained_on": "topic of the training answers",
    "size": "number of training answers",
    "target": "index among the tokens that a head maps a token to, 0 is the strongest",
    "vocabulary": "token id",
    "task": "few-shot task",
    "control": "another task, tested with this task's heads ablated",
    "removed": "number of ablated heads [heads]",
    "draw": "index of a random draw",
    "strategy": "strategy for choosing among sampled answers",
    "error_type": "type of error on a question",
    "condition": "which of two models, or of two conditions of one model",
    "seed": "seed of a probe's initialisation",
    "predicted": "function predicted by the probe",
    "masked": "function whose heads are masked",
    "unit": "what a circuit consists of: heads or edges",
    "circuit_size": "index among the sizes of a circuit, smallest first",
    "rule": "rule by which attention weights are dropped",
    "coverage": "share of the answers that are given, those with the lowest scores",
    "cost_class": "what a score of an answer costs beyond the answer",
    "amount": "length of the added direction, in standard deviations along it",
    "label": "name for readers",
    "definition": "definition in words",
    "register": "kind of text",
}  # coordinates that mean the same in all studies


@dataclass(frozen=True)
class Variable:
    """One variable or coordinate of a Dataset.

    Examples:
        >>> effect = Variable("effect", ("layer", "head"), "AUROC of this feature alone", interval=True)
        >>> [one.name for one in effect.expanded()]
        ['effect', 'effect_low', 'effect_high']
    """

    name: str
    dims: tuple[str, ...] | None  # in this order; None: not fixed
    long_name: str = ""  # one phrase; coordinates shared by all studies need none
    dtype: str = ""  # a numpy dtype, or "text"; empty: any
    unit: str = ""
    interval: bool = False  # `NAME_low` and `NAME_high` hold its 95 % confidence interval
    required: bool = True  # False: some Datasets of this study do not have it
    coordinate: bool = False

    def expanded(self) -> tuple[Variable, ...]:
        """The variable itself, followed by the ends of its confidence interval."""
        if not self.interval:
            return (self,)
        own = replace(self, interval=False)
        return own, *(
            replace(
                own,
                name=f"{self.name}{suffix}",
                long_name=f"{end} end of the 95 % confidence interval of: {self.long_name}",
            )
            for suffix, end in zip(INTERVAL_ENDS[1:], ("lower", "upper"), strict=True)
        )


def with_interval(name: str, value: Any, low: Any, high: Any, *, dims: Any = None) -> dict[str, Any]:
    """A variable and the ends of its interval, as ``Variable(interval=True)`` declares them.

    Args:
        name: of the variable.
        value: an array, or a DataArray.
        low: lower end.
        high: upper end.
        dims: of arrays; None: DataArrays have their own.

    Returns:
        Variables of a Dataset.

    Examples:
        >>> with_interval("gain", [0.2], [0.1], [0.3], dims="task")
        {'gain': ('task', array([0.2])), 'gain_low': ('task', array([0.1])), 'gain_high': ('task', array([0.3]))}
    """
    parts = zip(INTERVAL_ENDS, (value, low, high), strict=True)
    return {f"{name}{end}": part if dims is None else (dims, np.asarray(part)) for end, part in parts}


@dataclass(frozen=True)
class Renames:
    """What a version of a study called differently than the next one; the numbers are the same."""

    variables: Mapping[str, str] = field(default_factory=dict)  # also dims, coordinates and attributes: old -> new
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # coordinate -> old label -> new label
    parameters: Mapping[str, str] = field(default_factory=dict)  # of the provenance: old -> new


@dataclass(frozen=True)
class Schema:
    """The shape of one Dataset.

    Examples:
        >>> from headwise.studies.registry import dataset_spec
        >>> dataset_spec("profile").schema["value"].dims
        ('statistic', 'layer', 'head')
    """

    name: str  # of the Dataset in an atlas
    version: int  # of the study
    variables: tuple[Variable, ...] = ()  # in the order of the documentation
    attrs: tuple[str, ...] = ()  # attributes that must be present, in addition to the provenance
    renames: Mapping[int, Renames] = field(default_factory=dict)  # version -> what that version called differently
    readable_since: int | None = None  # oldest version whose Datasets can still be shown; None: this one

    def expanded(self) -> dict[str, Variable]:
        """All variables by name, with the ends of their confidence intervals."""
        return {one.name: one for variable in self.variables for one in variable.expanded()}

    def __getitem__(self, name: str) -> Variable:
        return self.expanded()[name]


def head_table_variables(dataset: xr.Dataset) -> list[str]:
    """The variables that become columns of the head table, from the attribute ``record`` (a JSON list of names)."""
    try:
        return parse_attribute(dataset.attrs, HEAD_TABLE, list[str], "[]")
    except AtlasError as error:
        text = dataset.attrs[HEAD_TABLE]
        raise AtlasError(
            f'The attribute {HEAD_TABLE!r} must be a JSON list of variable names such as ["value"], not {str(text)[:200]!r}.'
        ) from error


def check(dataset: xr.Dataset, schema: Schema) -> None:
    """Raise AtlasError at the first violation of the schema.

    Args:
        dataset: what a study produced.
        schema: the contract.

    Examples:
        >>> from headwise.studies.registry import dataset_spec
        >>> schema = dataset_spec("profile").schema
        >>> check(atlas["profile"], schema)  # conforms: returns nothing
        >>> check(atlas["profile"].drop_vars("value").assign_attrs(record="[]"), schema)
        Traceback (most recent call last):
            ...
        headwise.core.errors.AtlasError: profile: the variable 'value' with dims (statistic, layer, head) is missing.
    """
    name = schema.name
    _check_dims(dataset, schema)
    provenance = Provenance.from_attrs(dataset.attrs)
    if provenance.study != name:
        raise AtlasError(f"This Dataset was made by the study {provenance.study!r} and cannot stand as {name!r}.")
    for variable in head_table_variables(dataset):
        if variable not in dataset:
            raise AtlasError(
                f"{name}: the attribute {HEAD_TABLE!r} lists {variable!r}, which is not a variable. "
                + did_you_mean(variable, map(str, dataset.data_vars))
            )
        if not {dims.LAYER, dims.HEAD} <= set(dataset[variable].dims):
            raise AtlasError(f"{name}: {variable!r} is listed for the head table but has no dims layer and head.")
    if reason := other_version(provenance, schema):
        raise AtlasError(reason)
    _check_shapes(dataset, schema)


def upgrade(dataset: xr.Dataset, schema: Schema) -> xr.Dataset:
    """Apply the renames since the Dataset's version of the study; a Dataset that needs none is returned as it is."""
    provenance = Provenance.from_attrs(dataset.attrs)
    if provenance.study_version not in schema.renames:
        return dataset
    for version in range(provenance.study_version, schema.version):
        renames = schema.renames.get(version)
        if renames is None:
            return dataset  # `check` explains that it must be measured again
        present = {
            old: new for old, new in renames.variables.items() if old in dataset.variables or old in dataset.dims
        }
        attrs = {renames.variables.get(str(key), str(key)): value for key, value in dataset.attrs.items()}
        if HEAD_TABLE in attrs:
            listed = head_table_variables(dataset)
            attrs[HEAD_TABLE] = json.dumps([renames.variables.get(name, name) for name in listed])
        dataset = dataset.rename(present).assign_attrs(attrs)
        dataset.attrs = attrs
        for coordinate, labels in renames.labels.items():
            if coordinate in dataset.coords:
                array = dataset[coordinate]
                new = np.array([labels.get(str(label), str(label)) for label in array.values], dtype=object)
                dataset = dataset.assign_coords({coordinate: (array.dims, new)})
    return dataset.assign_attrs(upgraded_provenance(provenance, schema).to_attrs())


def upgraded_provenance(provenance: Provenance, schema: Schema) -> Provenance:
    """The provenance under the names of the schema's version; unchanged where the versions differ in more than names."""
    parameters = dict(provenance.parameters)
    for version in range(provenance.study_version, schema.version):
        if version not in schema.renames:
            return provenance
        parameters = {schema.renames[version].parameters.get(key, key): value for key, value in parameters.items()}
    return replace(provenance, study_version=max(provenance.study_version, schema.version), parameters=parameters)


def annotate(dataset: xr.Dataset, schema: Schema) -> xr.Dataset:
    """A copy in which every known variable and coordinate carries ``long_name`` and, where it has one, ``units``."""
    known = {one.name: one for variable in schema.variables for one in replace(variable, interval=True).expanded()}
    known |= schema.expanded()
    annotated = dataset.copy(deep=False)
    for name, array in annotated.variables.items():
        variable = known.get(str(name))
        phrase = variable.long_name if variable is not None and variable.long_name else ""
        phrase, _, unit = (phrase or SHARED_COORDINATES.get(str(name), "")).partition(" [")
        unit = variable.unit if variable is not None and variable.unit else unit.removesuffix("]")
        array.attrs.update({key: text for key, text in {"long_name": phrase, "units": unit}.items() if text})
    return annotated


def _check_dims(dataset: xr.Dataset, schema: Schema) -> None:
    study = schema.name
    known = dims.DIMS.union(*(variable.dims or () for variable in schema.variables))
    for name, array in dataset.variables.items():
        for dim in array.dims:
            if dim not in known:
                raise AtlasError(
                    f"{study}: variable {name!r} has the dim {dim!r}, which is neither one of Headwise's nor declared by "
                    f"the study. {did_you_mean(str(dim), known)}"
                )
    for dim in (dims.LAYER, dims.HEAD):
        if dim not in dataset.sizes:
            continue
        if dim not in dataset.coords:
            raise AtlasError(f"{study}: the dim {dim!r} needs a coordinate numbered from 0.")
        numbers = dataset.coords[dim].values
        if numbers.dtype.kind not in "iu" or not np.array_equal(numbers, np.arange(len(numbers))):
            found = np.array2string(numbers, threshold=6, edgeitems=2, separator=", ")
            raise AtlasError(f"{study}: the coordinate {dim!r} must be 0, 1, ... {len(numbers) - 1}, not {found}.")


def other_version(provenance: Provenance, schema: Schema) -> str:
    """Why numbers of this version of the study cannot be read, and what to do; empty where they can."""
    version = upgraded_provenance(provenance, schema).study_version
    if version > schema.version:
        return (
            f"{schema.name}: the numbers are of version {version} of the study, but this Headwise "
            f"knows version {schema.version}; use a newer Headwise (pip install -U headwise)."
        )
    if version < min(schema.version, schema.readable_since or schema.version):
        return (
            f"{schema.name}: the numbers are of version {version} of the study, and this Headwise "
            f"makes version {schema.version}; run the same headwise build again with --redo {schema.name}."
        )
    return ""


def _check_shapes(dataset: xr.Dataset, schema: Schema) -> None:
    for name, variable in schema.expanded().items():
        kind = "coordinate" if variable.coordinate else "variable"
        if name not in (dataset.coords if variable.coordinate else dataset.data_vars):
            if not variable.required:
                continue
            raise AtlasError(
                f"{schema.name}: the {kind} {name!r} with dims ({', '.join(variable.dims or ())}) is missing."
            )
        found = dataset[name]
        if variable.dims is not None and found.dims != variable.dims:
            raise AtlasError(
                f"{schema.name}: the {kind} {name!r} has dims ({', '.join(map(str, found.dims))}), "
                f"expected ({', '.join(variable.dims)})."
            )
        if variable.dtype and not _has_dtype(found.values, variable.dtype):
            raise AtlasError(f"{schema.name}: the {kind} {name!r} is {found.dtype}, expected {variable.dtype}.")
    for name in schema.attrs:
        if name not in dataset.attrs:
            raise AtlasError(f"{schema.name}: the attribute {name!r} is missing.")


def _has_dtype(values: np.ndarray, dtype: str) -> bool:
    if dtype != TEXT:
        return values.dtype == np.dtype(dtype)
    return values.dtype.kind in "UT" or all(isinstance(value, str) for value in values.ravel())
