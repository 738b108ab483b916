"""Storage locations: bytes under keys, in a local folder or under a prefix of an object store.

    s3://bucket/prefix   gs://bucket/prefix   az://container/prefix   memory://name/prefix (for tests; lost with the process)

A key is a path below the location with ``/`` between its parts ("profile/value/c/0/0"). Every write is atomic: after a crash
the key holds the old bytes or the new ones. There is no rename, because object stores have none; how one study replaces
another is the business of ``local_store`` and ``object_store``.

pathlib.Path collapses two slashes into one, so ``s3:/bucket`` is read as ``s3://bucket``. Credentials and endpoint come from
the environment (see ``objects``), or from `aws configure` where boto3 is installed. An endpoint that begins with ``http://``
is used without TLS. Cost: a local write is one flush to disk per key.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import shutil
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from headwise.atlas.disk import create_file, replace_file, translate_read_errors
from headwise.atlas.plain_files import list_plain, read_plain, refuse_links
from headwise.atlas.storage.objects import ENDPOINTS, ObjectStoreLocation, import_obstore, translate_store_errors
from headwise.core.errors import AtlasError
from headwise.core.files import translate_os_errors

SCHEMES = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "memory")
_URL = re.compile(rf"({'|'.join(SCHEMES)}):/{{1,2}}([^/]+)(?:/(.*))?")
_UNKNOWN_URL = re.compile(r"[a-z][a-z0-9+.-]+://.*")
TIMEOUT, CONNECT_TIMEOUT, RETRY_TIMEOUT = 60, 5, 10  # seconds: per request, until connected, until retries stop
AWS_CREDENTIALS = (
    "AWS_ACCESS_KEY_ID", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_SKIP_SIGNATURE",
)  # fmt: skip
_memory_stores: dict[str, Any] = {}


@runtime_checkable
class Location(Protocol):
    """A local folder or a prefix of an object store. ``str(location)`` is what the user typed.

    Examples:
        >>> isinstance(atlas.location, Location), atlas.location.read("zarr.json") is not None
        (True, True)
    """

    @property
    def name(self) -> str:
        """The last part of the path; the atlas's display name."""
        ...

    @property
    def address(self) -> str:
        """The absolute path or the URL."""
        ...

    @property
    def folder(self) -> Path | None:
        """The local folder; None for an object store."""
        ...

    def read(self, key: str) -> bytes | None:
        """The bytes under the key; None if it does not exist."""
        ...

    def write(self, key: str, content: bytes | Sequence[bytes | memoryview]) -> None:
        """Create or replace the key, atomically, by one or several buffers."""
        ...

    def create(self, key: str, content: bytes) -> bool:
        """Write only if the key does not exist; True for exactly one of several concurrent callers."""
        ...

    def delete(self, key: str) -> None:
        """Delete the key; no error if it does not exist."""
        ...

    def keys(self, prefix: str = "") -> list[str]:
        """All keys below a prefix (whole parts of a path), sorted."""
        ...

    def clear(self, prefix: str) -> None:
        """Delete all keys below a prefix."""
        ...


class LocalLocation:
    """A local folder, created on first write.

    >>> import tempfile
    >>> location = LocalLocation(tempfile.mkdtemp())
    >>> location.write("a/b", b"text")
    >>> location.read("a/b"), location.read("a/c"), location.keys("a")
    (b'text', None, ['a/b'])
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder: Path = Path(folder).expanduser()

    @property
    def name(self) -> str:
        """The folder's name, even if it was given as `.`"""
        return self.folder.name if self.folder.name not in ("", "..") else self.folder.resolve().name

    @property
    def address(self) -> str:
        """The absolute path, symbolic links resolved."""
        return str(self.folder.resolve())

    def read(self, key: str) -> bytes | None:
        """The file's content; None if it does not exist."""
        with translate_read_errors(str(self.folder / key)):
            return read_plain(self.folder, key)

    def write(self, key: str, content: bytes | Sequence[bytes | memoryview]) -> None:
        """Write the file atomically, and create its parent folders."""
        path = refuse_links(self.folder, key)
        with translate_os_errors(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, content)

    def create(self, key: str, content: bytes) -> bool:
        """Write the file only if it does not exist."""
        path = refuse_links(self.folder, key)
        with translate_os_errors(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
            return create_file(path, content)

    def delete(self, key: str) -> None:
        """Delete the file if it exists."""
        with translate_os_errors(self.folder):
            refuse_links(self.folder, key).unlink(missing_ok=True)

    def keys(self, prefix: str = "") -> list[str]:
        """The files below a prefix, without temporary ones."""
        return [key for key in list_plain(self.folder, prefix) if not key.endswith(".tmp")]

    def clear(self, prefix: str) -> None:
        """Delete a folder below, recursively."""
        shutil.rmtree(refuse_links(self.folder, prefix), ignore_errors=True)

    def __str__(self) -> str:
        return str(self.folder)

    def __repr__(self) -> str:
        return f"LocalLocation({str(self.folder)!r})"


def open_location(where: str | os.PathLike[str] | Location) -> Location:
    """The location of a path or URL.

    Args:
        where: a folder, a URL such as ``s3://BUCKET/NAME``, or a `Location`, which is returned as it is.

    Returns:
        The location; nothing is read from it yet.

    Examples:
        >>> location = open_location(folder)
        >>> location.write("notes/mine.txt", b"L3H2 looks back")
        >>> location.keys(), location.read("notes/mine.txt")
        (['notes/mine.txt'], b'L3H2 looks back')
    """
    if not isinstance(where, str | os.PathLike):
        return where
    text = os.fspath(where)
    match = _URL.fullmatch(text)
    if match is not None:
        return _object_store(match[1], match[2], (match[3] or "").strip("/"))
    if text.startswith("file://"):
        return LocalLocation(text.removeprefix("file://"))
    if _UNKNOWN_URL.fullmatch(text):
        raise AtlasError(
            f"{text!r} is not a storage location that Headwise knows; give a folder, s3://BUCKET/NAME, gs://BUCKET/NAME or "
            "az://CONTAINER/NAME."
        )
    return LocalLocation(where)


def is_url(where: object) -> bool:
    """Whether this is the URL of an object store.

    >>> is_url("s3://bucket/atlas"), is_url("atlas"), is_url("file:///tmp/atlas")
    (True, False, False)
    """
    return isinstance(where, str | os.PathLike) and _URL.fullmatch(os.fspath(where)) is not None


def _object_store(scheme: str, bucket: str, prefix: str) -> ObjectStoreLocation:
    url = "/".join(part for part in (f"{scheme}://{bucket}", prefix) if part)
    if scheme == "memory":
        store = _memory_stores.setdefault(bucket, import_obstore().store.MemoryStore())
        return ObjectStoreLocation(url, store, prefix)
    http = any(os.environ.get(name, "").startswith("http://") for name in (*ENDPOINTS.values(), "AWS_ENDPOINT_URL_S3"))
    client = {"timeout": timedelta(seconds=TIMEOUT), "connect_timeout": timedelta(seconds=CONNECT_TIMEOUT)}
    backoff = {"init_backoff": timedelta(seconds=0.1), "max_backoff": timedelta(seconds=2), "base": 2}
    with translate_store_errors(url):
        store = import_obstore().store.from_url(
            url,
            client_options={**client, "allow_http": http},
            retry_config={"max_retries": 5, "retry_timeout": timedelta(seconds=RETRY_TIMEOUT), "backoff": backoff},
            **_boto3_credentials(scheme),
        )
    return ObjectStoreLocation(url, store)


def _boto3_credentials(scheme: str) -> dict[str, Any]:
    """For S3: the credentials of `aws configure`, if the environment has none and boto3 is installed."""
    if not scheme.startswith("s3") or any(name in os.environ for name in AWS_CREDENTIALS):
        return {}
    if importlib.util.find_spec("boto3") is None:
        return {}
    from obstore.auth.boto3 import Boto3CredentialProvider

    session = importlib.import_module("boto3").Session()
    if session.get_credentials() is None:
        return {}
    return {"credential_provider": Boto3CredentialProvider(session)}
