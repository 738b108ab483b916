"""The API with real models: what it answers is what `watch` answers alone, in batches that others join and leave."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from explorer import until
from planted import tiny_model
from synthetic.atlas import synthetic_atlas

from headwise.model import load
from headwise.server import ApiLimits, ApiModel, ApiSettings, create_app
from headwise.watching import Prompt, watch

TEXTS = [
    " ".join(("the old river house door was light".split() * 3)[start : start + 3 + start % 5]) for start in range(16)
]
TEMPLATE = "{% for turn in messages %}{{ turn.content }} {% endfor %}{% if add_generation_prompt %}the{% endif %}"


@pytest.fixture(scope="module")
def chatty() -> Any:
    model = load(*tiny_model(layers=3))
    model.tokenizer.chat_template = TEMPLATE
    return model


@pytest.fixture(scope="module", params=["Log-probability, min", "RAUQ"])
def watched(request: Any, chatty: Any) -> Any:
    return watch(chatty, request.param, threshold=2.5)


@pytest.fixture(scope="module")
def served(running: Any, tmp_path_factory: Any, watched: Any) -> Any:
    """A client of a server with the tiny model."""
    folder = synthetic_atlas(tmp_path_factory.mktemp("api") / "small").location.address
    found = ApiModel("tiny", watched.model, watched, Prompt)
    where = running(create_app([folder], api=ApiSettings("tiny", lambda: found, None, ApiLimits(batch=4))))
    until(lambda: httpx.get(f"{where}health").status_code == 200)
    with openai.OpenAI(base_url=f"{where}v1", api_key="none", max_retries=0, timeout=60) as client:
        yield client, where


def alone(watched: Any, text: str, **options: Any) -> Any:
    return watched.answer(Prompt(tuple(watched.model.ids(text)), **options))


def test_sixteen_at_once_get_what_each_would_get_alone(served, watched):
    client, _ = served
    lengths = {text: 3 + number % 7 * 4 for number, text in enumerate(TEXTS)}

    def ask(text: str) -> Any:
        return client.completions.create(
            model="tiny", prompt=text, max_tokens=lengths[text], temperature=0, seed=1, logprobs=0
        ).choices[0]

    with ThreadPoolExecutor(16) as pool:
        found = dict(zip(TEXTS, pool.map(ask, TEXTS), strict=True))
    for text, choice in found.items():
        expected = alone(watched, text, max_new_tokens=lengths[text])
        assert choice.text == "".join(event.text for event in expected.tokens), text
        assert choice.headwise["score"] == pytest.approx(expected.score, rel=1e-4)
        assert choice.headwise["alarm"] == expected.alarm and choice.headwise["finished"] == expected.finished
        scores = [event.score for event in expected.tokens]
        assert [one["score"] for one in choice.headwise["tokens"]] == pytest.approx(scores, rel=1e-4)
        logprobs = [event.logprob for event in expected.tokens]
        assert choice.logprobs.token_logprobs == pytest.approx(logprobs, rel=1e-3, abs=1e-4)


def test_a_seed_gives_the_same_answer_whole_streamed_and_among_others(served, watched):
    client, _ = served
    asked = {"model": "tiny", "messages": [{"role": "user", "content": TEXTS[0]}], "max_tokens": 12, "seed": 5}
    first = client.chat.completions.create(**asked).choices[0].message.content
    with ThreadPoolExecutor(8) as pool:
        again = [pool.submit(client.chat.completions.create, **asked) for _ in range(8)]
        assert {one.result().choices[0].message.content for one in again} == {first}
    chunks = list(client.chat.completions.create(**asked, stream=True))
    assert "".join(chunk.choices[0].delta.content for chunk in chunks) == first
    others = {client.chat.completions.create(**asked | {"seed": seed}).choices[0].message.content for seed in range(6)}
    assert len(others) > 1


def test_a_stop_text_is_no_part_of_the_answer(served):
    client, _ = served
    asked = {"model": "tiny", "prompt": TEXTS[0], "max_tokens": 20, "temperature": 0}
    whole = client.completions.create(**asked).choices[0].text
    stop = whole[len(whole) // 2 :][:4]
    choice = client.completions.create(**asked, stop=stop).choices[0]
    assert choice.text == whole[: whole.find(stop)] and choice.finish_reason == "stop"
    chunks = list(client.completions.create(**asked, stop=[stop], stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == choice.text
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_a_client_that_leaves_frees_the_model(served, watched):
    client, where = served
    streams = [client.completions.create(model="tiny", prompt=text, max_tokens=300, stream=True) for text in TEXTS[:4]]
    for stream in streams:
        next(iter(stream))
        stream.close()
    asked = client.completions.create(model="tiny", prompt=TEXTS[5], max_tokens=2, temperature=0)
    assert asked.choices[0].text == "".join(e.text for e in alone(watched, TEXTS[5], max_new_tokens=2).tokens)
    until(lambda: "headwise_answers_running 0.0" in httpx.get(f"{where}metrics").text)
    assert 'headwise_answers_total{finished="cancelled"} 4.0' in httpx.get(f"{where}metrics").text
    assert not watched.model.hf._forward_hooks


def test_the_code_of_the_page_runs(served):
    """With the tiny model in place of the atlas's."""
    _, where = served
    page = (Path(__file__).parents[2] / "docs" / "guide" / "api-server.md").read_text(encoding="utf-8")
    [code] = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(code.replace("http://127.0.0.1:8000/", where), names)
    assert names["choice"].headwise["tokens"] and names["chunk"].choices[0].finish_reason
    names["client"].close()
