"""The atlas: one place, one model, all maps. What everything that measures fills, and everything that shows reads.

    atlas = Atlas.open("demo/atlas")
    atlas["profile"].value.sel(statistic="induction")     # an xarray.DataArray, dims (layer, head)
    atlas.heads()                                          # a pandas.DataFrame, one row a head

A place is a folder, or a URL of an object store (``s3://BUCKET/NAME``); what lies there is a Zarr group, which plain
``xarray.open_datatree(path, engine="zarr")`` opens without Headwise.

Cost: a study is read each time it is asked for, and checked. This module does not know how any study is
measured, and needs neither torch nor transformers.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd
import xarray as xr

from headwise.atlas import hub, record, store
from headwise.atlas.copying import copy_studies
from headwise.atlas.display import atlas_html, headlines
from headwise.atlas.hub_card import hub_card
from headwise.atlas.long_names import with_long_names
from headwise.atlas.places import Place, place_of
from headwise.atlas.recognition import ATTRS, refuse_other
from headwise.atlas.root import ROOT
from headwise.atlas.schema import check
from headwise.atlas.schemas import SCHEMAS, schema_of
from headwise.core.errors import AtlasError, StudyError, did_you_mean
from headwise.core.provenance import Provenance
from headwise.describe import Words, describe
from headwise.figures import Figure, figure_of

__all__ = ["Atlas"]

_STUDY_NAME = re.compile(r"[a-z][a-z0-9_]*")


class Atlas:
    """All maps of one model. Opened by ``Atlas.open``, filled by `headwise.build`.

    Args:
        where: a folder, a URL of an object store, or a `Place`; `open` and `create` also look at what is there.

    Examples:
        >>> atlas.studies
        ['patterns', 'profile', 'relations', 'spectral']
        >>> dict(atlas["profile"].value.sizes)
        {'statistic': 11, 'layer': 6, 'head': 6}
        >>> round(float(atlas["profile"].value.sel(statistic="previous", layer=3, head=2)), 2)
        0.85
        >>> "spectral" in atlas, "probing" in atlas
        (True, False)
    """

    def __init__(self, where: str | os.PathLike[str] | Place) -> None:
        self.place = place_of(where)
        self.store = store.store_of(self.place)

    @classmethod
    def open(cls, path: str | os.PathLike[str] | Place) -> Atlas:
        """An atlas that is there: a folder, a URL (``s3://BUCKET/NAME``), or ``hf://datasets/OWNER/NAME`` of the hub.

        Where there is none, the error says how to build one.

        Args:
            path: where it is.

        Returns:
            The atlas; its studies are read when they are asked for.

        Examples:
            >>> same = hw.Atlas.open(atlas.path)
            >>> same.studies == atlas.studies
            True
        """
        address = None if isinstance(path, Place) else hub.Address.parse(os.fspath(path))
        atlas = cls(path if address is None else hub.fetch(address))
        refuse_other(atlas.place, atlas.store)
        atlas.store.recover()
        return atlas

    @classmethod
    def create(cls, path: str | os.PathLike[str] | Place) -> Atlas:
        """The atlas that is there, or a new, empty one at a place that holds nothing else.

        Args:
            path: a folder or a URL; not the hub, to which a finished atlas is pushed.

        Returns:
            The atlas.

        Examples:
            >>> hw.Atlas.create(folder / "mine").studies
            []
        """
        _refuse_hub(path)
        atlas = cls(path)
        atlas.store.create(ATTRS)
        return cls.open(atlas.place)

    @classmethod
    def exists(cls, path: str | os.PathLike[str] | Place) -> bool:
        """Whether there is a list of an atlas at this place, be it whole or broken.

        Args:
            path: a folder, a URL or a `Place`.

        Returns:
            Whether there is.
        """
        _refuse_hub(path)
        return place_of(path).read(ROOT) is not None

    @property
    def path(self) -> Path:
        """The folder it lies in; an atlas at a URL has none, but a ``place``."""
        if self.place.folder is None:
            raise AtlasError(
                f"{self.place} is not a folder of this machine, which this needs; copy it to one (all keys but .swap and "
                ".shards) and give that."
            )
        return self.place.folder

    @property
    def studies(self) -> list[str]:
        """The names of the studies that are there."""
        return self.store.studies()

    @property
    def state(self) -> str:
        """Something short that changes when a study does."""
        return self.store.state()

    def __contains__(self, study: object) -> bool:
        return study in self.studies

    def __getitem__(self, study: str) -> xr.Dataset:
        """A study's Dataset in memory, verified against its checksums and its schema; its variables say what they are."""
        self._refuse_missing(study)
        dataset = self.store.read(study)
        check(dataset, schema_of(study, dataset))
        return with_long_names(study, dataset)

    def add(self, study: str, dataset: xr.Dataset) -> None:
        """Put a study in, in the place of the one that is there, if any. Whole or not at all, whatever happens.

        Args:
            study: its name.
            dataset: its maps, with their provenance in ``attrs``; refused where they are not as the study's schema says.

        Examples:
            >>> copy = hw.Atlas.create(folder / "copy")
            >>> copy.add("profile", atlas["profile"])
            >>> copy.studies
            ['profile']
        """
        if not _STUDY_NAME.fullmatch(study):
            raise StudyError(f"{study!r} cannot name a study; use small letters, digits and _, as in 'profile'.")
        check(dataset, schema_of(study, dataset))
        self.store.write(study, with_long_names(study, dataset))

    def provenance(self, study: str) -> Provenance:
        """Where a study's numbers come from, without reading the numbers.

        Args:
            study: its name.

        Returns:
            Model, data, parameters, seed, versions, hour.

        Examples:
            >>> origin = atlas.provenance("profile")
            >>> origin.model["layers"], origin.data["size"], origin.seed
            (6, 72, 0)
        """
        origins = self.origins()
        if study not in origins:
            self._refuse_missing(study)
        return origins[study]

    def origins(self) -> dict[str, Provenance]:
        """The provenance of every study, by one look at the atlas's list.

        Returns:
            Study -> provenance.
        """
        there, nodes = self.studies, self.store.listing()
        return {study: Provenance.from_attrs(nodes.get(study, {}).get("attributes", {})) for study in there}

    def tree(self) -> xr.DataTree:
        """All studies as one DataTree, in memory.

        Returns:
            A node a study; what ``xarray.open_datatree(path, engine="zarr")`` gives, verified.

        Examples:
            >>> sorted(atlas.tree().children)
            ['patterns', 'profile', 'relations', 'spectral']
        """
        return xr.DataTree.from_dict({"/": xr.Dataset(attrs=ATTRS)} | {f"/{name}": self[name] for name in self.studies})

    def heads(self) -> pd.DataFrame:
        """One row a head, all studies joined; see [heads][headwise.atlas.record.heads].

        Returns:
            A table whose index is the heads' names.

        Examples:
            >>> table = atlas.heads()
            >>> len(table), round(float(table.loc["L3H2", "profile.previous"]), 2)
            (36, 0.85)
        """
        return record.heads({name: self[name] for name in self.studies})

    def figure(self, study: str, **options: Any) -> Figure:
        """The study's map as a figure, with what it shows in words as its alternative text.

        Args:
            study: its name.
            **options: of this study's figure; `headwise.figures.options_of` lists them.

        Returns:
            Numbers, not ink: `headwise.figures.save` draws it, a notebook shows it.

        Examples:
            >>> atlas.figure("profile", statistics=["sink", "induction"])
            <Figure 'Where each head looks: SmolLM2-135M-Instruct': sink, induction, legend>
        """
        dataset = self[study]
        return figure_of(study, dataset, **options).with_alt(describe(study, dataset).short())

    def describe(self, study: str, **options: Any) -> Words:
        """The study's map in words.

        Args:
            study: its name.
            **options: of this study's words.

        Returns:
            Sections of sentences, with the origin of every number in them.

        Examples:
            >>> print(atlas.describe("profile").short().partition("; ")[2])
            the strongest previous-token head is L3H2 (0.848).
        """
        return describe(study, self[study], **options)

    def copy_to(self, where: str | os.PathLike[str] | Place) -> Atlas:
        """Copy all studies to another place, such as from a folder to a bucket or back; every byte is verified.

        Args:
            where: a folder or a URL: a new one, or an atlas of the same model, whose studies of the same names are replaced.

        Returns:
            The atlas there.
        """
        there = Atlas.create(where)
        copy_studies((self.place, self.store), (there.place, there.store))
        return there

    def push_to_hub(
        self, repo_id: str, *, private: bool | None = None, revision: str | None = None, token: str | None = None
    ) -> str:
        """Put the atlas into a dataset repository of the Hugging Face hub, by one commit; its web address.

        Args:
            repo_id: ``OWNER/NAME``.
            private: whether a repository that is not there yet is made private.
            revision: a branch.
            token: of the hub, where ``hf auth login`` was not run.

        Returns:
            The address at which ``Atlas.open`` and others find it.
        """
        card = hub_card(repo_id, self.origins(), headlines(self))
        with tempfile.TemporaryDirectory() as folder:
            path = self.place.folder or self.copy_to(folder).path
            return hub.push(path, hub.Address(repo_id, revision), card, private=private, token=token)

    def __repr__(self) -> str:
        lines = [f"Atlas {self.place}"] + [f"  {name}: {text}" for name, text in self._summaries()]
        return "\n".join(lines) if len(lines) > 1 else f"{lines[0]} (empty)"

    def _repr_html_(self) -> str:
        return atlas_html(self)

    def _summaries(self) -> list[tuple[str, str]]:
        origins = self.origins().items()
        return [(name, f"{p.model.get('id')} on {p.data.get('name')} ({p.data.get('size')})") for name, p in origins]

    def _refuse_missing(self, study: str) -> None:
        there = self.studies
        if study in there:
            return
        if study in SCHEMAS:
            raise StudyError(
                f"The study {study!r} is not in the atlas {self.place}; "
                f"add it with headwise build --studies {study} -o {self.place}."
            )
        raise StudyError(f"There is no study {study!r}. {did_you_mean(study, {*there, *SCHEMAS})}")


def _refuse_hub(path: str | os.PathLike[str] | Place) -> None:
    """An atlas is not written on the hub itself."""
    if not isinstance(path, Place) and hub.Address.parse(os.fspath(path)) is not None:
        raise AtlasError(f"An atlas is made in a folder, not at {path}; make it there, then push it to the hub.")
