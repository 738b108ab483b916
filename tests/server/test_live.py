"""The live page's requests: streams that tell how far they are, maps, scores, one job at a time."""

import json
import threading
import time

import httpx
import pytest
from explorer import Slow, Stepwise, client_of, until
from wire_maps import opened

from headwise.core.errors import ModelError
from headwise.server import create_app
from headwise.server.model_host import JobQueue, QueueFullError

TEXT = "the old river house door was light"


def lines(answer):
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def run_prompt(live, **more):
    last = lines(live.post("/api/small/live/run", json={"text": TEXT, "mode": "text", "max_new_tokens": 3, **more}))[-1]
    assert last["event"] == "done", last
    return last["result"]


def test_the_status_tells_what_the_model_is(live, pages):
    status = live.get("/api/small/live").json()
    assert (status["state"], status["layers"], status["heads"], status["scoring_unavailable"]) == ("ready", 3, 4, None)
    assert status["modes"] == ["question", "text"]  # the tiny tokenizer has no chat template
    assert pages.get("/api/small/live").json()["state"] == "off"
    assert pages.post("/api/small/live/run", json={"text": "the"}).status_code == 503


def test_a_look_a_map_and_a_change(live, session):
    result = run_prompt(live)
    found = live.get(f"/api/small/live/run/{result['id']}/head/L1H2", params={"rows": "2:6", "columns": "0:4"})
    assert opened(found.json()["weights"]).shape == (4, 4)
    assert found.headers["cache-control"] == "no-store"
    asked = {"run": result["id"], "changes": {"L1H2": 0.0}, "draws": 2}
    last = lines(live.post("/api/small/live/what_if", json=asked))[-1]
    assert last["result"]["effect"]["kl"] > 0 and len(last["result"]["controls"]) == 2
    assert last["result"]["stored"] == []  # this atlas has no study causal
    assert last["result"]["effect"] == session.what_if(result["id"], {"L1H2": 0.0}, draws=0)["effect"]


@pytest.mark.parametrize("query", ["rows=5", "rows=5:2", "columns=0:9999", "size=0", "size=x", "rows=-1:3"])
def test_wrong_windows_are_422(live, query):
    result = run_prompt(live)
    assert live.get(f"/api/small/live/run/{result['id']}/head/L0H0?{query}").status_code == 422
    assert live.get(f"/api/small/live/run/{result['id']}/head/L7H0").status_code == 422


def test_an_answer_is_scored_with_all_heads(live, session, atlas):
    asked = {"question": "where was the old house ?", "answer": "in the garden"}
    last = lines(live.post("/api/small/live/score", json=asked))[-1]
    scored = last["result"]
    assert 0 <= scored["probability"] <= 1
    assert (len(scored["head_contributions"]), len(scored["head_contributions"][0])) == (3, 4)
    assert scored["figure"]["panels"][0]["type"] == "Heatmap"
    from headwise.watching.scoring import AnswerScorer

    plain = AnswerScorer.open(atlas, session.model).score(asked["question"], asked["answer"])
    assert scored["probability"] == pytest.approx(plain.probability, rel=1e-5)
    for name, added in plain.heads.items():
        layer, head = map(int, name[1:].split("H"))
        assert scored["head_contributions"][layer][head] == pytest.approx(added, rel=1e-4)


def test_a_model_that_cannot_be_loaded_leaves_the_pages(atlas):
    def fails():
        raise ModelError("there is no such model; name another")

    with client_of(create_app([atlas], open_session=fails)) as client:
        until(lambda: client.get("/api/small/live").json()["state"] == "failed")
        assert client.get("/api/small/live").json()["message"] == "there is no such model; name another"
        assert client.get("/small/heads").status_code == 200


@pytest.fixture
def slow():
    return Slow()


@pytest.fixture
def busy(running, atlas, slow):
    where = running(create_app([atlas], open_session=lambda: slow, queue=JobQueue(max_waiting=2, seconds=20)))
    with httpx.Client(base_url=where, timeout=20) as client:
        until(lambda: client.get("/api/small/live").json()["state"] == "ready")
        yield client, where


def post(where, text, into):
    with httpx.Client(base_url=where, timeout=20) as client:
        answer = client.post("/api/small/live/run", json={"text": text})
        into.append((text, answer.status_code, answer.text))


def test_others_wait_pages_are_served_and_a_full_line_is_told(busy, slow):
    client, where = busy
    done: list = []
    threads = [threading.Thread(target=post, args=(where, "slow", done))]
    threads[0].start()
    assert slow.started.wait(10)
    for text in ("second", "third"):
        threads.append(threading.Thread(target=post, args=(where, text, done)))
        threads[-1].start()
        time.sleep(0.2)
    answer = client.post("/api/small/live/run", json={"text": "fourth"})
    assert answer.status_code == 503 and "try again" in answer.json()["error"] and answer.headers["retry-after"]
    begun = time.monotonic()
    assert client.get("/small/heads").status_code == 200 and client.get("/api/small/live").status_code == 200
    assert time.monotonic() - begun < 5
    assert not done
    slow.go.set()
    for thread in threads:
        thread.join(timeout=20)
    assert slow.begun == ["slow", "second", "third"]
    said = {text: (status, lines) for text, status, lines in done}
    assert [status for status, _ in said.values()] == [200, 200, 200]
    assert '"event": "waiting", "ahead": 1' in said["second"][1] and '"ahead": 2' in said["third"][1]


def test_a_client_that_goes_away_cancels_its_job_alone(busy, slow):
    client, where = busy
    asked = {"text": "slow"}
    with httpx.stream("POST", f"{where}api/small/live/run", json=asked, timeout=20) as answer:
        assert answer.status_code == 200 and slow.started.wait(10)
        next(answer.iter_lines())
    until(lambda: slow.ended == ["slow"], 10)
    assert '"done"' in client.post("/api/small/live/run", json={"text": "next"}).text


def test_what_goes_wrong_inside_tells_no_path(busy, slow, caplog):
    client, _ = busy
    answer = client.post("/api/small/live/run", json={"text": "broken"})
    assert "something went wrong" in answer.text and "secret" not in answer.text and "Traceback" not in answer.text
    assert '"done"' in client.post("/api/small/live/run", json={"text": "next"}).text


@pytest.fixture
def stepwise(running, model, scored_atlas):
    session = Stepwise(model)
    where = running(create_app([scored_atlas], open_session=lambda: session))
    with httpx.Client(base_url=where, timeout=20) as client:
        until(lambda: client.get("/api/scored/live").json()["state"] == "ready")
        yield client, session


def test_a_token_is_sent_before_the_next_is_generated(stepwise):
    client, session = stepwise
    asked = {"text": TEXT, "mode": "question", "max_new_tokens": 4}
    events = []
    with client.stream("POST", "/api/scored/live/run", json=asked) as answer:
        for line in answer.iter_lines():
            events.append(json.loads(line))
            if events[-1]["event"] == "token":
                assert not session.ended.is_set()
                session.let.release()
    tokens = [event for event in events if event["event"] == "token"]
    kinds = [event["event"] for event in events]
    assert [event["index"] for event in tokens] == [0, 1, 2, 3]
    assert kinds.index("answered") > kinds.index("token") and kinds[-1] == "done"
    result = events[-1]["result"]
    assert [event["scores"] for event in tokens] == [step["scores"] for step in result["steps"]]
    status = client.get("/api/scored/live").json()
    assert [one["name"] for one in status["scores"]] == list(tokens[0]["scores"]) and not status["scores_unavailable"]


def test_a_client_that_leaves_in_the_middle_of_an_answer_leaves_nothing_on_the_model(stepwise, model):
    client, session = stepwise
    implementation = model.hf.config._attn_implementation
    asked = {"text": TEXT, "mode": "question", "max_new_tokens": 64}
    with client.stream("POST", "/api/scored/live/run", json=asked) as answer:
        for line in answer.iter_lines():
            event = json.loads(line)
            if event["event"] == "token":
                if event["index"] == 2:
                    break
                session.let.release()
    time.sleep(0.5)  # until the server knows
    session.let.release(100)
    assert session.ended.wait(10)
    until(lambda: not any(one._forward_hooks or one._forward_pre_hooks for one in model.hf.modules()))
    assert model.hf.config._attn_implementation == implementation
    assert not session.history._runs  # it did not run to its end
    session.let.release(100)
    done = client.post("/api/scored/live/run", json={**asked, "max_new_tokens": 3})
    assert lines(done)[-1]["event"] == "done"


def test_without_scores_the_command_is_named_and_no_path(live, atlas):
    status = live.get("/api/small/live").json()
    assert status["scores"] == [] and "headwise build --studies streaming -o small" in status["scores_unavailable"]
    assert str(atlas.parent) not in status["scores_unavailable"]
    body = live.post("/api/small/live/run", json={"text": TEXT, "mode": "text", "max_new_tokens": 3})
    tokens = [event for event in lines(body) if event["event"] == "token"]
    assert len(tokens) == 3 and all(event["scores"] == {} for event in tokens)


def test_a_job_over_its_time_is_stopped():
    queue = JobQueue(seconds=0.2)

    def work(cancel):
        while True:
            cancel.check()
            time.sleep(0.01)

    job = queue.submit(work)
    assert job.finished.wait(10)
    assert "longer than 0.2 seconds" in job.status.error
    job = queue.submit(lambda cancel: 7)
    assert job.finished.wait(10) and job.status.result == 7
    queue.close()


def test_a_job_cancelled_in_line_is_never_started():
    queue, go, ran = JobQueue(max_waiting=2), threading.Event(), []
    first = queue.submit(lambda cancel: go.wait(10))
    until(lambda: first.status.event == "running")
    second, third = queue.submit(lambda cancel: ran.append(2)), queue.submit(lambda cancel: ran.append(3))
    with pytest.raises(QueueFullError):
        queue.submit(lambda cancel: None)
    second.cancel.cancel()
    fourth = queue.submit(lambda cancel: ran.append(4))  # its place is free again
    go.set()
    assert third.finished.wait(10) and fourth.finished.wait(10)
    assert ran == [3, 4]
    queue.close()
    with pytest.raises(QueueFullError):
        queue.submit(lambda cancel: None)
