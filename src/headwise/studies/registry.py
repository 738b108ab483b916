"""Which studies are there? The built-in ones, and those of installed packages (entry-point group ``headwise.studies``).

    [project.entry-points."headwise.studies"]
    recency = "headwise_recency.spec:SPEC"

Only ``spec`` modules are imported, so the registry costs milliseconds and needs neither torch nor matplotlib. The order of
the built-in studies is the order in which a build measures them and a report shows them; plug-ins follow.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import cache
from importlib import import_module, metadata
from typing import TYPE_CHECKING

from headwise.core.errors import StudyError, did_you_mean
from headwise.core.provenance import Provenance
from headwise.core.schema import Schema
from headwise.studies.spec import DatasetSpec, StudySpec

if TYPE_CHECKING:
    import xarray as xr

ENTRY_POINTS = "headwise.studies"
BUILT_IN = (
    "profile",
    "patterns",
    "causal",
    "circuits",
    "sparsity",
    "answers",
    "spectral",
    "streaming",
    "probing",
    "causal_answers",
    "samples",
    "uncertainty",
    "transfer",
    "relations",
    "relation_validation",
    "functions",
    "function_masking",
)
_log = logging.getLogger(__name__)


@cache
def studies() -> dict[str, StudySpec]:
    """All studies by name, in the order in which they are measured."""
    found: dict[str, StudySpec] = {name: import_module(f"headwise.studies.{name}.spec").SPEC for name in BUILT_IN}
    taken = {one.name for spec in found.values() for one in spec.produces}
    for entry in metadata.entry_points(group=ENTRY_POINTS):
        try:
            spec = entry.load()
        except Exception as cause:  # a broken plug-in must not take the other studies with it
            _log.warning("The plug-in study %s (%s) could not be loaded: %s", entry.name, entry.value, cause)
            continue
        if not isinstance(spec, StudySpec):
            _log.warning("The plug-in study %s (%s) is not a StudySpec and is ignored.", entry.name, entry.value)
        elif clash := taken & {one.name for one in spec.produces}:
            _log.warning("The plug-in study %s is ignored: the name %s is taken.", entry.name, min(clash))
        else:
            found[spec.name] = spec
            taken |= {one.name for one in spec.produces}
    return found


def register(spec: StudySpec) -> None:
    """Add a study for this process, such as one that is being written in a notebook; packages use an entry point."""
    clash = {one.name for one in spec.produces} & set(datasets()) if spec.name not in studies() else set()
    if clash:
        raise StudyError(f"The name {min(clash)!r} is taken by another study; choose another.")
    studies()[spec.name] = spec


def datasets() -> dict[str, DatasetSpec]:
    """All Datasets that studies produce, by name: the study's own first, then what else it produces."""
    ordered = (
        one for spec in studies().values() for one in (spec.dataset, *(o for o in spec.produces if o.name != spec.name))
    )
    return {one.name: one for one in ordered}


def dataset_spec(name: str) -> DatasetSpec | None:
    """The spec of a Dataset; None where no installed study produces it."""
    return datasets().get(name)


def schema_of(name: str, dataset: xr.Dataset) -> Schema:
    """The schema for a Dataset; where no installed study produces it, one that requires nothing."""
    spec = dataset_spec(name)
    return spec.schema if spec is not None else Schema(name, Provenance.from_attrs(dataset.attrs).study_version)


def default_studies(*, quick: bool = False) -> list[str]:
    """The studies that are built when none is named; ``quick``: by a quick build."""
    return [name for name, spec in studies().items() if not spec.opt_in and (spec.quick or not quick)]


def producers(names: Iterable[str]) -> list[str]:
    """The studies that produce these Datasets, without repetition.

    >>> producers(["detection", "salience", "spectral"])
    ['spectral', 'relations']
    """
    names = list(names)
    owner = {one.name: spec.name for spec in studies().values() for one in spec.produces}
    unknown = next((name for name in names if name not in owner), None)
    if unknown is not None:
        raise StudyError(f"There is no study {unknown!r}. {did_you_mean(unknown, owner)}")
    return list(dict.fromkeys(owner[name] for name in names))


def with_dependencies(names: Iterable[str]) -> list[str]:
    """The studies, each after those it depends on.

    >>> with_dependencies(["samples"])
    ['answers', 'probing', 'samples']
    """
    ordered: dict[str, None] = {}

    def visit(name: str) -> None:
        for needed in studies()[name].depends_on:
            visit(needed)
        ordered.setdefault(name)

    for name in producers(names):
        visit(name)
    return list(ordered)
