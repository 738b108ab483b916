"""The key of the API: where it is read from, and how a request proves that it knows it.

    headwise serve atlas --api --api-key-file key.txt        the file's only line
    HEADWISE_API_KEY=... headwise serve atlas --api          or the environment, which other accounts cannot list

A request sends `Authorization: Bearer KEY`, as OpenAI's clients do. Digests are compared, in constant time: neither the
length nor a common beginning shows in how long it takes. The key is never logged and appears in no response.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from pathlib import Path

from headwise.core.errors import DataError
from headwise.server.openai_errors import ApiError

__all__ = ["ENVIRONMENT", "ApiKey", "read_api_key"]

ENVIRONMENT = "HEADWISE_API_KEY"
MIN_CHARACTERS = 16
MAX_CHARACTERS = 4096
ADVICE = "make one with: openssl rand -hex 32"


class ApiKey:
    """A key, stored as its digest."""

    def __init__(self, key: str):
        if not (
            MIN_CHARACTERS <= len(key) <= MAX_CHARACTERS and key.isascii() and key.isprintable() and " " not in key
        ):
            raise DataError(
                f"The API key must be {MIN_CHARACTERS} or more characters of ASCII without spaces; {ADVICE}."
            )
        self._digest = _digest(key)

    def check(self, authorization: str | None) -> None:
        """ApiError, status 401, unless the header has the key."""
        scheme, _, given = (authorization or "").partition(" ")
        right = hmac.compare_digest(_digest(given.strip()), self._digest)
        if scheme.lower() != "bearer" or not right:
            what = "this server needs an API key" if authorization is None else "the API key is wrong"
            raise ApiError(f"{what}; send it as Authorization: Bearer KEY", 401, code="invalid_api_key")


def read_api_key(file: Path | None) -> ApiKey | None:
    """The key in a file, else that of the environment; None where there is neither."""
    if file is None:
        found = os.environ.get(ENVIRONMENT)
        return None if found is None else ApiKey(found.strip())
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_CHARACTERS + 2)
    except OSError as error:
        raise DataError(f"The API key cannot be read from {file}: {error.strerror}; {ADVICE}.") from error
    return ApiKey(content.decode("utf-8", "replace").strip())


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
