"""What can be done at a place where an atlas lies? Few verbs, on keys below it.

A key is a path below the place, with ``/`` between its parts ("profile/value/c/0/0"); what lies under it is bytes, there
whole or not at all. There is no rename: a local folder has one, an object store has not, so how a study replaces another
(`swap` for folders) is not a matter of the place.

This module does not know what lies under the keys.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, runtime_checkable

__all__ = ["Place"]


@runtime_checkable
class Place(Protocol):
    """A folder or a prefix of an object store. ``str(place)`` is what the user typed.

    Examples:
        >>> isinstance(atlas.place, Place), atlas.place.read("zarr.json") is not None
        (True, True)
    """

    @property
    def name(self) -> str:
        """The last part of its path, as an atlas is called by."""
        ...

    @property
    def address(self) -> str:
        """Where it is, whatever folder one is in."""
        ...

    @property
    def folder(self) -> Path | None:
        """The local folder that it is, if it is one."""
        ...

    def read(self, key: str) -> bytes | None:
        """What lies under the key; None where nothing does."""
        ...

    def write(self, key: str, content: bytes) -> None:
        """Put it there, whole or not at all, in the place of what is there."""
        ...

    def create(self, key: str, content: bytes) -> bool:
        """Put it there only where nothing lies yet; whether it was put, of several who try exactly once."""
        ...

    def delete(self, key: str) -> None:
        """Take it away; a key under which nothing lies is no error."""
        ...

    def keys(self, prefix: str = "") -> list[str]:
        """All keys below a prefix (whole parts of a path), in order."""
        ...

    def clear(self, prefix: str) -> None:
        """Delete all keys below a prefix."""
        ...
