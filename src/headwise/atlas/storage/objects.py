"""A prefix of an object store as a storage location: S3 (Amazon's or compatible), Google Cloud Storage, Azure.

In addition to the operations of every location it has the two conditional writes that concurrent writers are built on:
write only if the key does not exist (``create``), and write only if the key still has the entity tag that was read
(``replace``). Requests go through obstore (extra ``[cloud]``); credentials come from the usual environment variables
(``AWS_*``, ``GOOGLE_*``, ``AZURE_*``) or the machine's role. The store's errors become an AtlasError with the remedy.

Cost: one request per operation (``keys``: one per 1,000 keys; ``clear``: one more per 1,000), up to 16 in parallel.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from types import ModuleType
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from headwise.core.errors import AtlasError

__all__ = ["ObjectStoreLocation", "Tag", "TaggedObject", "import_obstore", "translate_store_errors"]

MAX_REQUESTS = 16  # in parallel
MAX_SINGLE_PUT = 32_000_000  # bytes; larger objects are uploaded in parts
MAX_PUT_TRIES = 20  # of a conditional write
PIECE_BYTES, MAX_PIECES = 8_000_000, 4  # larger objects are read and written in pieces, so many in parallel
Tag = dict[str, str]  # entity tag and version of one state of an object
Guard = Callable[[], None]  # called before every request; raises if no more may be made
CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_REGION, and AWS_ENDPOINT_URL where it is not Amazon's store)",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS (a service account's file)",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}
ENDPOINTS = {"s3": "AWS_ENDPOINT_URL", "gs": "GOOGLE_BASE_URL", "az": "AZURE_STORAGE_ENDPOINT"}
_PROVIDERS = {"s3a": "s3", "gcs": "gs", "azure": "az", "abfs": "az", "abfss": "az"}
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound", "bucket does not exist")


class TaggedObject(NamedTuple):
    """An object as it was read."""

    content: bytes
    tag: Tag
    modified: datetime  # by the store's clock


class ObjectStoreLocation:
    """All keys below a prefix of one bucket."""

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
        """The object's content; None if it does not exist."""
        found = self.read_tagged(key)
        return None if found is None else found.content

    def read_tagged(self, key: str, known: TaggedObject | None = None) -> TaggedObject | None:
        """Content and tag, for ``replace``. If the store still holds ``known``, it is returned without a download."""
        options = {"if_none_match": known.tag["e_tag"]} if known is not None and "e_tag" in known.tag else None
        with translate_store_errors(self.url):
            try:
                answer = self.store.get(self._path(key), options=options)
                small = answer.meta["size"] <= PIECE_BYTES
                content = bytes(answer.bytes()) if small else self._read_pieces(key, answer.meta)
                return TaggedObject(content, _tag(answer.meta), answer.meta["last_modified"])
            except import_obstore().exceptions.NotModifiedError:
                return known
            except FileNotFoundError as cause:
                _raise_if_no_bucket(cause)
                return None

    def read_many(self, keys: Collection[str]) -> dict[str, bytes]:
        """Read in parallel; missing keys are left out."""
        with ThreadPoolExecutor(MAX_REQUESTS) as pool:
            found = dict(zip(keys, pool.map(self.read, keys), strict=True))
        return {key: content for key, content in found.items() if content is not None}

    def write(self, key: str, content: bytes | Sequence[bytes | memoryview]) -> None:
        """Create or replace the object, atomically."""
        whole = content if isinstance(content, bytes) else b"".join(content)
        with translate_store_errors(self.url):
            self.store.put(self._path(key), whole, max_concurrency=MAX_PIECES)

    def write_many(self, parts: Mapping[str, bytes], tags: Mapping[str, Tag], guard: Guard) -> None:
        """Write in parallel, each key only over the state in ``tags``; ``guard`` is called before every try.

        If a key has another tag by now and the guard still passes, it is overwritten. So a writer that was suspended cannot
        overwrite newer objects. (Objects over 32 MB are uploaded in parts, without this condition.)
        """

        def put(key: str) -> None:
            tag = tags.get(key)
            for _ in range(MAX_PUT_TRIES):
                guard()
                if len(parts[key]) > MAX_SINGLE_PUT:
                    return self.write(key, parts[key])
                if self._put(key, parts[key], "create" if tag is None else tag) is not None:
                    return None
                tag = self.tags(key.rpartition("/")[0]).get(key)
            raise AtlasError(f"{self.url}/{key} is written by too many at once; run the same command again.")

        with ThreadPoolExecutor(MAX_REQUESTS) as pool:
            for done in [pool.submit(put, key) for key in parts]:
                done.result()

    def create(self, key: str, content: bytes) -> bool:
        """Write only if the object does not exist."""
        return self.create_tagged(key, content) is not None

    def create_tagged(self, key: str, content: bytes) -> Tag | None:
        """The same; returns the tag for ``replace``, None if the object exists."""
        return self._put(key, content, "create")

    def replace(self, key: str, content: bytes, tag: Tag) -> Tag | None:
        """Write only if the object has this tag; None if it has another or does not exist."""
        return self._put(key, content, tag)

    def delete(self, key: str) -> None:
        """Delete the object if it exists."""
        with translate_store_errors(self.url):
            try:
                self.store.delete(self._path(key))
            except FileNotFoundError as cause:
                _raise_if_no_bucket(cause)

    def keys(self, prefix: str = "") -> list[str]:
        """All keys below a prefix, sorted."""
        return sorted(self.tags(prefix))

    def tags(self, prefix: str) -> dict[str, Tag]:
        """Key -> tag of all objects below a prefix, for ``replace``."""
        cut = len(self.prefix) + 1 if self.prefix else 0
        with translate_store_errors(self.url):
            batches = self.store.list(self._path(prefix) or None, chunk_size=1000)
            return {found["path"][cut:]: _tag(found) for batch in batches for found in batch}

    def top_level_names(self) -> list[str]:
        """The first parts of all keys, by one request."""
        with translate_store_errors(self.url):
            found = self.store.list_with_delimiter(self.prefix or None)
        paths = [*found["common_prefixes"], *(one["path"] for one in found["objects"])]
        return sorted(str(path).rstrip("/").rsplit("/", 1)[-1] for path in paths)

    def clear(self, prefix: str) -> None:
        """Delete all objects below a prefix."""
        self.delete_many(self.keys(prefix))

    def delete_many(self, keys: Collection[str]) -> None:
        """Delete in as few requests as the store allows."""
        if keys:
            with translate_store_errors(self.url):
                self.store.delete([self._path(key) for key in keys])

    def _put(self, key: str, content: bytes, mode: Any) -> Tag | None:
        errors = import_obstore().exceptions
        with translate_store_errors(self.url):
            try:
                return _tag(self.store.put(self._path(key), content, mode=mode))
            except (errors.AlreadyExistsError, errors.PreconditionError):
                return None
            except FileNotFoundError as cause:
                _raise_if_no_bucket(cause)
                return None

    def _read_pieces(self, key: str, meta: Mapping[str, Any]) -> bytes:
        """A large object by several short requests, all of the same entity tag."""

        def read_piece(start: int) -> bytes:
            options = {"range": (start, min(start + PIECE_BYTES, meta["size"])), "if_match": meta["e_tag"]}
            return bytes(self.store.get(self._path(key), options=options).bytes())

        with ThreadPoolExecutor(MAX_PIECES) as pool:
            return b"".join(pool.map(read_piece, range(0, meta["size"], PIECE_BYTES)))

    def _path(self, key: str) -> str:
        return "/".join(part for part in (self.prefix, key) if part)

    def __str__(self) -> str:
        return self.url

    def __repr__(self) -> str:
        return f"ObjectStoreLocation({self.url!r})"


def _tag(meta: Mapping[str, Any]) -> Tag:
    return {name: meta[name] for name in ("e_tag", "version") if meta.get(name) is not None}


def _raise_if_no_bucket(cause: FileNotFoundError) -> None:
    """A missing key is an answer; a missing bucket is an error."""
    if any(sign in str(cause) for sign in _NO_BUCKET):
        raise cause


def import_obstore() -> ModuleType:
    """The package obstore, imported when first needed."""
    try:
        import obstore
        import obstore.exceptions
        import obstore.store
    except ImportError as cause:
        raise AtlasError(
            "An atlas at a URL needs the package obstore; install it with pip install 'headwise[cloud]'."
        ) from cause
    return obstore


@contextlib.contextmanager
def translate_store_errors(url: str) -> Iterator[None]:
    """Raise the store's errors as AtlasError, with the remedy."""
    errors = import_obstore().exceptions
    try:
        yield
    except (errors.BaseError, OSError) as cause:
        raise AtlasError(error_message(cause, url)) from cause


def error_message(error: Exception, url: str) -> str:
    """Cause and remedy. obstore has few error classes, so the cause is recognised by the text that the store sent."""
    text, kind, scheme = str(error), type(error).__name__, urlsplit(url).scheme
    provider = _PROVIDERS.get(scheme, scheme)
    credentials, bucket = CREDENTIALS.get(provider, "its credentials"), urlsplit(url).netloc
    if any(sign in text for sign in _NO_BUCKET):
        return f"There is no bucket {bucket!r} where {url} points; make it first, or check the spelling and the region."
    if any(sign in text for sign in ("169.254.169.254", "metadata.google", "MissingAccount", "token request")):
        return f"No credentials were found for {url}; set {credentials}."
    if "Permission" in kind or "Unauthenticated" in kind or "403 Forbidden" in text or "InvalidAccessKeyId" in text:
        return f"The store does not let you read or write {url}; check what these credentials may do, or set {credentials}."
    if any(sign in text for sign in ("301 Moved", "PermanentRedirect", "AuthorizationHeaderMalformed")):
        return f"The bucket {bucket!r} of {url} is in another region; set AWS_REGION to it."
    if "NotSupported" in kind or "NotImplemented" in kind or "501 Not Implemented" in text:
        return (
            f"The store of {url} has no conditional writes, which several writers of one atlas need; build into a "
            "folder, and copy it there."
        )
    if any(sign in text for sign in ("error sending request", "timed out", "operation timed out", "dns error")):
        variable = ENDPOINTS.get(provider, "its endpoint")
        value = os.environ.get(variable)
        where = f"{variable} is {value}" if value else f"{variable} is not set"
        return f"{url} cannot be reached: nothing answers there ({where}); check that and the network."
    first_line = (text.strip() or kind).splitlines()[0].rstrip(".")[:300]
    return f"The store refused {url}: {first_line}; try again, or choose another location with -o."
