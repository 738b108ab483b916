"""What an object store refuses, in one sentence with the remedy.

obstore's errors are of few kinds; which of the usual causes it was is told by the text that the store sent. What is none of
them keeps the store's own first line.

This module does not know what was asked for.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from types import ModuleType
from urllib.parse import urlsplit

from headwise.core.errors import AtlasError

__all__ = ["explained_store", "obstore"]

KEYS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_REGION, and AWS_ENDPOINT_URL where it is not Amazon's store)",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS (a service account's file)",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}
ENDPOINTS = {"s3": "AWS_ENDPOINT_URL", "gs": "GOOGLE_BASE_URL", "az": "AZURE_STORAGE_ENDPOINT"}


def obstore() -> ModuleType:
    """The package that speaks to object stores, loaded when it is first needed."""
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
def explained_store(url: str) -> Iterator[None]:
    """Turn what a store refuses into an AtlasError."""
    kinds = obstore().exceptions
    try:
        yield
    except (kinds.BaseError, OSError) as cause:
        raise AtlasError(sentence(cause, url)) from cause


def sentence(error: Exception, url: str) -> str:
    """The cause and the remedy."""
    text, kind, scheme = str(error), type(error).__name__, urlsplit(url).scheme
    family = {"s3a": "s3", "gcs": "gs", "azure": "az", "abfs": "az", "abfss": "az"}.get(scheme, scheme)
    keys, bucket = KEYS.get(family, "its credentials"), urlsplit(url).netloc
    if any(sign in text for sign in ("NoSuchBucket", "ContainerNotFound", "bucket does not exist")):
        return f"There is no bucket {bucket!r} where {url} points; make it first, or check the spelling and the region."
    if any(sign in text for sign in ("169.254.169.254", "metadata.google", "MissingAccount", "token request")):
        return f"No credentials were found for {url}; set {keys}."
    if "Permission" in kind or "Unauthenticated" in kind or "403 Forbidden" in text or "InvalidAccessKeyId" in text:
        return f"The store does not let you read or write {url}; check what these credentials may do, or set {keys}."
    if any(sign in text for sign in ("301 Moved", "PermanentRedirect", "AuthorizationHeaderMalformed")):
        return f"The bucket {bucket!r} of {url} is in another region; set AWS_REGION to it."
    if "NotSupported" in kind or "NotImplemented" in kind or "501 Not Implemented" in text:
        return (
            f"The store of {url} has no conditional writes, which several writers of one atlas need; build into a "
            "folder, and copy it there."
        )
    if any(sign in text for sign in ("error sending request", "timed out", "operation timed out", "dns error")):
        name = ENDPOINTS.get(family, "its endpoint")
        said = os.environ.get(name)
        where = f"{name} is {said}" if said else f"{name} is not set"
        return f"{url} cannot be reached: nothing answers there ({where}); check that and the network."
    return f"The store refused {url}: {_first_line(text, kind)}; try again, or choose another place with -o."


def _first_line(text: str, kind: str) -> str:
    return (text.strip() or kind).splitlines()[0].rstrip(".")[:300]
