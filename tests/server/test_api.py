"""OpenAI's API with OpenAI's client, against a stand-in for the model: answers, streams, refusals, limits, nothing mixed up."""

from __future__ import annotations

import json
import re
import threading
import time
from typing import Any

import httpx
import openai
import pytest
from api_server import NAME, StandInModel, StandInPrompt, StandInWatch, settings, words
from explorer import client_of, until
from synthetic.atlas import synthetic_atlas

from headwise.core.errors import ModelError
from headwise.server import ApiKey, ApiSettings, create_app
from headwise.server.api_metrics import ApiMetrics
from headwise.server.batching import Batching, Failure
from headwise.server.model_host import JobQueue, QueueFullError

CHAT = [{"role": "user", "content": "ab"}]  # 97 + 98 = 195


@pytest.fixture(scope="module")
def small(tmp_path_factory: Any) -> Any:
    return synthetic_atlas(tmp_path_factory.mktemp("api") / "small").location.address


@pytest.fixture
def serve(running: Any, small: Any) -> Any:
    """``serve(watch, model, key, **limits)`` gives the address of a server."""

    def start(watch: Any, *args: Any, **limits: Any) -> str:
        where = running(create_app([small], api=settings(watch, *args, **limits)))
        until(lambda: httpx.get(f"{where}health").status_code == 200)
        return where

    return start


CLIENTS: list[openai.OpenAI] = []


def client(where: str, key: str = "unused", *, timeout: float = 20) -> openai.OpenAI:
    CLIENTS.append(openai.OpenAI(base_url=f"{where}v1", api_key=key, max_retries=0, timeout=timeout))
    return CLIENTS[-1]


@pytest.fixture(autouse=True)
def closed() -> Any:
    yield
    while CLIENTS:
        CLIENTS.pop().close()


@pytest.fixture
def watch() -> StandInWatch:
    return StandInWatch()


@pytest.fixture
def where(serve: Any, watch: StandInWatch) -> str:
    return serve(watch)


@pytest.fixture(scope="module")
def shared(running: Any, small: Any) -> str:
    """A server whose counts nobody looks at."""
    address = running(create_app([small], api=settings(StandInWatch())))
    until(lambda: httpx.get(f"{address}health").status_code == 200)
    return address


def metrics(where: str, **headers: str) -> dict[str, float]:
    text = httpx.get(f"{where}metrics", headers=headers).text
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in text.splitlines() if line[0] != "#"}


# ---- answers --------------------------------------------------------------------------------------------------------


def test_the_model_is_listed(shared):
    found = client(shared).models
    assert [one.id for one in found.list()] == [NAME]
    assert found.retrieve(NAME).owned_by == "headwise"
    with pytest.raises(openai.NotFoundError):
        found.retrieve("who/other")


def test_a_chat_is_answered_with_the_state_of_every_token(shared):
    found = client(shared).chat.completions.create(model=NAME, messages=CHAT, max_tokens=6, logprobs=True)
    [choice] = found.choices
    assert choice.message.content == "".join(words(StandInPrompt((195,)), 6)) and choice.message.role == "assistant"
    assert choice.finish_reason == "length"
    assert (found.usage.prompt_tokens, found.usage.completion_tokens, found.usage.total_tokens) == (2, 6, 8)
    assert [one.logprob for one in choice.logprobs.content] == [-0.5] * 6
    told = choice.headwise
    assert told["score"] == told["probability"] == 0.5 and told["alarm"] is True and told["finished"] == "length"
    assert list(told["heads"].items()) == [(f"L0H{head}", head / 10) for head in (7, 6, 5, 4, 3)]
    assert [one["text"] for one in told["tokens"]] == words(StandInPrompt((195,)), 6)
    assert [one["alarm"] for one in told["tokens"]] == [False] * 4 + [True] * 2
    assert found.id.startswith("chatcmpl-") and found.object == "chat.completion" and found._request_id == found.id


def test_a_chat_is_streamed_with_the_state_after_each_token(shared):
    chunks = list(
        client(shared).chat.completions.create(
            model=NAME, messages=CHAT, max_completion_tokens=5, stream=True, stream_options={"include_usage": True}
        )
    )
    assert chunks[0].choices[0].delta.role == "assistant" and chunks[0].choices[0].delta.content == ""
    assert "".join(chunk.choices[0].delta.content for chunk in chunks[:-1]) == "".join(words(StandInPrompt((195,)), 5))
    assert [chunk.choices[0].headwise["score"] for chunk in chunks[1:-1]] == [0, 0.1, 0.2, 0.3, 0.4]
    assert [chunk.choices[0].finish_reason for chunk in chunks[:-1]] == [None] * 5 + ["length"]
    assert chunks[-1].choices == [] and chunks[-1].usage.total_tokens == 7
    assert len({chunk.id for chunk in chunks}) == 1 and {chunk.object for chunk in chunks} == {"chat.completion.chunk"}


def test_a_completion_is_answered_whole_and_streamed(shared):
    asked: dict[str, Any] = {"model": NAME, "prompt": "ab", "max_tokens": 3, "logprobs": 0}
    [choice] = client(shared).completions.create(**asked).choices
    assert choice.text == "195:0 195:1 195:2 " and choice.headwise["probability"] == 0.2
    assert choice.logprobs.tokens == words(StandInPrompt((195,)), 3) and choice.logprobs.text_offset == [0, 6, 12]
    chunks = list(client(shared).completions.create(**asked, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == choice.text
    assert [chunk.choices[0].logprobs.text_offset for chunk in chunks] == [[0], [6], [12]]
    assert client(shared).completions.create(model=NAME, prompt="ab").usage.completion_tokens == 16  # OpenAI's default


def test_several_prompts_and_several_answers_keep_their_order(shared):
    found = client(shared).completions.create(model=NAME, prompt=["ab", "b"], n=2, max_tokens=1)
    assert [(one.index, one.text) for one in found.choices] == [
        (0, "195:0 "),
        (1, "195:0 "),
        (2, "98:0 "),
        (3, "98:0 "),
    ]
    assert (found.usage.prompt_tokens, found.usage.completion_tokens) == (3, 4)
    assert client(shared).completions.create(model=NAME, prompt=[5, 6], max_tokens=1).choices[0].text == "11:0 "
    lists = client(shared).completions.create(model=NAME, prompt=[[5, 6], [9]], max_tokens=1).choices
    assert [one.text for one in lists] == ["11:0 ", "9:0 "]


def test_parameters_reach_the_engine(where, watch):
    ask = client(where).chat.completions.create
    ask(model=NAME, messages=CHAT, temperature=0.3, top_p=0.5, seed=11, stop=["x", "yy"], max_tokens=2, n=2, user="me")
    assert watch.prompts == [StandInPrompt((97, 98), 2, 0.3, 0.5, seed, ("x", "yy")) for seed in (11, 12)]
    ask(model=NAME, messages=CHAT, stop=":1", seed=-1)
    assert watch.prompts[-1] == StandInPrompt((97, 98), CONTEXT_LEFT, 1.0, 1.0, 2**63 - 1, (":1",))
    ask(model=NAME, messages=CHAT, stop=":1")
    ask(model=NAME, messages=CHAT, stop=":1")
    assert watch.prompts[-1].seed != watch.prompts[-2].seed


CONTEXT_LEFT = 498  # of 500 tokens


def test_a_stop_text_ends_the_answer(shared):
    [choice] = client(shared).completions.create(model=NAME, prompt="ab", stop=":2").choices
    assert choice.text == "195:0 195:1 195" and choice.finish_reason == "stop"


def test_turns_reach_the_template_as_they_are(serve, watch):
    model = StandInModel()
    where = serve(watch, model)
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    answered = {"role": "assistant", "content": "x", "refusal": None, "tool_calls": []}  # as a client sends it back
    turns = [{"role": "developer", "content": "s"}, answered, {"role": "user", "content": parts, "name": "Ann"}]
    client(where).chat.completions.create(model=NAME, messages=turns, max_tokens=1)
    assert model.chats == [
        [
            {"role": "system", "content": "s"},
            {"role": "assistant", "content": "x"},
            {"role": "user", "content": "ab", "name": "Ann"},
        ]
    ]


# ---- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "words_of_it", "param"),
    [
        ({"temperature": 3}, "temperature", "temperature"),
        ({"temperature": float("nan")}, "temperature", "temperature"),
        ({"top_p": 0}, "top_p", "top_p"),
        ({"n": 9}, "at most 8 answers", "n"),
        ({"max_tokens": 2000}, "at most 1,024", "max_tokens"),
        ({"max_tokens": 499}, "does not fit", "messages"),
        ({"max_tokens": 3, "max_completion_tokens": 4}, "differ", "max_tokens"),
        ({"max_tokens": True}, "max_tokens", "max_tokens"),
        ({"stop": ""}, "stop text", "stop"),
        ({"logit_bias": {"5": 1}}, "logit_bias is not supported", "logit_bias"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools is not supported", "tools"),
        ({"presence_penalty": 0.5}, "presence_penalty is not supported", "presence_penalty"),
        ({"response_format": {"type": "json_object"}}, "response_format", "response_format"),
        ({"logprobs": True, "top_logprobs": 3}, "top_logprobs", "top_logprobs"),
        ({"stream_options": {"include_usage": True}}, "streamed answers only", "stream_options"),
        ({"top_k": 5}, "there is no parameter 'top_k'", "top_k"),
        ({"messages": []}, "messages", "messages"),
        ({"messages": "hello"}, "messages", "messages"),
        ({"messages": [{"role": "tool", "content": "x", "tool_call_id": "1"}]}, "role", "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}, "content", "messages"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "roles must alternate", "messages"),
        ({"messages": [{"role": "user", "content": "x" * 501}]}, "more than 499 tokens", "messages"),
        ({"messages": [{"role": "user", "content": "x" * 20_000}]}, "more than 499 tokens", "messages"),
        ({"model": "other"}, "there is no model 'other'", "model"),
    ],
)  # fmt: skip
def test_what_is_not_supported_is_refused_by_name(shared, asked, words_of_it, param):
    body = {"model": NAME, "messages": CHAT, **asked}
    reply = httpx.post(
        f"{shared}v1/chat/completions", content=json.dumps(body), headers={"content-type": "application/json"}
    )
    error = reply.json()["error"]
    assert reply.status_code == (404 if "model" in asked else 400) and set(error) == {
        "message",
        "type",
        "param",
        "code",
    }
    assert words_of_it in error["message"] and error["type"] == "invalid_request_error" and error["param"] == param


@pytest.mark.parametrize(
    "asked",
    [
        {"echo": True}, {"suffix": "x"}, {"best_of": 3}, {"logprobs": 2}, {"logprobs": 1, "temperature": 1}, {"prompt": []},
        {"prompt": ["a", 5]}, {"prompt": [[1], "a"]}, {"prompt": [-1]}, {"prompt": [5000]}, {"prompt": None},
        {"prompt": ["a"] * 9},
    ],
)  # fmt: skip
def test_completions_refuse_what_they_cannot_do(shared, asked):
    reply = httpx.post(f"{shared}v1/completions", json={"model": NAME, "prompt": "ab", **asked})
    assert reply.status_code == 400 and reply.json()["error"]["message"], reply.text


def test_harmless_and_neutral_parameters_are_accepted(shared):
    more = {
        "user": "me", "metadata": {"a": "b"}, "store": False, "service_tier": "auto", "n": 1, "logit_bias": {}, "tools": [],
        "presence_penalty": 0, "frequency_penalty": 0.0, "response_format": {"type": "text"}, "top_logprobs": 0,
        "tool_choice": "none", "parallel_tool_calls": True, "modalities": ["text"], "stop": None, "logprobs": None,
    }  # fmt: skip
    body = {"model": NAME, "messages": CHAT, "max_tokens": 1, **more}
    assert httpx.post(f"{shared}v1/chat/completions", json=body).status_code == 200


def test_greedy_completions_may_ask_for_the_most_likely_token(shared):
    found = client(shared).completions.create(model=NAME, prompt="ab", logprobs=1, temperature=0, max_tokens=1)
    assert found.choices[0].logprobs.top_logprobs == [{"195:0 ": -0.5}]


def test_a_model_without_a_template_takes_texts_only(serve, watch):
    where = serve(watch, StandInModel(template=False))
    with pytest.raises(openai.BadRequestError, match="no chat template") as refused:
        client(where).chat.completions.create(model=NAME, messages=CHAT)
    assert refused.value.code == "no_chat_template"
    assert client(where).completions.create(model=NAME, prompt="ab", max_tokens=1).choices[0].text == "195:0 "


@pytest.mark.parametrize(
    ("path", "headers", "content", "status"),
    [
        ("v1/completions", {"content-type": "text/plain"}, "{}", 415),
        ("v1/completions", {"origin": "https://evil.example"}, "{}", 403),
        ("v1/completions", {"host": "evil.example"}, "{}", 403),
        ("v1/completions", {}, "x" * 300_000, 413),
        ("v1/completions", {}, "{", 400),
        ("v1/completions", {}, '{"model": "\\ud800"}', 400),
        ("v1/embeddings", {}, "{}", 404),
        ("v1//models", {}, "{}", 404),
        ("v1/models", {}, "{}", 404),
    ],
)
def test_whoever_refuses_uses_the_form_of_the_api(small, watch, path, headers, content, status):
    with client_of(create_app([small], api=settings(watch))) as asking:
        reply = asking.post(f"/{path}", content=content, headers={"content-type": "application/json", **headers})
        assert reply.status_code == status and set(reply.json()["error"]) == {"message", "type", "param", "code"}
        assert reply.headers["x-content-type-options"] == "nosniff"


def test_the_pages_are_as_they_were(small, where):
    assert httpx.get(f"{where}small/").status_code == 200
    assert httpx.get(f"{where}api/small/live").json()["state"] == "off"
    assert isinstance(httpx.get(f"{where}api/none/live").json()["error"], str)
    with client_of(create_app([small])) as plain:
        assert plain.get("/v1/models").status_code == plain.get("/metrics").status_code == 404


def test_no_atlas_takes_an_address_of_the_api(tmp_path, watch):
    folder = synthetic_atlas(tmp_path / "v1").location.address
    with client_of(create_app([folder], api=settings(watch))) as both, client_of(create_app([folder])) as alone:
        assert both.get("/v1-2/").status_code == 200 and both.get("/v1/models").status_code == 200
        assert alone.get("/v1/").status_code == 200


# ---- the key --------------------------------------------------------------------------------------------------------

KEY = "0123456789abcdef0123"


def test_the_key_is_asked_for(serve, watch):
    where = serve(watch, None, ApiKey(KEY))
    assert client(where, KEY).completions.create(model=NAME, prompt="ab", max_tokens=1).choices[0].text == "195:0 "
    for wrong in (KEY[:-1], KEY + "x", "sk-other"):
        with pytest.raises(openai.AuthenticationError) as refused:
            client(where, wrong).models.list()
        assert refused.value.code == "invalid_api_key" and KEY not in str(refused.value)
    for path in ("v1/models", "v1/models/x", "metrics"):
        reply = httpx.get(where + path)
        assert reply.status_code == 401 and reply.headers["www-authenticate"] == "Bearer"
        assert httpx.get(where + path, headers={"authorization": f"Basic {KEY}"}).status_code == 401
    assert httpx.get(f"{where}health").status_code == 200
    twice = [("authorization", f"Bearer {KEY}"), ("authorization", "Bearer x")]
    assert httpx.get(f"{where}v1/models", headers=twice).status_code == 400
    assert metrics(where, authorization=f"Bearer {KEY}")["headwise_answers_accepted_total"] == 1
    assert len(watch.prompts) == 1


# ---- limits, cancelling, failures -----------------------------------------------------------------------------------


def ask(where: str, text: str, into: list[Any], **more: Any) -> None:
    body = {"model": NAME, "prompt": text, "max_tokens": 3, **more}
    reply = httpx.post(f"{where}v1/completions", json=body, timeout=20)
    into.append((text, reply.status_code, reply.json(), reply.headers))


def together(where: str, texts: list[str], **more: Any) -> tuple[list[threading.Thread], list[Any]]:
    into: list[Any] = []
    threads = [threading.Thread(target=ask, args=(where, text, into), kwargs=more) for text in texts]
    for thread in threads:
        thread.start()
    return threads, into


def join(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(timeout=20)
    assert not any(thread.is_alive() for thread in threads)


@pytest.mark.parametrize("joins", [True, False])
def test_sixteen_at_once_are_all_answered_each_with_its_own(serve, joins):
    watch = StandInWatch(joins=joins)
    where = serve(watch)
    texts = [chr(100 + number) for number in range(16)]
    found: list[str] = []

    def streamed(text: str) -> None:
        chunks = client(where).completions.create(model=NAME, prompt=text, max_tokens=20, stream=True)
        found.append("".join(chunk.choices[0].text for chunk in chunks))

    threads = [threading.Thread(target=streamed, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    whole, into = together(where, texts, max_tokens=20)
    join([*threads, *whole])
    expected = {"".join(words(StandInPrompt((ord(text),)), 20)) for text in texts}
    assert set(found) == expected and len(found) == 16
    assert {reply["choices"][0]["text"] for _, _, reply, _ in into} == expected and len(into) == 16
    assert max(watch.batches) <= 8 and len(watch.prompts) == 32
    count = metrics(where)
    assert count["headwise_answers_accepted_total"] == count['headwise_answers_total{finished="length"}'] == 32
    assert count["headwise_generated_tokens_total"] == 32 * 20
    assert count["headwise_answers_waiting"] == count["headwise_answers_running"] == 0
    assert count['headwise_requests_total{address="/v1/completions",status="200"}'] == 32
    assert all(stream.closed for stream in watch.streams)


def test_others_join_a_running_batch(serve, watch):
    watch.seconds = 0.01
    where = serve(watch)
    first, _ = together(where, ["a"], max_tokens=100)
    until(lambda: watch.batches)
    second, into = together(where, ["b"], max_tokens=2)
    join(second)
    assert first[0].is_alive() and into[0][1] == 200 and len(watch.streams) == 1
    join(first)


def test_a_full_queue_is_429_and_says_when_to_come_again(serve, watch):
    watch.go.clear()
    where = serve(watch, batch=1, waiting=1)
    threads, into = together(where, ["a", "b"])
    until(lambda: metrics(where)["headwise_answers_running"] + metrics(where)["headwise_answers_waiting"] == 2)
    with pytest.raises(openai.RateLimitError, match="try again") as refused:
        client(where).completions.create(model=NAME, prompt="c")
    assert 1 <= int(refused.value.response.headers["retry-after"]) <= 60 and refused.value.type == "rate_limit_error"
    watch.go.set()
    join(threads)
    assert sorted(text for text, status, *_ in into if status == 200) == ["a", "b"]


def test_a_client_that_leaves_frees_its_place(serve, watch):
    watch.seconds = 0.01
    where = serve(watch, batch=1, waiting=2)
    stream = client(where).completions.create(model=NAME, prompt="a", max_tokens=400, stream=True)
    next(iter(stream))
    begun = time.monotonic()
    stream.close()
    assert client(where).completions.create(model=NAME, prompt="b", max_tokens=1).choices[0].text == "98:0 "
    assert time.monotonic() - begun < 3 and watch.ended == ["cancelled", "length"]


def test_a_client_that_leaves_before_it_is_answered_leaves_the_queue(serve, watch):
    watch.go.clear()
    where = serve(watch, batch=1, waiting=2)
    threads, _ = together(where, ["a"])
    until(lambda: metrics(where)["headwise_answers_running"] == 1)
    for text in "bc":
        with pytest.raises(openai.APITimeoutError):
            client(where, timeout=0.3).completions.create(model=NAME, prompt=text)
    stream = client(where, timeout=0.3).completions.create(
        model=NAME, prompt="d", stream=True
    )  # its response has begun
    with pytest.raises(openai.APITimeoutError):
        next(iter(stream))
    until(lambda: metrics(where)["headwise_answers_waiting"] == 0)
    watch.go.set()
    join(threads)
    count = metrics(where)
    assert count['headwise_answers_total{finished="cancelled"}'] == 3 and len(watch.prompts) == 1
    assert count['headwise_answers_total{finished="length"}'] == 1


def test_an_answer_over_its_time_is_ended(serve, watch):
    watch.seconds = 0.02
    where = serve(watch, seconds=0.4)
    with pytest.raises(openai.APIStatusError, match="longer than") as late:
        client(where).completions.create(model=NAME, prompt="a", max_tokens=400)
    assert late.value.status_code == 504
    with pytest.raises(openai.APIError, match="longer than"):
        list(client(where).completions.create(model=NAME, prompt="a", max_tokens=400, stream=True))
    until(lambda: watch.ended == ["cancelled", "cancelled"])


def test_a_failure_ends_its_batch_and_tells_no_path(serve):
    watch = StandInWatch(fails_on=ord("!"))
    where = serve(watch)
    with pytest.raises(openai.InternalServerError, match="something went wrong") as failed:
        client(where).completions.create(model=NAME, prompt="!")
    assert "secret" not in str(failed.value)
    with pytest.raises(openai.APIError, match="something went wrong"):
        list(
            client(where).chat.completions.create(model=NAME, messages=[{"role": "user", "content": "!"}], stream=True)
        )
    assert client(where).completions.create(model=NAME, prompt="b", max_tokens=1).choices[0].text == "98:0 "
    assert metrics(where)['headwise_answers_total{finished="failed"}'] == 2


def test_live_jobs_take_turns_with_batches(running, small, watch):
    """A job of the live page waits for the running batch only, however many requests come after it."""
    watch.seconds = 0.01
    jobs = JobQueue()
    where = running(create_app([small], api=settings(watch, batch=2), queue=jobs))
    until(lambda: httpx.get(f"{where}health").status_code == 200)
    threads, _ = together(where, ["a", "b"], max_tokens=30)
    until(lambda: 2 in watch.batches)
    job = jobs.submit(lambda cancel: list(watch.ended))
    more, _ = together(where, ["c", "d", "e"], max_tokens=30)
    join([*threads, *more])
    assert job.finished.wait(5) and len(job.status.result) == 2
    assert len(watch.ended) == 5


def test_a_model_that_loads_or_cannot_be_loaded_is_told(small):
    ready = threading.Event()

    def opens() -> Any:
        ready.wait(10)
        raise ModelError("there is no such model; name another")

    with client_of(create_app([small], api=ApiSettings(NAME, opens))) as asking:
        body = {"model": NAME, "prompt": "a"}
        assert asking.get("/health").json() == {"status": "loading"} and asking.get("/health").status_code == 503
        reply = asking.post("/v1/completions", json=body)
        assert (
            reply.status_code == 503
            and "being loaded" in reply.json()["error"]["message"]
            and reply.headers["retry-after"]
        )
        assert asking.get("/v1/models").json()["data"][0]["id"] == NAME
        ready.set()
        until(lambda: asking.get("/health").json() == {"status": "failed"})
        assert "no such model" in asking.post("/v1/completions", json=body).json()["error"]["message"]
        assert asking.get("/small/").status_code == 200


def test_a_server_that_stops_ends_what_runs_and_what_waits(watch):
    watch.seconds = 0.01
    jobs, ended = JobQueue(), []
    batching = Batching(jobs, lambda: watch, ApiMetrics(), max_batch=1)
    batching.submit([(StandInPrompt((number,), 1000), lambda event: ended.append(event)) for number in range(3)])
    until(lambda: len(ended) > 2)
    jobs.close()
    batching.close()
    until(lambda: [event.status for event in ended if isinstance(event, Failure)] == [503] * 3)
    assert watch.streams[0].closed and batching.running == batching.waiting == 0
    with pytest.raises(QueueFullError):
        batching.submit([(StandInPrompt((1,)), ended.append)])
    assert batching.waiting == 0


def test_metrics_are_in_the_text_format(where):
    client(where).completions.create(model=NAME, prompt="ab", max_tokens=8)
    with pytest.raises(openai.BadRequestError):
        client(where).completions.create(model=NAME, prompt="ab", max_tokens=8, echo=True)
    reply = httpx.get(f"{where}metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=")
    assert all(re.fullmatch(r"#.*|[a-z_]+(\{.*\})? [-+.\dea-zA-Z]+", line) for line in reply.text.splitlines())
    count = metrics(where)
    assert count['headwise_requests_total{address="/v1/completions",status="400"}'] == 1
    assert count["headwise_prompt_tokens_total"] == 2 and count["headwise_generated_tokens_total"] == 8
    assert count["headwise_alarms_total"] == count["headwise_unusual_total"] == count["headwise_probability_count"] == 1
    assert count["headwise_first_token_seconds_count"] == count["headwise_queue_seconds_count"] == 1
    assert count["process_resident_memory_bytes"] > 1e6
