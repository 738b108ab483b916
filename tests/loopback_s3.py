"""A real S3 protocol server on the loopback (moto's), for tests: buckets in memory, spoken to by the real obstore.

with serving() as server:
    server.make("bucket")
    os.environ.update(server.environment)      # then s3://bucket/... is there, also for child processes

A test that takes the fixture `server` (the conftest of all tests imports it) has one with an empty bucket.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import urllib.request
from collections.abc import Iterator

import pytest

logging.getLogger("werkzeug").setLevel(logging.ERROR)


class Server:
    """Where it listens, and the environment that points to it."""

    def __init__(self, host: str, port: int) -> None:
        self.url = f"http://{host}:{port}"
        self.environment = {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "somebody",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
        }

    def make(self, bucket: str) -> None:
        """Make an empty bucket."""
        request = urllib.request.Request(f"{self.url}/{bucket}", method="PUT")
        request.add_header("Authorization", "AWS4-HMAC-SHA256 Credential=somebody/20260101/us-east-1/s3/aws4_request")
        urllib.request.urlopen(request).close()


@contextlib.contextmanager
def serving() -> Iterator[Server]:
    """A server at any free port, and its environment in this process until the end."""
    server = importlib.import_module("moto.server").ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    before = dict(os.environ)
    try:
        found = Server(*server.get_host_and_port())
        os.environ.update(found.environment)
        yield found
    finally:
        os.environ.clear()
        os.environ.update(before)
        server.stop()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """One a file of tests, with an empty bucket of the name ``bucket``."""
    pytest.importorskip("moto", reason="the package moto is not installed (pip install 'headwise[dev]')")
    with serving() as found:
        found.make("bucket")
        yield found
