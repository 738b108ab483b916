"""What the model is shown, read when a study asks for it: the user's own sets, or the packaged ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

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

__all__ = ["Sources"]


@dataclass(frozen=True)
class Sources:
    """Sets by name, by file, or as they are; None is the packaged ones."""

    data: str | Path | Passages | None = None  # texts
    asked: str | Path | Questions | None = None  # questions
    limit: int | None = 500  # questions, taken evenly over topics; None: all
    related: str | Path | Relations | None = None  # pairs of words
    stepped: str | Path | Steps | None = None  # questions in steps, each labelled with a function
    against: str | Path | Model | None = None  # the model to compare with; None: what ships for this one, if anything

    @cached_property
    def passages(self) -> Passages:
        """The user's texts, or the packaged ones."""
        if isinstance(self.data, Passages):
            return self.data
        return packaged_passages() if self.data is None else read_passages(self.data)

    @cached_property
    def questions(self) -> Questions:
        """The user's questions, a known set by name, or the packaged ones."""
        found = find_questions(self.asked)
        return found if self.limit is None else found.sample(self.limit, seed=0)

    @cached_property
    def relations(self) -> Relations:
        """The user's relations, or the packaged ones."""
        if isinstance(self.related, Relations):
            return self.related
        return packaged_relations() if self.related is None else read_relations(self.related)

    @cached_property
    def steps(self) -> Steps:
        """The user's steps, or the packaged ones."""
        if isinstance(self.stepped, Steps):
            return self.stepped
        return packaged_steps() if self.stepped is None else read_steps(self.stepped)

    def read(self) -> Sources:
        """The same with the user's own sets read: whoever gets it needs none of the user's files."""
        return replace(
            self,
            data=None if self.data is None else self.passages,
            asked=None if self.asked is None else find_questions(self.asked),
            related=None if self.related is None else self.relations,
            stepped=None if self.stepped is None else self.steps,
        )
