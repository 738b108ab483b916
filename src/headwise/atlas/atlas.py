"""The atlas: all maps of one model. Everything that measures writes it, everything that shows reads it.

    atlas = Atlas.open("demo/atlas")
    atlas["profile"].value.sel(statistic="induction")     # an xarray.DataArray, dims (layer, head)
    atlas.heads()                                          # a pandas.DataFrame, one row per head

It is stored in a folder or an object store (``s3://BUCKET/NAME``), as a Zarr group that plain
``xarray.open_datatree(path, engine="zarr")`` opens without Headwise. Figures and descriptions are loaded on first use.

Cost: a study is read and verified on each access.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import xarray as xr

from headwise.atlas import hub
from headwise.atlas.format import ATTRS, ROOT, STUDY_NAME, check_is_atlas
from headwise.atlas.head_table import heads
from headwise.atlas.selection import select
from headwise.atlas.storage.location import Location, open_location
from headwise.atlas.store import copy_studies, open_store
from headwise.core.errors import AtlasError, HeadwiseWarning, StudyError, did_you_mean, translate_content_errors
from headwise.core.provenance import Provenance
from headwise.core.schema import annotate, check, other_version, upgrade
from headwise.studies.registry import dataset_spec, datasets, schema_of

if TYPE_CHECKING:
    from headwise.analysis.head_facts import HeadReport
    from headwise.describe import Description
    from headwise.figures import Figure


class Atlas:
    """All maps of one model. Opened by ``Atlas.open``, filled by `headwise.build`.

    Args:
        where: a folder, a URL of an object store, or a `Location`; only `open` and `create` check what is stored there.

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

    def __init__(self, where: str | os.PathLike[str] | Location) -> None:
        self.location = open_location(where)
        self.store = open_store(self.location)

    @classmethod
    def open(cls, path: str | os.PathLike[str] | Location) -> Atlas:
        """Open an existing atlas; if there is none, the error says how to build one.

        Args:
            path: a folder, a URL (``s3://BUCKET/NAME``), or ``hf://datasets/OWNER/NAME`` of the hub.

        Returns:
            The atlas; its studies are read on access.

        Examples:
            >>> same = hw.Atlas.open(atlas.path)
            >>> same.studies == atlas.studies
            True
        """
        address = None if isinstance(path, Location) else hub.HubAddress.parse(os.fspath(path))
        atlas = cls(path if address is None else hub.fetch(address))
        check_is_atlas(atlas.location, atlas.store.metadata)
        return atlas

    @classmethod
    def create(cls, path: str | os.PathLike[str] | Location) -> Atlas:
        """Open the atlas, or make a new one at an empty location.

        Args:
            path: a folder or a URL; not the hub, to which an atlas is pushed.

        Returns:
            The atlas.

        Examples:
            >>> hw.Atlas.create(folder / "mine").studies
            []
        """
        _refuse_hub(path)
        atlas = cls(path)
        atlas.store.create(ATTRS)
        return cls.open(atlas.location)

    @classmethod
    def exists(cls, path: str | os.PathLike[str] | Location) -> bool:
        """Whether there is an atlas, intact or not.

        Args:
            path: a folder, a URL or a `Location`.

        Returns:
            Whether its metadata exists.
        """
        _refuse_hub(path)
        return open_location(path).read(ROOT) is not None

    @property
    def path(self) -> Path:
        """The local folder; an atlas at a URL has only a ``location``."""
        if self.location.folder is None:
            raise AtlasError(
                f"{self.location} is not a folder of this machine, which this needs; copy it to one with headwise export "
                f"{self.location} --to ./FOLDER, and give that folder."
            )
        return self.location.folder

    @property
    def studies(self) -> list[str]:
        """The names of its studies, sorted."""
        return self.store.studies()

    @property
    def fingerprint(self) -> str:
        """A short text that changes when a study does."""
        return self.store.fingerprint()

    def __contains__(self, study: object) -> bool:
        return study in self.studies

    def __getitem__(self, study: str) -> xr.Dataset:
        """A study's Dataset in memory, verified against its checksums and its schema, with long names."""
        self._refuse_missing(study)
        dataset = self.store.read(study)
        schema = schema_of(study, dataset)
        dataset = upgrade(dataset, schema)
        check(dataset, schema)
        return annotate(dataset, schema)

    @property
    def unreadable(self) -> dict[str, str]:
        """The studies that another version of Headwise is needed for: study -> why, and what to do."""
        origins = self.provenances()
        specs = {study: spec for study in origins if (spec := dataset_spec(study)) is not None}
        reasons = {study: other_version(origins[study], spec.schema) for study, spec in specs.items()}
        return {study: reason for study, reason in reasons.items() if reason}

    def datasets(self, studies: Iterable[str] | None = None) -> dict[str, xr.Dataset]:
        """Several studies in memory; those of `unreadable` are left out, with a warning.

        Args:
            studies: their names; None: all.

        Returns:
            Study -> Dataset; AtlasError where none of the atlas's studies can be read.

        Examples:
            >>> list(atlas.datasets()) == atlas.studies
            True
        """
        unreadable = self.unreadable
        if unreadable and len(unreadable) == len(self.studies):
            raise AtlasError(" ".join(unreadable.values()))
        wanted = self.studies if studies is None else list(studies)
        for reason in (unreadable[study] for study in wanted if study in unreadable):
            warnings.warn(f"left out of {self.location}: {reason}", HeadwiseWarning, stacklevel=3)
        return {study: self[study] for study in wanted if study not in unreadable}

    def add(self, study: str, dataset: xr.Dataset) -> None:
        """Add or replace a study, atomically: a crash leaves the old study or the new one.

        Args:
            study: its name.
            dataset: its maps, with their provenance in ``attrs``; refused if they violate the study's schema.

        Examples:
            >>> copy = hw.Atlas.create(folder / "copy")
            >>> copy.add("profile", atlas["profile"])
            >>> copy.studies
            ['profile']
        """
        if not STUDY_NAME.fullmatch(study):
            raise StudyError(f"{study!r} cannot name a study; use lower-case letters, digits and _, as in 'profile'.")
        schema = schema_of(study, dataset)
        check(dataset, schema)
        self.store.write(study, annotate(dataset, schema))

    def provenance(self, study: str) -> Provenance:
        """The provenance of a study's numbers, without reading the numbers.

        Args:
            study: its name.

        Returns:
            Model, data, parameters, seed, versions, time.

        Examples:
            >>> origin = atlas.provenance("profile")
            >>> origin.model["layers"], origin.data["size"], origin.seed
            (6, 72, 0)
        """
        provenances = self.provenances()
        if study not in provenances:
            self._refuse_missing(study)
        return provenances[study]

    def provenances(self) -> dict[str, Provenance]:
        """The provenance of every study, by one read of the consolidated metadata.

        Returns:
            Study -> provenance.
        """
        studies, nodes = self.studies, self.store.nodes()
        return {study: Provenance.from_attrs(nodes.get(study, {}).get("attributes", {})) for study in studies}

    def tree(self) -> xr.DataTree:
        """All studies as one DataTree, in memory.

        Returns:
            One node per study, as ``xarray.open_datatree(path, engine="zarr")`` gives, but verified.

        Examples:
            >>> sorted(atlas.tree().children)
            ['patterns', 'profile', 'relations', 'spectral']
        """
        nodes = {f"/{name}": dataset for name, dataset in self.datasets().items()}
        return xr.DataTree.from_dict({"/": xr.Dataset(attrs=ATTRS)} | nodes)

    def heads(self) -> pd.DataFrame:
        """One row per head, all studies joined; see [heads][headwise.atlas.head_table.heads].

        Returns:
            A table whose index is the heads' names.

        Examples:
            >>> table = atlas.heads()
            >>> len(table), round(float(table.loc["L3H2", "profile.previous"]), 2)
            (36, 0.85)
        """
        with translate_content_errors(f"The atlas {self.location}"):
            return heads(self.datasets())

    def figure(self, study: str, **options: Any) -> Figure:
        """The study's map as a figure, with its description as alternative text.

        Args:
            study: its name.
            **options: of this study's figure; `headwise.studies.present.figure_types` lists them.

        Returns:
            The figure as data: `headwise.figures.save` draws it, a notebook shows it.

        Examples:
            >>> atlas.figure("profile", statistics=["sink", "induction"])
            <Figure 'Where each head attends: SmolLM2-135M-Instruct': sink, induction, legend>
        """
        dataset = self[study]
        present = import_module("headwise.studies.present")
        with translate_content_errors(f"The study {study!r} in {self.location}"):
            others = self.datasets(present.figure_reads(study, self.studies)) if options else {}
            figure: Figure = present.figure_of(study, dataset, others=others, **options)
            return figure.with_alt(present.headline(study, dataset))

    def describe(self, study: str, **options: Any) -> Description:
        """The study's map in words.

        Args:
            study: its name.
            **options: of this study's words.

        Returns:
            Sections of sentences, with the source of every number in them.

        Examples:
            >>> print(atlas.describe("profile").short().partition("; ")[2])
            the strongest previous-token head is L3H2 (0.848).
        """
        present, dataset = import_module("headwise.studies.present"), self[study]
        others = self.datasets(present.about_heads(self.studies))
        with translate_content_errors(f"The study {study!r} in {self.location}"):
            words: Description = present.describe(study, dataset, others=others, **options)
            return words

    def head(self, name: str) -> HeadReport:
        """Everything the atlas knows about one head.

        Args:
            name: such as ``"L18H6"``.

        Returns:
            A report that shows itself in a notebook; ``headwise head`` prints it.

        Examples:
            >>> atlas.head("L3H2").values["profile"][3].label
            'Previous token'
        """
        found: HeadReport = import_module("headwise.analysis").head_report(self, name)
        return found

    def select(self, condition: str) -> pd.DataFrame:
        """The rows of the head table that satisfy a condition.

        Args:
            condition: such as ``"profile.induction > 0.3 and layer > 5"``.

        Returns:
            A part of `heads`.

        Examples:
            >>> atlas.select("profile.previous > 0.8").index.tolist()
            ['L3H2']
        """
        return select(self.heads(), condition)

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Write the report: one self-contained HTML page.

        Args:
            path: the file.

        Returns:
            The file.
        """
        written: Path = import_module("headwise.web.report").write(self, Path(path))
        return written

    def copy_to(self, where: str | os.PathLike[str] | Location) -> Atlas:
        """Copy all studies to another location, such as from a folder to a bucket; every byte is verified.

        Args:
            where: a folder or a URL: a new one, or an atlas of the same model, whose studies of the same names are replaced.

        Returns:
            The copy.
        """
        copy = Atlas.create(where)
        copy_studies(self.location, copy.location)
        return copy

    def push_to_hub(
        self, repo_id: str, *, private: bool | None = None, revision: str | None = None, token: str | None = None
    ) -> str:
        """Push the atlas to a dataset repository of the Hugging Face hub, in one commit.

        Args:
            repo_id: ``OWNER/NAME``.
            private: whether a newly created repository is private.
            revision: a branch.
            token: of the hub, if ``hf auth login`` was not run.

        Returns:
            The web address of the repository.
        """
        cards = import_module("headwise.atlas.cards")
        readme = cards.hub_readme(repo_id, self.provenances(), cards.headlines(self))
        with tempfile.TemporaryDirectory() as folder:
            path = self.location.folder or self.copy_to(folder).path
            return hub.push(path, hub.HubAddress(repo_id, revision), readme, private=private, token=token)

    @property
    def place(self) -> Location:
        """Deprecated: use ``location``."""
        _warn_renamed("place", "location")
        return self.location

    @property
    def state(self) -> str:
        """Deprecated: use ``fingerprint``."""
        _warn_renamed("state", "fingerprint")
        return self.fingerprint

    def origins(self) -> dict[str, Provenance]:
        """Deprecated: use ``provenances``."""
        _warn_renamed("origins", "provenances")
        return self.provenances()

    def __repr__(self) -> str:
        rows = [
            f"  {name}: {one.model.get('id')} on {one.data.get('name')} ({one.data.get('size')})"
            for name, one in self.provenances().items()
        ]
        return "\n".join([f"Atlas {self.location}", *rows]) if rows else f"Atlas {self.location} (empty)"

    def _repr_html_(self) -> str:
        return str(import_module("headwise.atlas.cards").atlas_html(self))

    def _refuse_missing(self, study: str) -> None:
        studies = self.studies
        if study in studies:
            return
        if dataset_spec(study) is not None:
            raise StudyError(
                f"The study {study!r} is not in the atlas {self.location}; "
                f"add it with headwise build --studies {study} -o {self.location}."
            )
        raise StudyError(f"There is no study {study!r}. {did_you_mean(study, {*studies, *datasets()})}")


def _refuse_hub(path: str | os.PathLike[str] | Location) -> None:
    """An atlas is not written on the hub itself."""
    if not isinstance(path, Location) and hub.HubAddress.parse(os.fspath(path)) is not None:
        raise AtlasError(f"An atlas is made in a folder, not at {path}; make it there, then push it to the hub.")


def _warn_renamed(old: str, new: str) -> None:
    warnings.warn(f"Atlas.{old} is now Atlas.{new}", DeprecationWarning, stacklevel=3)
