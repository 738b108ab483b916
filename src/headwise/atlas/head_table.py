"""What does the atlas know about each head? All studies joined: one row per head, one column per number.

Each study's Dataset names, in its attribute ``record``, the variables that go in. A variable with dims (layer, head) becomes
the column ``study.variable``; one with more dims, such as (statistic, layer, head), becomes one column per label:
``profile.induction`` for the variable "value", ``profile.induction.low`` for others; with two more dims
``spectral.whole.laplacian.p``. Labels are made identifiers: "Knowledge Recall" -> ``Knowledge_Recall``, rank 0 -> ``rank_0``.
A head that a study did not measure gets NaN. Only studies of the same weights are joined.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import product

import numpy as np
import pandas as pd
import xarray as xr

from headwise.core.dims import EXAMPLE, HEAD, LAYER, head_name
from headwise.core.errors import AtlasError
from headwise.core.markup import cell_text
from headwise.core.provenance import Provenance
from headwise.core.schema import head_table_variables


def heads(studies: xr.DataTree | Mapping[str, xr.Dataset]) -> pd.DataFrame:
    """One row per head, named "L0H0" ...; the columns layer and head, then those of each study.

    Args:
        studies: Datasets by study, or a DataTree of them, all of the same weights.

    Returns:
        The table; NaN for a head that a study did not measure.

    Examples:
        >>> table = heads({"profile": atlas["profile"]})
        >>> table.loc["L3H2", ["layer", "head", "profile.previous", "profile.sink"]].astype(float).round(2).to_dict()
        {'layer': 3.0, 'head': 2.0, 'profile.previous': 0.85, 'profile.sink': 0.06}
    """
    if isinstance(studies, xr.DataTree):
        studies = {str(name): node.to_dataset() for name, node in studies.children.items()}
    check_same_model(studies)
    tables: list[pd.DataFrame] = []
    for study, dataset in studies.items():
        columns: dict[str, np.ndarray] = {}
        for name, array in columns_of(study, dataset):
            if name in columns:
                raise AtlasError(f"Two variables of the study {study!r} want the column {name!r}; rename one label.")
            columns[name] = array.transpose(LAYER, HEAD).values.ravel()
        if columns:
            grid = pd.MultiIndex.from_product([dataset[LAYER].values, dataset[HEAD].values], names=[LAYER, HEAD])
            tables.append(pd.DataFrame(columns, index=grid))
    if not tables:
        return pd.DataFrame({LAYER: [], HEAD: []}, index=pd.Index([], name="name"), dtype=int)
    joined = pd.concat(tables, axis=1).sort_index().copy().reset_index()  # the copy makes the columns contiguous
    names = [head_name(layer, head) for layer, head in zip(joined[LAYER], joined[HEAD], strict=True)]
    return joined.set_index(pd.Index(names, name="name"))


def columns_of(
    study: str, dataset: xr.Dataset, variables: Iterable[str] | None = None
) -> Iterator[tuple[str, xr.DataArray]]:
    """The columns of one study with their names; of the given ``variables`` instead of those of the head table."""
    for variable in head_table_variables(dataset) if variables is None else variables:
        array = dataset[variable].reset_coords(drop=True)
        extra_dims = [str(dim) for dim in array.dims if dim not in (LAYER, HEAD)]
        if not extra_dims:
            yield f"{study}.{variable}", array
            continue
        if EXAMPLE in extra_dims or any(dim not in array.coords for dim in extra_dims):
            raise AtlasError(
                f"{study}: the variable {variable!r} with dims ({', '.join(map(str, array.dims))}) cannot go into the "
                "head table; it may have layer, head, and other dims (not example) whose coordinates name their entries."
            )
        labels = [[_identifier(dim, label) for label in array[dim].values.tolist()] for dim in extra_dims]
        array = array.drop_vars(extra_dims)
        for indices in product(*(range(array.sizes[dim]) for dim in extra_dims)):
            own = [every[index] for every, index in zip(labels, indices, strict=True)]
            name = ".".join([study, *own] + ([] if variable == "value" else [variable]))
            yield name, array.isel(dict(zip(extra_dims, indices, strict=True)))


def harmless_csv(table: pd.DataFrame) -> pd.DataFrame:
    """The table for a CSV file: text that a spreadsheet would run as a formula begins with an apostrophe.

    >>> harmless_csv(pd.DataFrame({"=a": ["=1+1", "x"], "n": [-1.5, 2]})).to_csv(index=False).splitlines()
    ["'=a,n", "'=1+1,-1.5", 'x,2.0']
    """

    def harmless(value: object) -> object:
        return cell_text(value) if isinstance(value, str) else value

    texts = [name for name in table.columns if table[name].dtype.kind not in "biufc"]
    safe = table.assign(**{str(name): table[name].map(harmless) for name in texts})
    return safe.rename(columns=harmless, index=harmless)


def _identifier(dim: str, label: object) -> str:
    word = re.sub(r"\W+", "_", str(label)).strip("_")
    return word if word.isidentifier() else f"{dim}_{word}"


def check_same_model(studies: Mapping[str, xr.Dataset]) -> None:
    """AtlasError unless the studies are all of the same weights."""
    models = {study: Provenance.from_attrs(dataset.attrs).model for study, dataset in studies.items()}
    if len({model.get("digest") for model in models.values()}) > 1:
        named = "; ".join(f"{study} of {model.get('id')} ({model.get('digest')})" for study, model in models.items())
        raise AtlasError(
            f"The studies are not of the same weights, so their heads are not the same heads: {named}. "
            "Build each model's atlas in a folder of its own, or measure the other one again (headwise build --redo STUDY)."
        )
