"""What is the model shown? The user's own texts, questions, relations and steps, or the packaged ones, read on demand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import xarray as xr

from headwise.corpora import (
    Passages,
    Questions,
    Relations,
    Steps,
    find_questions,
    packaged_passages,
    packaged_relations,
    packaged_steps,
    read_passages,
    read_relations,
    read_steps,
)
from headwise.model import Model

__all__ = ["StudyInputs"]


@dataclass(frozen=True)
class StudyInputs:
    """The inputs of a build. A source is a collection, a file, a known name, or None for the packaged collection."""

    passages_source: str | Path | Passages | None = None
    questions_source: str | Path | Questions | None = None
    limit: int | None = None  # questions, sampled evenly over topics; None: all
    relations_source: str | Path | Relations | None = None  # pairs of words
    steps_source: str | Path | Steps | None = None  # questions in steps, each labelled with a cognitive function
    reference: str | Path | Model | None = (
        None  # the model to compare with; None: the adapter shipped for this one, if any
    )
    maps: Mapping[str, xr.Dataset] = field(default_factory=dict)  # Datasets of the studies that this one depends on

    @cached_property
    def passages(self) -> Passages:
        """The texts."""
        if isinstance(self.passages_source, Passages):
            return self.passages_source
        return packaged_passages() if self.passages_source is None else read_passages(self.passages_source)

    @cached_property
    def questions(self) -> Questions:
        """The questions, at most ``limit``."""
        found = find_questions(self.questions_source)
        return found if self.limit is None else found.sample(self.limit, seed=0)

    @cached_property
    def relations(self) -> Relations:
        """The relations."""
        if isinstance(self.relations_source, Relations):
            return self.relations_source
        return packaged_relations() if self.relations_source is None else read_relations(self.relations_source)

    @cached_property
    def steps(self) -> Steps:
        """The steps."""
        if isinstance(self.steps_source, Steps):
            return self.steps_source
        return packaged_steps() if self.steps_source is None else read_steps(self.steps_source)

    def with_files_read(self) -> StudyInputs:
        """The same with the user's files read, for a process that cannot see them."""
        return replace(
            self,
            passages_source=None if self.passages_source is None else self.passages,
            questions_source=None if self.questions_source is None else find_questions(self.questions_source),
            relations_source=None if self.relations_source is None else self.relations,
            steps_source=None if self.steps_source is None else self.steps,
        )
