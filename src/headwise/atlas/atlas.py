"""The atlas: one folder, one model, all maps. What everything that measures fills, and everything that shows reads.

    atlas = Atlas.open("demo/atlas")
    atlas["profile"].value.sel(statistic="induction")     # an xarray.DataArray, dims (layer, head)
    atlas.heads()                                          # a pandas.DataFrame, one row a head

The folder is a Zarr group; ``xarray.open_datatree(path, engine="zarr")`` opens it without Headwise.

Cost: a study is read from disk each time it is asked for, and checked. This module does not know how any study is
measured, and needs neither torch nor transformers.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pandas as pd
import xarray as xr

from headwise.atlas import hub, record, store, swap
from headwise.atlas.disk import explained
from headwise.atlas.display import atlas_html, headlines
from headwise.atlas.hub_card import hub_card
from headwise.atlas.long_names import with_long_names
from headwise.atlas.provenance import Provenance
from headwise.atlas.schema import check
from headwise.atlas.schemas import SCHEMAS, schema_of
from headwise.describe import Words, describe
from headwise.errors import AtlasError, StudyError, did_you_mean
from headwise.figures import Figure, figure_of

__all__ = ["Atlas"]

FORMAT = "headwise-atlas"
FORMAT_VERSION = 1
_ATTRS = {"format": FORMAT, "format_version": FORMAT_VERSION}
_OURS = {".swap", ".shards"}
_STUDY_NAME = re.compile(r"[a-z][a-z0-9_]*")


class Atlas:
    """An atlas on disk. Made by ``Atlas.open`` or ``Atlas.create``."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Atlas:
        """An atlas that is there, or ``hf://datasets/OWNER/NAME`` of the hub; says how to build one where it is not."""
        address = hub.Address.parse(os.fspath(path))
        folder = Path(path) if address is None else hub.fetch(address)
        if not folder.exists():
            raise AtlasError(f"There is no atlas at {folder}; make one with headwise build -o {folder}.")
        _refuse_other(folder)
        swap.recover(folder)
        return cls(folder)

    @classmethod
    def create(cls, path: str | os.PathLike[str]) -> Atlas:
        """The atlas that is there, or a new, empty one in a folder that holds nothing else."""
        folder = Path(path)
        if hub.Address.parse(os.fspath(path)) is not None:
            raise AtlasError(f"An atlas is made in a folder, not at {path}; make it there, then push it to the hub.")
        with explained(folder):
            folder.mkdir(parents=True, exist_ok=True)
            if (folder / swap.ROOT).exists():
                return cls.open(folder)
            others = sorted({entry.name for entry in os.scandir(folder)} - _OURS)
            if others:
                raise AtlasError(
                    f"{folder} is not empty (it holds {', '.join(others[:3])}) and is not an atlas; "
                    "choose a new or empty folder with -o."
                )
            swap.create(folder, _ATTRS)
        return cls(folder)

    @property
    def studies(self) -> list[str]:
        """The names of the studies that are there."""
        with swap.settled(self.path):
            return swap.studies(self.path)

    def __contains__(self, study: object) -> bool:
        return study in self.studies

    def __getitem__(self, study: str) -> xr.Dataset:
        """A study's Dataset in memory, verified against its checksums and its schema; its variables say what they are."""
        self._refuse_missing(study)
        dataset = store.read_study(self.path, study)
        check(dataset, schema_of(study, dataset))
        return with_long_names(study, dataset)

    def add(self, study: str, dataset: xr.Dataset) -> None:
        """Put a study in, in the place of the one that is there, if any. Whole or not at all, whatever happens."""
        if not _STUDY_NAME.fullmatch(study):
            raise StudyError(f"{study!r} cannot name a study; use small letters, digits and _, as in 'profile'.")
        check(dataset, schema_of(study, dataset))
        store.write_study(self.path, study, with_long_names(study, dataset))

    def provenance(self, study: str) -> Provenance:
        """Where a study's numbers come from, without reading the numbers."""
        self._refuse_missing(study)
        with swap.settled(self.path):
            return Provenance.from_attrs(swap.listing(self.path).get(study, {}).get("attributes", {}))

    def origins(self) -> dict[str, Provenance]:
        """The provenance of every study, by one look at the atlas's list."""
        with swap.settled(self.path):
            nodes, there = swap.listing(self.path), swap.studies(self.path)
        return {study: Provenance.from_attrs(nodes.get(study, {}).get("attributes", {})) for study in there}

    def tree(self) -> xr.DataTree:
        """All studies as one DataTree, in memory."""
        return xr.DataTree.from_dict(
            {"/": xr.Dataset(attrs=_ATTRS)} | {f"/{name}": self[name] for name in self.studies}
        )

    def heads(self) -> pd.DataFrame:
        """One row a head, all studies joined; see ``record``."""
        return record.heads({name: self[name] for name in self.studies})

    def figure(self, study: str, **options: Any) -> Figure:
        """The study's map as a figure, with what it shows in words as its alternative text."""
        dataset = self[study]
        return figure_of(study, dataset, **options).with_alt(describe(study, dataset).short())

    def describe(self, study: str, **options: Any) -> Words:
        """The study's map in words."""
        return describe(study, self[study], **options)

    def push_to_hub(
        self, repo_id: str, *, private: bool | None = None, revision: str | None = None, token: str | None = None
    ) -> str:
        """Put the atlas into a dataset repository of the Hugging Face hub, by one commit; its web address.

        ``private`` is for a repository that is not there yet, ``revision`` a branch, ``token`` where `hf auth login` was not.
        """
        card = hub_card(repo_id, self.origins(), headlines(self))
        return hub.push(self.path, hub.Address(repo_id, revision), card, private=private, token=token)

    def __repr__(self) -> str:
        lines = [f"Atlas {self.path}"] + [f"  {name}: {text}" for name, text in self._summaries()]
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
                f"The study {study!r} is not in the atlas {self.path}; "
                f"add it with headwise build --studies {study} -o {self.path}."
            )
        raise StudyError(f"There is no study {study!r}. {did_you_mean(study, {*there, *SCHEMAS})}")


def _refuse_other(folder: Path) -> None:
    """AtlasError where the folder is not an atlas, or one of a later Headwise."""
    try:
        attrs = swap.root_attrs(folder)
    except (OSError, ValueError):
        attrs = {}
    if attrs.get("format") != FORMAT:
        raise AtlasError(
            f"{folder} is not an atlas (no {swap.ROOT} of the format {FORMAT!r} in it); give the folder that "
            "headwise build wrote, or build one with headwise build -o FOLDER."
        )
    version = attrs.get("format_version")
    if version != FORMAT_VERSION:
        raise AtlasError(
            f"The atlas {folder} has format version {version}, and this Headwise reads version {FORMAT_VERSION}; "
            "use a newer Headwise (pip install -U headwise)."
        )
