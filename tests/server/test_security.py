"""What a server on one's own machine must refuse, and what every answer carries."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
from explorer import client_of

from headwise.core.errors import HeadwiseError
from headwise.server import create_app
from headwise.server.guard import MAX_BODY_BYTES, Guard

LOOK = "/api/small/live/run"


@pytest.mark.parametrize(
    "path", ["/small/", "/api/small/atlas", "/assets/app.js", "/nowhere/at/all", "/api/small/live"]
)
def test_every_answer_carries_the_headers(pages, path):
    headers = pages.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
    assert "script-src 'self'" in policy
    assert "unsafe-inline" not in policy.split("script-src")[1].split(";")[0]
    assert headers["x-content-type-options"] == "nosniff" and headers["referrer-policy"] == "no-referrer"
    assert not any(name.startswith("access-control") for name in headers)
    assert "server" not in headers


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "", "169.254.1.1"])
def test_other_hosts_are_refused_on_loopback(pages, host):
    assert pages.get("/api/small/atlas", headers={"host": host}).status_code == 403


@pytest.mark.parametrize("host", ["localhost", "localhost:9", "127.0.0.1:8000", "[::1]:8000", "LOCALHOST"])
def test_this_machine_is_answered(pages, host):
    assert pages.get("/small/", headers={"host": host}).status_code == 200


def test_only_named_hosts_are_answered_by_a_server_for_others(atlas):
    with client_of(create_app([atlas], hosts=("lab.example",))) as client:
        assert client.get("/small/", headers={"host": "lab.example:80"}).status_code == 200
        assert client.get("/small/", headers={"host": "evil.example"}).status_code == 403


def test_every_address_needs_names():
    from typer.testing import CliRunner

    from headwise.cli.main import app

    result = CliRunner().invoke(app, ["serve", "atlas", "--host", "0.0.0.0"])
    assert isinstance(result.exception, HeadwiseError) and "--allow-host" in str(result.exception)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([("origin", "http://[")], 403),
        ([("origin", "http://127.0.0.1:8000"), ("origin", "https://evil.example")], 400),
        ([("host", "127.0.0.1:8000"), ("host", "evil.example")], 400),
    ],
)
def test_malformed_headers_are_refused_with_the_headers_of_safety(live, headers, status):
    sent = [("content-type", "application/json"), *headers]
    answer = live.post(LOOK, content='{"text": "x", "mode": "text"}', headers=sent)
    assert answer.status_code == status
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_half_a_character_is_refused(live):
    body = b'{"text": "\\ud800", "mode": "text"}'
    assert live.post(LOOK, content=body, headers={"content-type": "application/json"}).status_code == 422


def test_a_head_of_many_digits_is_unknown(pages):
    assert pages.get(f"/api/small/head/L{'9' * 5000}H0").status_code == 404


def test_one_bad_atlas_of_two_leaves_the_list(atlas, tmp_path):
    import shutil

    bad = tmp_path / "bad"
    shutil.copytree(atlas, bad)
    with client_of(create_app([atlas, bad])) as client:
        (bad / "zarr.json").write_text("{half")
        answer = client.get("/")
        assert answer.status_code == 200 and "It cannot be read" in answer.text and 'href="/small/"' in answer.text


def test_a_form_of_another_site_cannot_post(live):
    body = '{"text": "the old river", "mode": "text"}'
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""):
        assert live.post(LOOK, content=body, headers={"content-type": kind}).status_code == 415
    json = {"content-type": "application/json"}
    assert live.post(LOOK, content=body, headers={**json, "origin": "https://evil.example"}).status_code == 403
    assert live.post(LOOK, content=body, headers={**json, "origin": "null"}).status_code == 403
    assert live.post(LOOK, content=body, headers={**json, "origin": "http://127.0.0.1:8000"}).status_code == 200
    assert (
        live.options(
            LOOK, headers={"origin": "https://evil.example", "access-control-request-method": "POST"}
        ).status_code
        >= 400
    )


def test_a_large_body_is_refused_also_in_bits(live):
    json = {"content-type": "application/json"}
    assert live.post(LOOK, content=b"x" * (MAX_BODY_BYTES + 1), headers=json).status_code == 413

    def bits():
        for _ in range(MAX_BODY_BYTES // 4096 + 2):
            yield b"x" * 4096

    answer = live.post(LOOK, content=bits(), headers=json)
    assert answer.status_code == 413
    assert "256 KB" in answer.json()["error"]


def test_a_body_that_never_ends_is_given_up():
    async def never(scope, receive, send):
        raise AssertionError("the application was reached")

    async def receive():
        await asyncio.sleep(60)

    sent = []

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/", "raw_path": b"/",
             "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")]}  # fmt: skip
    with ThreadPoolExecutor(1) as apart:  # a browser of other tests may have a loop in this thread
        apart.submit(lambda: asyncio.run(Guard(never, body_seconds=0.05)(scope, receive, send))).result()
    assert sent[0]["status"] == 408


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"text": "the " * 5000, "mode": "text"}, "the limit is 288 tokens"),
        ({"text": "the " * 300, "mode": "text"}, "more than 288 tokens"),
        ({"text": "", "mode": "text"}, "empty"),
        ({"text": "the", "mode": "no"}, "Known: chat, question, text"),
        ({"text": "the", "mode": "text", "changes": {"L99H0": 0}}, "has no head L99H0"),
        ({"text": "the", "mode": "text", "max_new_tokens": 9999}, "give 1 to"),
        ({"text": 3}, "text"),
        ({"text": "the", "surprise": 1}, "surprise"),
        ({}, "text"),
    ],
)
def test_a_wrong_request_is_422_with_a_sentence(live, body, words):
    answer = live.post(LOOK, json=body)
    assert answer.status_code == 422
    assert words in answer.json()["error"] and "Traceback" not in answer.text


def test_broken_json_is_422(live):
    answer = live.post(LOOK, content=b"{", headers={"content-type": "application/json"})
    assert answer.status_code == 422 and answer.json()["error"]


def test_no_answer_tells_where_things_are_on_this_machine(live, atlas):
    said = [
        live.post(LOOK, json={"text": "the " * 5000}).text,
        live.get("/api/small/study/nothing").text,
        live.get("/small/").text,
        live.get("/api/small/live").text,
        live.get("/api/small/live/run/none/head/L0H0").text,
    ]
    assert not any(str(atlas.parent) in text or "site-packages" in text for text in said)


def test_markup_in_a_prompt_stays_json(live):
    text = "<script>alert(1)</script></script>"
    answer = live.post(LOOK, json={"text": text, "mode": "text", "max_new_tokens": 1})
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert text in answer.text
