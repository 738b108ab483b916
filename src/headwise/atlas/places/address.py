"""From what the user typed to a place: a path is a local folder, a URL a prefix of an object store.

    s3://bucket/prefix   gs://bucket/prefix   az://container/prefix   memory://name/prefix (for tests: gone with the process)

A pathlib.Path makes one slash of two, so one is understood as two. The credentials and the endpoint come from the environment
(see ``objects``); where boto3 is installed, also from what `aws configure` wrote. An endpoint that begins with ``http://`` is
spoken to without TLS, as was asked.

This module does not know what lies there.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
from datetime import timedelta
from typing import Any

from headwise.atlas.places.folder import Folder
from headwise.atlas.places.objects import Objects
from headwise.atlas.places.place import Place
from headwise.atlas.places.refusals import ENDPOINTS, explained_store, obstore
from headwise.core.errors import AtlasError

__all__ = ["is_url", "place_of"]

SCHEMES = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "memory")
_URL = re.compile(rf"({'|'.join(SCHEMES)}):/{{1,2}}([^/]+)(?:/(.*))?")
_OTHER = re.compile(r"[a-z][a-z0-9+.-]+://.*")
TIMEOUT, CONNECTING, RETRYING = 60, 5, 10  # seconds: of a request, of its first answer, until no new try is begun
_memories: dict[str, Any] = {}


def place_of(where: str | os.PathLike[str] | Place) -> Place:
    """The place that a path, a URL or a place is.

    Args:
        where: a folder, a URL such as ``s3://BUCKET/NAME``, or a place already.

    Returns:
        A place, on which an atlas is read and written by key; nothing is looked for there yet.

    Examples:
        >>> place = place_of(folder)
        >>> place.write("notes/mine.txt", b"L3H2 looks back")
        >>> place.keys(), place.read("notes/mine.txt")
        (['notes/mine.txt'], b'L3H2 looks back')
    """
    if not isinstance(where, str | os.PathLike):
        return where
    text = os.fspath(where)
    match = _URL.fullmatch(text)
    if match is not None:
        scheme, bucket, prefix = match[1], match[2], (match[3] or "").strip("/")
        return _objects(scheme, bucket, prefix)
    if text.startswith("file://"):
        return Folder(text.removeprefix("file://"))
    if _OTHER.fullmatch(text):
        raise AtlasError(
            f"{text!r} is no place that Headwise knows; give a folder, s3://BUCKET/NAME, gs://BUCKET/NAME or "
            "az://CONTAINER/NAME."
        )
    return Folder(where)


def is_url(where: object) -> bool:
    """Whether this is a place that is not a folder.

    >>> is_url("s3://bucket/atlas"), is_url("atlas"), is_url("file:///tmp/atlas")
    (True, False, False)
    """
    return isinstance(where, str | os.PathLike) and _URL.fullmatch(os.fspath(where)) is not None


def _objects(scheme: str, bucket: str, prefix: str) -> Objects:
    url = "/".join(part for part in (f"{scheme}://{bucket}", prefix) if part)
    if scheme == "memory":
        return Objects(url, _memories.setdefault(bucket, obstore().store.MemoryStore()), prefix)
    plain = any(os.environ.get(name, "").startswith("http://") for name in (*ENDPOINTS.values(), "AWS_ENDPOINT_URL_S3"))
    client = {"timeout": timedelta(seconds=TIMEOUT), "connect_timeout": timedelta(seconds=CONNECTING)}
    backoff = {"init_backoff": timedelta(seconds=0.1), "max_backoff": timedelta(seconds=2), "base": 2}
    with explained_store(url):
        store = obstore().store.from_url(
            url,
            client_options={**client, "allow_http": plain},
            retry_config={"max_retries": 5, "retry_timeout": timedelta(seconds=RETRYING), "backoff": backoff},
            **_credentials(scheme),
        )
    return Objects(url, store)


def _credentials(scheme: str) -> dict[str, Any]:
    """For S3, what `aws configure` wrote, where the environment says nothing and boto3 is there to read it."""
    told = (
        "AWS_ACCESS_KEY_ID",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_SKIP_SIGNATURE",
    )
    if not scheme.startswith("s3") or any(name in os.environ for name in told):
        return {}
    if importlib.util.find_spec("boto3") is None:
        return {}
    from obstore.auth.boto3 import Boto3CredentialProvider

    session = importlib.import_module("boto3").Session()
    if session.get_credentials() is None:
        return {}
    return {"credential_provider": Boto3CredentialProvider(session)}
