"""What a description is about: the model's name, and how many layers and heads it has.

This module does not know any study.
"""

from __future__ import annotations

from collections.abc import Sized
from typing import Any, Protocol

from headwise.describe.words import Writer


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


def model_of(subject: Subject) -> str:
    """The model's id, or "the model" where nobody wrote it down."""
    return str(subject.origin.get("model", {}).get("id", "the model"))


def size_of(writer: Writer, subject: HeadedSubject) -> str:
    """Such as "30 layers of 9 heads"."""
    layers = writer.count(len(subject.layers), "layers", "layer")
    return f"{layers} of {writer.count(len(subject.heads), 'heads', 'head')}"
