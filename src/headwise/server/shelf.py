"""The atlases that are served, each under the name of its folder.

Two folders of the same name get numbers (`atlas`, `atlas-2`), in the order they were given. `atlas` is an alias of the
first one where none has that name. An atlas that is built anew while it is served is read anew: its state is a digest of
what the atlas says of its state, and what was made of an older state is thrown away.

Names come from the person who started the server, never from a request: a request can only choose among them.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import threading
from collections.abc import Iterable
from pathlib import Path, PurePath

from headwise.atlas import Atlas
from headwise.atlas.storage import is_url
from headwise.web.content import Content

__all__ = ["ALIAS", "Shelf", "Shelved"]

ALIAS = "atlas"
RESERVED = ("api", "assets", "favicon.ico")
START = secrets.token_hex(4)  # what an older server made is not what this one makes


class Shelved:
    """One atlas, its name in addresses, and its pages."""

    def __init__(self, name: str, atlas: Atlas):
        self.name, self.atlas = name, atlas
        self._lock = threading.Lock()
        self._content, self._state = Content(atlas), self.state()

    def state(self) -> str:
        """A digest that changes when the atlas does."""
        return hashlib.blake2b(f"{START}\n{self.atlas.fingerprint}".encode(), digest_size=8).hexdigest()

    def unplaced(self, text: str) -> str:
        """A sentence about this atlas, with its name in the place of where it is on this machine."""
        address = self.atlas.location.address
        return text.replace(address, self.name).replace(str(address.rpartition("/")[0] or address), "…")

    def content(self) -> tuple[Content, str]:
        """The pages of the atlas as it is now, and its state."""
        with self._lock:
            state = self.state()
            if state != self._state:
                self._content, self._state = Content(self.atlas), state
            return self._content, state


class Shelf:
    """Atlases by name."""

    def __init__(self, paths: Iterable[str | Path]):
        self.all: dict[str, Shelved] = {}
        for path in paths:
            remote = is_url(path) or str(path).startswith("hf:/")
            atlas = Atlas.open(path if remote else Path(path).resolve())
            name = self._free(PurePath(path).name if remote else atlas.location.name)
            self.all[name] = Shelved(name, atlas)

    @property
    def first(self) -> Shelved:
        """The one that was given first."""
        return next(iter(self.all.values()))

    def get(self, name: str) -> Shelved | None:
        """The atlas of this name."""
        if name in self.all:
            return self.all[name]
        return self.first if name == ALIAS else None

    def folder(self, one: Shelved) -> str:
        """The end of where an atlas lies: so many parts, two at least, that no other served one ends alike."""
        own, others = _parts(one), [_parts(each) for each in self.all.values() if each is not one]
        kept = next((n for n in range(2, len(own)) if all(each[-n:] != own[-n:] for each in others)), len(own))
        return "/".join(own[-kept:]) if kept < len(own) else one.atlas.location.address

    def _free(self, folder: str) -> str:
        """A name that no other atlas has, of letters that need no escape in an address."""
        name = re.sub(r"[^\w.-]+", "-", folder).strip(".-") or ALIAS
        taken = {*self.all, *RESERVED}
        return next(one for one in (name, *(f"{name}-{n}" for n in range(2, 1000))) if one not in taken)


def _parts(one: Shelved) -> tuple[str, ...]:
    return PurePath(one.atlas.location.address).parts
