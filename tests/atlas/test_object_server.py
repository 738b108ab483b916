"""The same against a real server, with real processes and kill -9: S3 as moto's server speaks it."""

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def crash(verb: str, url: str, *more: str) -> dict:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    program = Path(__file__).with_name("object_crashes.py")
    run = subprocess.run(
        [sys.executable, program, verb, url, *more],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_killed_before_each_request_to_a_real_server(server):
    """kill -9, against S3 as a server speaks it; the next to open the atlas finishes."""
    found = crash("kill", "s3://bucket/kill")
    assert len(found["seen"]) > 12
    order = [tuple(state) for state, _ in itertools.groupby(found["seen"])]
    assert order == [(0, 0, 0), (None, 1, 1), (1, 1, 1)]  # plain xarray, Headwise, plain xarray after Headwise
    assert found["left"] == []


def test_killed_at_random_moments_on_a_real_server(server):
    """Also in the middle of requests. A packed study whose writer died before it was announced goes with the next write."""
    seen = crash("random", "s3://bucket/random", "8")["seen"]
    after = [headwise for _, headwise, _ in seen]
    assert after == sorted(set(after)) and len(after) == 8  # every child had replaced the study before it died
    assert all(plain in (None, headwise) and last == headwise for plain, headwise, last in seen)


def test_processes_at_once_on_a_real_server(server):
    found = crash("together", "s3://bucket/together")
    assert found["studies"] == ["other", "toy"]
    assert found["seen"] == [4, 4, 4]
    assert found["left"] == []
