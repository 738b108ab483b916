"""A study prepared on a model: what is measured, in which pieces, and how the pieces become Datasets.

``prepare(model, inputs, options)`` of a study's ``measure.py`` makes a `StudyRun` from a model and what it is shown; engines
run it (in this process or on a cluster) and need to know no more than this file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import xarray as xr

from headwise.core.provenance import Provenance
from headwise.engines import Shard
from headwise.studies.spec import StudySpec

if TYPE_CHECKING:
    from headwise.studies.passes import PassReader

WriteArtifacts = Callable[[Path, Mapping[str, xr.Dataset], Sequence[xr.Dataset]], None]  # folder, Datasets, shards


@dataclass(frozen=True)
class StudyRun:
    """What it takes to run a study.

    Examples:
        >>> from headwise.corpora import Passage, Passages
        >>> from headwise.engines import Shard
        >>> from headwise.studies import ProfileOptions
        >>> from headwise.studies.inputs import StudyInputs
        >>> from headwise.studies.profile.measure import prepare
        >>> words = "the old river was the old river and the old house"
        >>> texts = Passages("mine", (Passage("a", words), Passage("b", words.replace("old", "low"))))
        >>> run = prepare(model, StudyInputs(texts), ProfileOptions(repeats=2, period=16))
        >>> run.examples  # two texts, and two sequences of repeated random tokens
        4
        >>> maps = run.finalize([run.measure(Shard(0, 0, run.examples))])
        >>> dict(maps["profile"].value.sizes)
        {'statistic': 11, 'layer': 3, 'head': 6}
    """

    provenance: Provenance  # determines the numbers: two runs with the same identity give the same result
    examples: int  # how many there are
    shard_size: int  # examples per commit
    measure: Callable[[Shard], xr.Dataset]  # readings of the examples [start, stop)
    finalize: Callable[[Sequence[xr.Dataset]], Mapping[str, xr.Dataset]]  # all shards, in order, to Datasets by name
    write_artifacts: WriteArtifacts | None = None  # writes files next to the maps, such as a fitted detector
    reader: PassReader | None = None  # reads texts that other studies may read in the same forward pass
    known: xr.Dataset | None = None  # what is known of its Dataset before any pass; other studies are prepared from it
    parts: Mapping[str, StudyRun] = field(default_factory=dict)  # the runs that this one joins (`passes.join_runs`)


def study_provenance(
    spec: StudySpec, model: Any, data: Mapping[str, Any], options: Any, **parameters: Any
) -> Provenance:
    """The origin of a study's numbers: the options but for the seed, and what else in ``parameters`` determines them."""
    given = {key: value for key, value in asdict(options).items() if key != "seed"}
    return Provenance(spec.name, spec.version, model.identity(), dict(data), given | parameters, options.seed)
