"""What a description is about: the model's name, its layers and heads, and the answers that were compared.

This module does not know any study.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from typing import Any, Protocol

import xarray as xr

from headwise.describe.words import Writer
from headwise.figures.origin import model_name, origin_of


class Subject(Protocol):
    """What a study's reading knows of its model."""

    @property
    def origin(self) -> dict[str, Any]: ...


class HeadedSubject(Subject, Protocol):
    """A subject whose maps are layer x head."""

    @property
    def layers(self) -> Sized: ...

    @property
    def heads(self) -> Sized: ...


class JudgedSubject(Subject, Protocol):
    """A subject whose map compares wrong answers with correct ones."""

    @property
    def counts(self) -> Mapping[str, int]: ...


def model_of(subject: Subject) -> str:
    """The model's id, or "the model" where nobody wrote it down."""
    return model_name(subject.origin) or "the model"


def model_in(dataset: xr.Dataset) -> str:
    """The same, of a Dataset."""
    return model_name(origin_of(dataset)) or "the model"


def grid_of(writer: Writer, layers: Sequence[int], heads: Sequence[int]) -> str:
    """What rows and columns of a layer x head map are; without the full stop."""
    for edge in (layers[0], layers[-1], heads[0], heads[-1]):
        writer.number(edge, "edge")
    rows, columns = f"The only row is layer {layers[0]}", f"the only column is head {heads[0]}"
    if len(layers) > 1:
        rows = f"Rows are layers, from {layers[0]} at the top (next to the embedding) to {layers[-1]}"
    if len(heads) > 1:
        columns = f"columns are heads, {heads[0]} to {heads[-1]}"
    return f"{rows}; {columns}"


def size_of(writer: Writer, subject: HeadedSubject) -> str:
    """Such as "30 layers of 9 heads"."""
    layers = writer.count(len(subject.layers), "layers", "layer")
    return f"{layers} of {writer.count(len(subject.heads), 'heads', 'head')}"


def answers_of(writer: Writer, subject: JudgedSubject) -> str:
    """How many answers of each kind."""
    counts = subject.counts
    if not {"wrong", "correct"} <= set(counts):
        return "wrong and correct answers"
    wrong, correct = writer.count(counts["wrong"], "count wrong"), writer.count(counts["correct"], "count correct")
    return f"{wrong} wrong and {correct} correct answers"
