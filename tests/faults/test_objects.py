"""A build straight into a bucket (a real S3 server on the loopback), killed between any two of its requests."""

from __future__ import annotations

import signal

import pytest

from faults.experiment import Experiment

pytest.importorskip("moto", reason="the package moto is not installed (pip install 'headwise[dev]')")
pytest.importorskip("obstore", reason="the package obstore is not installed (pip install 'headwise[cloud]')")
from loopback_s3 import Server, serving


def test_killed_between_requests(experiment: Experiment, server: Server) -> None:
    """At some of them, spread over the whole build; the same command again gives the bits of a build into a folder."""
    how = {"environment": server.environment}
    whole = experiment.run("s3://bucket/whole", None, "profile", noting=True, **how)
    assert whole.code == 0, whole.err
    requests = len(whole.changes)
    assert requests > 20
    for number in range(1, requests, max(1, requests // 6)):
        url = f"s3://bucket/killed{number}"
        fault = {"do": "kill", "request": number}
        case = experiment.disturb(fault, "profile", atlas=url, **how)
        assert case.first.code == -signal.SIGKILL
        assert not case.faults


def test_the_server_is_gone_in_mid_run(experiment: Experiment) -> None:
    """Refused in a sentence, not by a traceback; when it is back, the same command goes on."""
    with serving() as short:
        short.make("bucket")
        how = {"environment": short.environment}
        run = experiment.zygote.start(
            experiment.scene.arguments("s3://bucket/gone-in-mid-run", "profile"),
            "s3://bucket/gone-in-mid-run",
            {"do": "kill", "when": "measure profile 2"},
            **how,
        )
        assert run.wait().code == -signal.SIGKILL
    gone = experiment.run("s3://bucket/gone-in-mid-run", None, "profile", **how)
    assert gone.code == 2
    assert "s3://bucket/gone-in-mid-run" in gone.sentence
