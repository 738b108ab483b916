"""What must a study's Dataset look like? One promise that those who measure give to those who show.

Steps of ``check``: every dim is one of ``headwise.core.dims.DIMS``; ``layer`` and ``head``, where present, are numbered
0, 1, 2, ...; the provenance is there and is about this study; every variable listed for the head record exists and
has layer and head; then what the study's own ``Schema`` asks for: names, dims, dtypes, attributes. What a Dataset holds
beyond that is allowed. Nothing is converted: a misshapen Dataset is refused, naming the variable.

Cost: metadata only. This module does not know what the numbers mean, nor how they are stored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import xarray as xr

from headwise.core import dims
from headwise.core.errors import AtlasError, did_you_mean
from headwise.core.provenance import Provenance

__all__ = ["Schema", "check", "recorded"]

RECORD = "record"
TEXT = "text"


@dataclass(frozen=True)
class Schema:
    """The shape of one study's Dataset.

    Examples:
        >>> from headwise.atlas import SCHEMAS
        >>> SCHEMAS["profile"].variables["value"]
        ('statistic', 'layer', 'head')
    """

    study: str  # its name
    version: int  # of the study
    variables: Mapping[str, tuple[str, ...]]
    """name -> dims, in this order"""
    coords: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """name -> dims; layer and head need not be listed"""
    dtypes: Mapping[str, str] = field(default_factory=dict)
    """name of a variable or coordinate -> numpy dtype, or "text"; those not listed may have any"""
    attrs: tuple[str, ...] = ()
    """attributes that must be there, beside the provenance"""


def recorded(dataset: xr.Dataset) -> list[str]:
    """The variables that go into the head record, from the attribute ``record`` (a JSON list of names)."""
    text = dataset.attrs.get(RECORD, "[]")
    try:
        names = json.loads(text)
    except (TypeError, ValueError):
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise AtlasError(
            f'The attribute {RECORD!r} must be a JSON list of variable names such as ["value"], not {text!r}.'
        )
    return names


def check(dataset: xr.Dataset, schema: Schema) -> None:
    """Raise AtlasError at the first thing that is not as promised.

    Args:
        dataset: what a study made.
        schema: what was promised.

    Examples:
        >>> from headwise.atlas import SCHEMAS
        >>> check(atlas["profile"], SCHEMAS["profile"])  # as it should be: nothing is said
        >>> check(atlas["profile"].drop_vars("value").assign_attrs(record="[]"), SCHEMAS["profile"])
        Traceback (most recent call last):
            ...
        headwise.core.errors.AtlasError: profile: the variable 'value' with dims (statistic, layer, head) is missing.
    """
    study = schema.study
    _check_dims(dataset, study)
    provenance = Provenance.from_attrs(dataset.attrs)
    if provenance.study != study:
        raise AtlasError(f"This Dataset was made by the study {provenance.study!r} and cannot stand as {study!r}.")
    for name in recorded(dataset):
        if name not in dataset:
            raise AtlasError(
                f"{study}: the attribute {RECORD!r} lists {name!r}, which is not a variable. "
                + did_you_mean(name, map(str, dataset.data_vars))
            )
        if not {dims.LAYER, dims.HEAD} <= set(dataset[name].dims):
            raise AtlasError(f"{study}: {name!r} is listed for the head record but has no dims layer and head.")
    _check_version(provenance, schema)
    _check_shapes(dataset, schema)


def _check_dims(dataset: xr.Dataset, study: str) -> None:
    for name, array in dataset.variables.items():
        for dim in array.dims:
            if dim not in dims.DIMS:
                raise AtlasError(
                    f"{study}: variable {name!r} has the dim {dim!r}, which is not one of Headwise's. "
                    + did_you_mean(str(dim), dims.DIMS)
                )
    for dim in (dims.LAYER, dims.HEAD):
        if dim not in dataset.sizes:
            continue
        if dim not in dataset.coords:
            raise AtlasError(f"{study}: the dim {dim!r} needs a coordinate numbered from 0.")
        numbers = dataset.coords[dim].values
        if numbers.dtype.kind not in "iu" or not np.array_equal(numbers, np.arange(len(numbers))):
            raise AtlasError(
                f"{study}: the coordinate {dim!r} must be 0, 1, ... {len(numbers) - 1}, not {_short(numbers)}."
            )


def _check_version(provenance: Provenance, schema: Schema) -> None:
    if provenance.study_version > schema.version:
        raise AtlasError(
            f"{schema.study}: the numbers are of version {provenance.study_version} of the study, but this Headwise "
            f"knows version {schema.version}; use a newer Headwise (pip install -U headwise)."
        )
    if provenance.study_version < schema.version:
        raise AtlasError(
            f"{schema.study}: the numbers are of version {provenance.study_version} of the study, and this Headwise "
            f"makes version {schema.version}; run the same headwise build again with --redo {schema.study}."
        )


def _check_shapes(dataset: xr.Dataset, schema: Schema) -> None:
    wanted = [("variable", name, shape) for name, shape in schema.variables.items()]
    wanted += [("coordinate", name, shape) for name, shape in schema.coords.items()]
    for kind, name, shape in wanted:
        if name not in (dataset.data_vars if kind == "variable" else dataset.coords):
            raise AtlasError(f"{schema.study}: the {kind} {name!r} with dims ({', '.join(shape)}) is missing.")
        found = dataset[name]
        if found.dims != shape:
            raise AtlasError(
                f"{schema.study}: the {kind} {name!r} has dims ({', '.join(map(str, found.dims))}), "
                f"expected ({', '.join(shape)})."
            )
        dtype = schema.dtypes.get(name)
        if dtype is not None and not _is_of(found.values, dtype):
            raise AtlasError(f"{schema.study}: the {kind} {name!r} is {found.dtype}, expected {dtype}.")
    for name in schema.attrs:
        if name not in dataset.attrs:
            raise AtlasError(f"{schema.study}: the attribute {name!r} is missing.")


def _is_of(values: np.ndarray, dtype: str) -> bool:
    if dtype != TEXT:
        return values.dtype == np.dtype(dtype)
    return values.dtype.kind in "UT" or all(isinstance(value, str) for value in values.ravel())


def _short(values: np.ndarray) -> str:
    return np.array2string(values, threshold=6, edgeitems=2, separator=", ")
