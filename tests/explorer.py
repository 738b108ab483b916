"""A small atlas with a detector, the application around it, and a server with a model for a browser."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from answered import rows, write
from planted import tiny_model, tiny_passages
from starlette.testclient import TestClient

from headwise.core.cancellation import CancelToken
from headwise.live import LiveSession
from headwise.model import load
from headwise.server import bind_socket, create_app, url_of
from headwise.server.serving import ExplorerServer
from headwise.studies import CausalOptions, build


@pytest.fixture(scope="session")
def model() -> Any:
    return load(*tiny_model(layers=3))


@pytest.fixture(scope="session")
def atlas(model: Any, tmp_path_factory: Any) -> Path:
    """Profile, answers, spectral, detection and the fitted detector. Tests only read it."""
    folder = tmp_path_factory.mktemp("served")
    questions = write(folder / "answers.jsonl", rows(90))
    build(model, ["profile", "spectral"], data=tiny_passages(6), questions=questions, output=folder / "small")
    return folder / "small"


@pytest.fixture(scope="session")
def scored_atlas(model: Any, tmp_path_factory: Any) -> Path:
    """An atlas with scores of answers that are being generated. Tests only read it."""
    folder = tmp_path_factory.mktemp("scored")
    questions = write(folder / "answers.jsonl", rows(60))
    build(model, ["profile", "streaming"], data=tiny_passages(6), questions=questions, output=folder / "scored")
    return folder / "scored"


@pytest.fixture(scope="session")
def causal_atlas(model: Any, tmp_path_factory: Any) -> Path:
    """An atlas that says what the loss rises by without each head. Tests only read it."""
    folder = tmp_path_factory.mktemp("causal") / "causal"
    few = CausalOptions(prompts=6, tokens=12, ranking=2, questions=0)
    build(model, ["causal"], data=tiny_passages(10), output=folder, options={"causal": few})
    return folder


@pytest.fixture(scope="session")
def session(model: Any, atlas: Path) -> LiveSession:
    return LiveSession(model)


def client_of(app: Any, **options: Any) -> TestClient:
    """A client that asks as a browser on this machine does."""
    return TestClient(app, base_url="http://127.0.0.1:8000", raise_server_exceptions=False, **options)


@pytest.fixture(scope="session")
def pages(atlas: Path) -> Any:
    """A server without a model."""
    with client_of(create_app([atlas])) as client:
        yield client


@pytest.fixture(scope="session")
def live(atlas: Path, session: LiveSession) -> Any:
    """A server with the tiny model."""
    with client_of(create_app([atlas], open_session=lambda: session)) as client:
        until(lambda: client.get("/api/small/live").json()["state"] == "ready")
        yield client


@pytest.fixture(scope="session")
def running() -> Any:
    """Start real servers, in threads: ``running(app)`` gives an address. All end with the tests."""
    started: list[tuple[Any, threading.Thread]] = []

    def start(app: Any) -> str:
        import uvicorn

        taken = bind_socket("127.0.0.1", 0)
        server = ExplorerServer(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1), None)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [taken]}, daemon=True)
        thread.start()
        until(lambda: server.started)
        started.append((server, thread))
        return url_of(taken)

    yield start
    for server, thread in started:
        server.should_exit = True
        thread.join(timeout=10)


@pytest.fixture(scope="session")
def where(running: Any, atlas: Path, session: LiveSession) -> str:
    """The address of a real server with the tiny model."""
    return running(create_app([atlas], open_session=lambda: session))


def until(true: Any, seconds: float = 20.0) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


class Stepwise(LiveSession):
    """A session that generates a token only when `let` is released once for it."""

    def __init__(self, model: Any):
        super().__init__(model)
        self.let, self.ended = threading.Semaphore(0), threading.Event()

    def run(self, text: str, *, on_event: Any, **options: Any) -> Any:
        """As ever, token by token."""

        def hold(event: Any) -> None:
            on_event(event)
            assert event["event"] != "token" or self.let.acquire(timeout=20), "nobody asked for the next token"

        self.ended.clear()
        try:
            return super().run(text, on_event=hold, **options)
        finally:
            self.ended.set()


class Slow:
    """A session whose runs take until `go` is set or they are cancelled."""

    def __init__(self):
        self.go, self.started = threading.Event(), threading.Event()
        self.begun: list = []
        self.ended: list = []

    def info(self):
        return {"model": "slow", "layers": 1, "heads": 1, "device": "cpu", "modes": ["text"], "tokens": 10,
                "answer_tokens": 8, "draws": 1}  # fmt: skip

    def scoring_unavailable(self, atlas):
        return None

    def score_choices(self, atlas):
        return [], "there are no scores"

    def validate(self, text, **options):
        return None

    def run(self, text, *, cancel: CancelToken, **options):
        cancel.begin(text)
        self.begun.append(text)
        self.started.set()
        if text == "broken":
            raise RuntimeError("secret /path/of/mine")
        if text == "slow":
            try:
                while not self.go.is_set():
                    cancel.check()
                    time.sleep(0.01)
            finally:
                self.ended.append(text)
        return {"text": text}
