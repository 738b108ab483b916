"""A prefix of an object store as a place: S3 (Amazon's or any that speaks its protocol), Google Cloud Storage, Azure.

Beside the verbs of every place it has two that object stores are good at: write only where nothing lies yet (``create``),
and write only over what was read (``replace``, by the entity tag). What several writers agree on is built on these two.
The requests are obstore's (extra ``[cloud]``), the credentials those of the usual environment variables (``AWS_*``,
``GOOGLE_*``, ``AZURE_*``) or of the machine's role; what the store refuses is an AtlasError with the remedy.

Cost: one request a verb (``keys``: one per 1,000; ``clear``: one more per 1,000), up to 16 at once where there are many. This
module does not know what an atlas is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any, NamedTuple

from headwise.atlas.places.refusals import explained_store, obstore
from headwise.core.errors import AtlasError

__all__ = ["Objects", "Tag", "Tagged"]

WIDTH = 16  # requests at once
SINGLE, TRIES = 32_000_000, 20  # bytes that are put by one request; tries of a conditional write
PIECE, LARGE = 8_000_000, 4  # a larger object is read in pieces of so many bytes, and written in parts, so many at once
Tag = dict[str, str]  # what tells one state of an object from another
Guard = Callable[[], None]  # asked before every request; raises where none may be made any more


class Tagged(NamedTuple):
    """An object as it was read."""

    content: bytes
    tag: Tag
    modified: datetime  # by the store's clock


class Objects:
    """All keys that begin with a prefix, in one bucket."""

    folder = None

    def __init__(self, url: str, store: Any, prefix: str = "") -> None:
        self.url, self.store, self.prefix = url, store, prefix.strip("/")

    @property
    def name(self) -> str:
        """The last part of the URL."""
        return self.url.rstrip("/").rsplit("/", 1)[-1]

    @property
    def address(self) -> str:
        """The URL."""
        return self.url

    def read(self, key: str) -> bytes | None:
        """The object's content; None where there is none."""
        found = self.read_tagged(key)
        return None if found is None else found.content

    def read_tagged(self, key: str, known: Tagged | None = None) -> Tagged | None:
        """The same with its tag, for ``replace``; ``known`` itself, unsent, where it is still what lies there."""
        options = {"if_none_match": known.tag["e_tag"]} if known is not None and "e_tag" in known.tag else None
        with explained_store(self.url):
            try:
                answer = self.store.get(self._path(key), options=options)
                content = bytes(answer.bytes()) if answer.meta["size"] <= PIECE else self._pieces(key, answer.meta)
                return Tagged(content, _tag(answer.meta), answer.meta["last_modified"])
            except obstore().exceptions.NotModifiedError:
                return known
            except FileNotFoundError as cause:
                _raise_without_bucket(cause)
                return None

    def read_many(self, keys: Collection[str]) -> dict[str, bytes]:
        """Many at once; those that are gone are left out."""
        with ThreadPoolExecutor(WIDTH) as pool:
            found = dict(zip(keys, pool.map(self.read, keys), strict=True))
        return {key: content for key, content in found.items() if content is not None}

    def write(self, key: str, content: bytes) -> None:
        """Put the object, whole or not at all."""
        with explained_store(self.url):
            self.store.put(self._path(key), content, max_concurrency=LARGE)

    def write_many(self, parts: Mapping[str, bytes], tags: Mapping[str, Tag], guard: Guard) -> None:
        """Many at once, each only over what ``tags`` says lies there; ``guard`` is asked before every try.

        Where something else lies there by now and the guard still lets us, it is overwritten; so a writer that was asleep
        cannot overwrite what was written meanwhile. (Very large objects go in parts, without that condition.)
        """

        def put(key: str) -> None:
            tag = tags.get(key)
            for _ in range(TRIES):
                guard()
                if len(parts[key]) > SINGLE:
                    return self.write(key, parts[key])
                if self._put(key, parts[key], "create" if tag is None else tag) is not None:
                    return None
                tag = self.tags(key.rpartition("/")[0]).get(key)
            raise AtlasError(f"{self.url}/{key} is written by too many at once; run the same command again.")

        with ThreadPoolExecutor(WIDTH) as pool:
            for done in [pool.submit(put, key) for key in parts]:
                done.result()

    def create(self, key: str, content: bytes) -> bool:
        """Put the object where none is."""
        return self.create_tagged(key, content) is not None

    def create_tagged(self, key: str, content: bytes) -> Tag | None:
        """The same, with the tag for ``replace``; None where there is an object."""
        return self._put(key, content, "create")

    def replace(self, key: str, content: bytes, tag: Tag) -> Tag | None:
        """Put the object over the one that has this tag; None where it has another, or is gone."""
        return self._put(key, content, tag)

    def delete(self, key: str) -> None:
        """Delete the object, if there is one."""
        with explained_store(self.url):
            try:
                self.store.delete(self._path(key))
            except FileNotFoundError as cause:
                _raise_without_bucket(cause)

    def keys(self, prefix: str = "") -> list[str]:
        """The objects below."""
        return sorted(self.tags(prefix))

    def tags(self, prefix: str) -> dict[str, Tag]:
        """The objects below, each with its tag for ``replace``."""
        cut = len(self.prefix) + 1 if self.prefix else 0
        with explained_store(self.url):
            batches = self.store.list(self._path(prefix) or None, chunk_size=1000)
            return {found["path"][cut:]: _tag(found) for batch in batches for found in batch}

    def names(self) -> list[str]:
        """The first parts of the keys, by one look."""
        with explained_store(self.url):
            found = self.store.list_with_delimiter(self.prefix or None)
        paths = [*found["common_prefixes"], *(one["path"] for one in found["objects"])]
        return sorted(str(path).rstrip("/").rsplit("/", 1)[-1] for path in paths)

    def clear(self, prefix: str) -> None:
        """Delete the objects below."""
        self.delete_many(self.keys(prefix))

    def delete_many(self, keys: Collection[str]) -> None:
        """Many at once, in as few requests as the store can do it by."""
        if keys:
            with explained_store(self.url):
                self.store.delete([self._path(key) for key in keys])

    def _put(self, key: str, content: bytes, mode: Any) -> Tag | None:
        kinds = obstore().exceptions
        with explained_store(self.url):
            try:
                return _tag(self.store.put(self._path(key), content, mode=mode))
            except (kinds.AlreadyExistsError, kinds.PreconditionError):
                return None
            except FileNotFoundError as cause:
                _raise_without_bucket(cause)
                return None

    def _pieces(self, key: str, meta: Mapping[str, Any]) -> bytes:
        """A large object by several requests, none of which takes long; all of the same state."""

        def piece(start: int) -> bytes:
            wanted = {"range": (start, min(start + PIECE, meta["size"])), "if_match": meta["e_tag"]}
            return bytes(self.store.get(self._path(key), options=wanted).bytes())

        with ThreadPoolExecutor(LARGE) as pool:
            return b"".join(pool.map(piece, range(0, meta["size"], PIECE)))

    def _path(self, key: str) -> str:
        return "/".join(part for part in (self.prefix, key) if part)

    def __str__(self) -> str:
        return self.url

    def __repr__(self) -> str:
        return f"Objects({self.url!r})"


def _tag(meta: Mapping[str, Any]) -> Tag:
    return {name: meta[name] for name in ("e_tag", "version") if meta.get(name) is not None}


def _raise_without_bucket(cause: FileNotFoundError) -> None:
    """Nothing under the key is an answer; no bucket is an error."""
    if any(sign in str(cause) for sign in ("NoSuchBucket", "ContainerNotFound", "bucket does not exist")):
        raise cause
