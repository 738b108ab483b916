"""The served atlases, each under the name of its folder.

Two folders of the same name get numbers (`atlas`, `atlas-2`), in the given order. `atlas` is an alias of the first atlas
where no other has that name. An atlas that is rebuilt while it is served is reloaded: its ETag is a digest of the atlas's
fingerprint, and content made from an older fingerprint is dropped.

Names come from the command line, never from a request: a request can only choose among them.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import threading
from collections.abc import Iterable
from pathlib import Path, PurePath

from headwise.atlas import Atlas
from headwise.atlas.storage.location import is_url
from headwise.web.content import Content

ALIAS = "atlas"
RESERVED_NAMES = ("api", "assets", "favicon.ico")
SERVER_ID = secrets.token_hex(4)  # part of every ETag: another server version may render the same atlas differently


class ServedAtlas:
    """One atlas, its name in URLs, and its content."""

    def __init__(self, name: str, atlas: Atlas):
        self.name, self.atlas = name, atlas
        self._lock = threading.Lock()
        self._content, self._etag = Content(atlas), self.etag()

    def etag(self) -> str:
        """A digest that changes when the atlas does."""
        return hashlib.blake2b(f"{SERVER_ID}\n{self.atlas.fingerprint}".encode(), digest_size=8).hexdigest()

    def redact(self, text: str) -> str:
        """A message about this atlas, with its path replaced by its name."""
        address = self.atlas.location.address
        return text.replace(address, self.name).replace(str(address.rpartition("/")[0] or address), "…")

    def content(self) -> tuple[Content, str]:
        """The current content, and its ETag."""
        with self._lock:
            etag = self.etag()
            if etag != self._etag:
                self._content, self._etag = Content(self.atlas), etag
            return self._content, etag


class AtlasRegistry:
    """Served atlases by name."""

    def __init__(self, paths: Iterable[str | Path], *, reserved: Iterable[str] = ()):
        self.atlases: dict[str, ServedAtlas] = {}
        self._reserved = {*RESERVED_NAMES, *reserved}
        for path in paths:
            remote = is_url(path) or str(path).startswith("hf:/")
            atlas = Atlas.open(path if remote else Path(path).resolve())
            name = self._unique_name(PurePath(path).name if remote else atlas.location.name)
            self.atlases[name] = ServedAtlas(name, atlas)

    @property
    def first(self) -> ServedAtlas:
        """The first atlas on the command line."""
        return next(iter(self.atlases.values()))

    def get(self, name: str) -> ServedAtlas | None:
        """The atlas of this name."""
        if name in self.atlases:
            return self.atlases[name]
        return self.first if name == ALIAS else None

    def short_path(self, atlas: ServedAtlas) -> str:
        """The end of an atlas's path: at least two parts, and enough to tell it from the other served atlases."""
        own, others = _parts(atlas), [_parts(other) for other in self.atlases.values() if other is not atlas]
        count = next((n for n in range(2, len(own)) if all(other[-n:] != own[-n:] for other in others)), len(own))
        return "/".join(own[-count:]) if count < len(own) else atlas.atlas.location.address

    def _unique_name(self, folder: str) -> str:
        """A name that no other atlas has, of characters that need no escape in a URL."""
        name = re.sub(r"[^\w.-]+", "-", folder).strip(".-") or ALIAS
        taken = {*self.atlases, *self._reserved}
        return next(free for free in (name, *(f"{name}-{n}" for n in range(2, 1000))) if free not in taken)


def _parts(atlas: ServedAtlas) -> tuple[str, ...]:
    return PurePath(atlas.atlas.location.address).parts
