from collections.abc import Callable, Iterator
from typing import Any

import pytest
from served import Stub

from headwise.core.errors import DataError
from headwise.corpora import Endpoint, Question, ask_all, judge_all


@pytest.fixture
def serve() -> Iterator[Callable[[Callable[[dict[str, Any]], Any]], Stub]]:
    stubs: list[Stub] = []

    def start(reply: Callable[[dict[str, Any]], Any]) -> Stub:
        stubs.append(Stub(reply))
        return stubs[-1]

    yield start
    for stub in stubs:
        stub.close()


def ask(text):
    return [{"role": "user", "content": text}]


def test_answers_come_back_in_order(serve, monkeypatch):
    monkeypatch.setenv("MY_KEY", "secret")
    stub = serve(lambda body: " It is " + body["messages"][0]["content"] + ". ")
    endpoint = Endpoint(stub.url, "m", key_variable="MY_KEY", backoff=0)
    answers = ask_all(endpoint, [ask(str(n)) for n in range(20)], temperature=0.5, limit=7, seed=3)
    assert answers == [f"It is {n}." for n in range(20)]
    body = stub.bodies[0]
    assert (body["model"], body["temperature"], body["max_tokens"], body["seed"]) == ("m", 0.5, 7, 3)
    assert set(stub.paths) == {"/v1/chat/completions"}
    assert stub.headers[0]["Authorization"] == "Bearer secret"


def test_without_a_key_none_is_sent(serve, monkeypatch):
    monkeypatch.delenv("MY_KEY", raising=False)
    stub = serve(lambda body: "x")
    Endpoint(stub.url + "/", "m", key_variable="MY_KEY").ask(ask("q"))
    assert "Authorization" not in stub.headers[0]
    assert stub.paths == ["/v1/chat/completions"]


def test_a_failure_that_passes_is_tried_again(serve):
    replies = iter([503, 429, "at last"])
    stub = serve(lambda body: next(replies))
    assert Endpoint(stub.url, "m", backoff=0).ask(ask("q")) == "at last"


@pytest.mark.parametrize(
    ("reply", "tries", "message"),
    [
        (500, 3, r"does not answer \(500 Internal Server Error: no\)"),
        (401, 1, r"does not answer \(401 Unauthorized: no\); check the URL, the model's name and OPENAI_API_KEY"),
        (b"not json", 3, r"does not answer"),
        (b'{"other": 1}', 1, r"did not answer as an OpenAI-compatible endpoint does .*usually ends in /v1"),
    ],
)
def test_what_goes_wrong_is_said(serve, reply, tries, message):
    stub = serve(lambda body: reply)
    with pytest.raises(DataError, match=message):
        Endpoint(stub.url, "m", backoff=0, tries=3).ask(ask("q"))
    assert len(stub.bodies) == tries


def test_nobody_there(serve):
    stub = serve(lambda body: "x")
    stub.close()
    with pytest.raises(DataError, match=r"does not answer \(.*refused"):
        Endpoint(stub.url, "m", backoff=0, tries=2).ask(ask("q"))


def test_an_endpoint_is_a_url_and_a_model():
    with pytest.raises(DataError, match="not 'localhost:8000'"):
        Endpoint("localhost:8000", "m")
    with pytest.raises(DataError, match="give model='NAME'"):
        Endpoint("http://localhost:8000", "")


QUESTIONS = [Question(f"q{n}", f"What is {n}?", ("x", "y")) for n in range(4)]


def test_a_judge_gives_the_labels(serve):
    words = {"A": "Correct.", "B": "incorrect", "C": "**refused**"}
    stub = serve(lambda body: words[body["messages"][0]["content"].split("Answer: ")[1][0]])
    verdicts = judge_all(Endpoint(stub.url, "m"), QUESTIONS, ["A", "B", "C", " "])
    assert [(v.label, v.rule) for v in verdicts] == [
        ("correct", "judge"), ("wrong", "judge"), ("refused", "judge"), ("refused", "empty"),
    ]  # fmt: skip
    assert len(stub.bodies) == 3
    asked = "\n".join(body["messages"][0]["content"] for body in stub.bodies)
    assert "What is 0?" in asked
    assert "x | y" in asked


def test_a_judge_that_does_not_judge_is_refused(serve):
    stub = serve(lambda body: "Hm, hard to say")
    with pytest.raises(DataError, match=r"the judge m replied 'hm hard to say' about the answer to 'q0'"):
        judge_all(Endpoint(stub.url, "m"), QUESTIONS[:1], ["A"])


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(status, monkeypatch):
    """Neither the key nor the question reaches the other server, and its reply is no answer."""
    import http.server
    import json
    import threading

    reached = []

    class Other(http.server.BaseHTTPRequestHandler):
        def answer(self) -> None:
            reached.append(dict(self.headers))
            body = json.dumps({"choices": [{"message": {"content": "stolen"}}]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = answer  # noqa: N815

        def log_message(self, *_: object) -> None: ...

    class First(Other):
        def answer(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.send_header("Location", f"http://localhost:{other.server_port}/v1/chat/completions")
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_POST = answer  # noqa: N815

    other, first = (http.server.ThreadingHTTPServer(("127.0.0.1", 0), kind) for kind in (Other, First))
    for server in (other, first):
        threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("MY_KEY", "secret")
    endpoint = Endpoint(f"http://127.0.0.1:{first.server_port}/v1", "m", key_variable="MY_KEY", backoff=0)
    with pytest.raises(
        DataError, match=r"redirects to http://localhost:\d+/v1/chat/completions, which is not followed"
    ):
        endpoint.ask(ask("x"))
    for server in (other, first):
        server.shutdown()
        server.server_close()
    assert reached == []
