"""The atlas over training: one ordinary atlas per checkpoint of a training run, joined along the dim ``step``.

    training = TrainingAtlas.open("training-atlas")              # hw.build(..., checkpoints=...) made it
    training["profile"].value.sel(statistic="induction")         # dims (step, layer, head)
    training.at(128)                                             # the atlas of one checkpoint
    training.losses["eval_loss"]                                 # what the trainer recorded, dims (step)

In the folder (or at the URL) each checkpoint has an atlas of its own, ``step-128``, which every other command reads, and
``checkpoints.json`` lists the checkpoints whose atlas is complete. Studies are joined when they are asked for. They are
joined only if they were measured alike: same version, data, options, seed, tokenizer and dtype; only the weights may differ.

Cost: a study of every checkpoint in memory.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pandas as pd
import xarray as xr

from headwise.atlas.atlas import Atlas
from headwise.atlas.format import MANIFEST
from headwise.atlas.storage.location import Location, open_location
from headwise.core.dims import STEP
from headwise.core.errors import AtlasError, StudyError, did_you_mean
from headwise.core.parsing import Count, parse
from headwise.core.provenance import Provenance, difference
from headwise.studies.registry import dataset_spec

if TYPE_CHECKING:
    from headwise.describe import Description
    from headwise.figures import Figure

__all__ = ["MeasuredCheckpoint", "TrainingAtlas", "add_to_manifest", "atlas_location"]

MIN_CHECKPOINTS = 2
OF_A_CHECKPOINT = ("model: digest", "model: id", "model: revision", "environment:")  # may differ between steps


class MeasuredCheckpoint(msgspec.Struct, frozen=True):
    """A checkpoint whose atlas is complete, as `MANIFEST` lists it."""

    step: Count
    model: str  # as it was loaded: a folder, or a hub id
    revision: str | None = None  # of the hub
    losses: dict[str, float] = {}  # what the trainer recorded at this step, such as eval_loss


class TrainingAtlas:
    """The atlases of a run's checkpoints, by step. Opened by ``TrainingAtlas.open``, made by `headwise.build`.

    Args:
        atlases: step -> atlas, or where it is; for atlases that were built one by one, as inside a training loop.
        checkpoints: what is known of the checkpoints, their losses among it.

    Examples:
        Two atlases that were built separately; here the same one twice.

        >>> training = hw.TrainingAtlas({0: atlas, 128: atlas})
        >>> training.steps, training.studies
        ([0, 128], ['patterns', 'profile', 'relations', 'spectral'])
        >>> dict(training["profile"].value.sizes)
        {'step': 2, 'statistic': 11, 'layer': 6, 'head': 6}
    """

    def __init__(
        self,
        atlases: Mapping[int, Atlas | str | os.PathLike[str]],
        checkpoints: Mapping[int, MeasuredCheckpoint] | None = None,
    ) -> None:
        if len(atlases) < MIN_CHECKPOINTS:
            raise AtlasError(
                f"An atlas over training needs at least two checkpoints and has {len(atlases)}; build more of them, or open "
                "the one with headwise.Atlas.open."
            )
        opened = {step: one if isinstance(one, Atlas) else Atlas.open(one) for step, one in atlases.items()}
        self._atlases = dict(sorted(opened.items()))
        self._checkpoints = dict(checkpoints or {})
        self.location: Location | None = None
        """where it is; None where it was put together from atlases"""

    @classmethod
    def open(cls, where: str | os.PathLike[str] | Location) -> TrainingAtlas:
        """Open the atlas over training that `headwise.build` wrote.

        Args:
            where: its folder or URL.

        Returns:
            The atlas over training; no study is read yet.
        """
        location = open_location(where)
        known = read_manifest(location)
        if known is None:
            raise AtlasError(
                f"{location} is not an atlas over training (there is no {MANIFEST} in it); build one with headwise build "
                f"RUN --checkpoints 'step-*' -o {location}, or read an ordinary atlas with headwise describe {location} STUDY."
            )
        found = cls({step: Atlas.open(atlas_location(location, step)) for step in known}, known)
        found.location = location
        return found

    @property
    def name(self) -> str:
        """A name for readers: that of the folder, or of the first model."""
        if self.location is not None:
            return self.location.name
        return self._atlases[self.steps[0]].location.name

    @property
    def steps(self) -> list[int]:
        """The steps of the checkpoints, ascending."""
        return list(self._atlases)

    @property
    def studies(self) -> list[str]:
        """The studies that every checkpoint has."""
        first, *others = (set(atlas.studies) for atlas in self._atlases.values())
        return sorted(first.intersection(*others))

    @property
    def losses(self) -> xr.Dataset:
        """The losses that the trainer recorded with the checkpoints, one variable each; none where it recorded none."""
        names = dict.fromkeys(name for one in self._checkpoints.values() for name in one.losses)
        steps = self.steps
        values = {
            name: (STEP, [self._checkpoints[s].losses.get(name, np.nan) if s in self._checkpoints else np.nan for s in steps])
            for name in names
        }  # fmt: skip
        return xr.Dataset(values, {STEP: steps})

    def at(self, step: int) -> Atlas:
        """The atlas of one checkpoint.

        Args:
            step: one of ``steps``.

        Returns:
            An ordinary atlas, for figures, words and heads at that step.

        Examples:
            >>> hw.TrainingAtlas({0: atlas, 128: atlas}).at(128).studies[0]
            'patterns'
        """
        if step not in self._atlases:
            raise AtlasError(
                f"There is no checkpoint of step {step}; there are {', '.join(map(str, self.steps))}. Choose one of these."
            )
        return self._atlases[step]

    def __contains__(self, study: object) -> bool:
        return study in self.studies

    def __getitem__(self, study: str) -> xr.Dataset:
        """A study of all checkpoints, joined along ``step``; refused unless it was measured alike at all of them."""
        datasets = [dataset for _, dataset in self.each(study)]
        try:
            return xr.concat(
                datasets,
                dim=pd.Index(self.steps, name=STEP),
                data_vars="all",
                coords="different",
                compat="equals",
                join="outer",
                combine_attrs="drop_conflicts",
            )
        except ValueError as error:
            raise AtlasError(
                f"The study {study!r} has another shape at some checkpoints, so it cannot be joined; read it step by step, "
                f"with at(step)[{study!r}]."
            ) from error

    def each(self, study: str) -> Iterator[tuple[int, xr.Dataset]]:
        """A study checkpoint by checkpoint, with one of them in memory at a time; refused as above.

        Args:
            study: its name.

        Yields:
            Step and Dataset.
        """
        self._refuse_missing(study)
        self._refuse_unlike(study)
        for step, atlas in self._atlases.items():
            yield step, atlas[study]

    def provenances(self, study: str) -> dict[int, Provenance]:
        """The provenance of a study at every checkpoint.

        Args:
            study: its name.

        Returns:
            Step -> provenance.
        """
        return {step: atlas.provenance(study) for step, atlas in self._atlases.items()}

    def heads(self) -> pd.DataFrame:
        """One row per checkpoint and head: the head tables of all checkpoints, below each other.

        Returns:
            The columns step, layer and head, then those of the studies; the index is the heads' names.

        Examples:
            >>> table = hw.TrainingAtlas({0: atlas, 128: atlas}).heads()
            >>> len(table), list(table.columns[:4])
            (72, ['step', 'layer', 'head', 'patterns.model.diagonal'])
        """
        tables = []
        for step, atlas in self._atlases.items():
            table = atlas.heads()
            table.insert(0, STEP, step)
            tables.append(table)
        return pd.concat(tables)

    def figure(self, **options: Any) -> Figure:
        """Layer x head maps at some steps, and curves over all of them; see `headwise.analysis.emergence_figure`.

        Args:
            **options: ``columns`` and ``steps``.

        Returns:
            The figure as data.
        """
        analysis = import_module("headwise.analysis")
        found = analysis.emergence(self, columns=options.pop("columns", None))
        drawn: Figure = analysis.emergence_figure(found, **options)
        return drawn

    def describe(self, **options: Any) -> Description:
        """When which heads emerged, in words; see `headwise.analysis.describe_emergence`.

        Args:
            **options: ``columns``.

        Returns:
            Sections of sentences.
        """
        analysis = import_module("headwise.analysis")
        words: Description = analysis.describe_emergence(analysis.emergence(self, **options))
        return words

    def __iter__(self) -> Iterator[int]:
        return iter(self._atlases)

    def __len__(self) -> int:
        return len(self._atlases)

    def __repr__(self) -> str:
        where = self.location or f"put together from {len(self)} atlases"
        return (
            f"TrainingAtlas {where}: {len(self)} steps, {self.steps[0]} to {self.steps[-1]}; {', '.join(self.studies)}"
        )

    def _refuse_missing(self, study: str) -> None:
        without = [step for step, atlas in self._atlases.items() if study not in atlas]
        if len(without) == len(self):
            known = {name for atlas in self._atlases.values() for name in atlas.studies}
            raise StudyError(f"No checkpoint has the study {study!r}. {did_you_mean(study, known)}")
        if without:
            raise AtlasError(
                f"The study {study!r} was not measured at {_steps(without)}; run the build of all checkpoints again, which "
                "measures only what is missing."
            )

    def _refuse_unlike(self, study: str) -> None:
        """Only the weights may differ between steps; of studies of a model's own answers also what it answered."""
        (first, origin), *others = self.provenances(study).items()
        spec = dataset_spec(study)
        own_answers = spec is not None and bool(spec.on_own_answers or spec.made_from)
        for step, other in others:
            unlike = [text for text in difference(origin, other) if not text.startswith(OF_A_CHECKPOINT)]
            if own_answers:
                unlike = [text for text in unlike if not text.startswith("data:")]
            if unlike:
                raise AtlasError(
                    f"The study {study!r} was measured otherwise at step {step} than at step {first} ({'; '.join(unlike)}), so "
                    f"a difference may not be due to training; measure it alike, with --redo {study}."
                )


def _steps(steps: list[int]) -> str:
    return f"step {steps[0]}" if len(steps) == 1 else f"steps {', '.join(map(str, steps))}"


def atlas_location(location: Location, step: int) -> Location:
    """Where the atlas of one checkpoint is."""
    if location.folder is not None:
        return open_location(location.folder / f"step-{step}")
    return open_location(f"{location.address.rstrip('/')}/step-{step}")


def read_manifest(location: Location) -> dict[int, MeasuredCheckpoint] | None:
    """The checkpoints that are complete, by step; None where there is no atlas over training."""
    raw = location.read(MANIFEST)
    if raw is None:
        return None
    try:
        found = parse(raw, list[MeasuredCheckpoint])
    except ValueError as error:
        raise AtlasError(
            f"{MANIFEST} of {location} is damaged ({error}); delete it and run the same headwise build again, which "
            "restores it without measuring anything again."
        ) from error
    return {one.step: one for one in sorted(found, key=lambda one: one.step)}


def add_to_manifest(location: Location, checkpoint: MeasuredCheckpoint) -> None:
    """List a checkpoint as complete."""
    known = (read_manifest(location) or {}) | {checkpoint.step: checkpoint}
    rows = [msgspec.to_builtins(known[step]) for step in sorted(known)]
    location.write(MANIFEST, json.dumps(rows, indent=1, ensure_ascii=False).encode())
