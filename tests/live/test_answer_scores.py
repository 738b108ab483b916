"""Tokens and scores while an answer is generated: each when it is there, equal to those of `watch`, and nothing left behind."""

import json

import pytest
from answered import rows, write
from planted import planted_profile_model

import headwise as hw
from headwise.core.cancellation import Cancelled, CancelToken
from headwise.interventions import ScaleHeads
from headwise.live import LiveSession
from headwise.live.answer_scores import ALARM_RATE
from headwise.probes.running_scores import LOGPROB_MIN
from headwise.watching import known_scores

QUESTION = "where was the river ?"
TEXT = "the old river house door"


@pytest.fixture(scope="module")
def model(tiny):
    return tiny


@pytest.fixture(scope="module")
def atlas(tmp_path_factory, model):
    """60 answers: a long one is wrong."""
    folder = tmp_path_factory.mktemp("watched")
    questions = write(folder / "answers.jsonl", rows(60))
    return hw.build(model, ["streaming"], questions=questions, output=folder / "atlas", progress=False)


@pytest.fixture(scope="module")
def session(model, atlas):
    return LiveSession(model)


def left_on(model):
    hooks = sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.hf.modules())
    return hooks, model.hf.config._attn_implementation


def run(session, atlas, text=QUESTION, **options):
    events = []
    options = {"mode": "question", "max_new_tokens": 6, **options}
    return session.run(text, atlas=atlas.path, on_event=events.append, **options), events


def test_every_token_is_told_when_it_is_there(session, atlas):
    seen = []

    def on_event(event):
        seen.append((event["event"], stage))

    stage = ""

    def on_progress(name, share):
        nonlocal stage
        stage = name

    cancel = CancelToken(on_progress=on_progress)
    result = session.run(
        QUESTION, mode="question", max_new_tokens=6, atlas=atlas.path, cancel=cancel, on_event=on_event
    )
    assert seen == [("token", "generating the answer")] * len(result["steps"]) + [("answered", "generating the answer")]
    assert stage == "observing every head"


def test_what_was_told_is_what_the_result_holds(session, atlas):
    result, events = run(session, atlas)
    *tokens, end = events
    json.dumps(events, allow_nan=False)
    assert [event["index"] for event in tokens] == list(range(len(tokens))) and tokens[0]["limit"] == 6
    assert {event["part"] for event in events} == {"answer"}
    known = {"event", "part", "index", "limit"}
    assert [{key: event[key] for key in event if key not in known} for event in tokens] == result["steps"]
    assert (end["finished"], end["scores"]) == (result["finished"], result["scores"])
    assert list(result["scores"]) == list(known_scores(atlas))


@pytest.mark.parametrize("mode", ["question", "text"])
def test_scores_are_those_of_watch(session, model, atlas, mode):
    result, _ = run(session, atlas, mode=mode)
    for name in known_scores(atlas):
        options = {"at": ALARM_RATE} if mode == "question" else {}
        watch = hw.watch(model, atlas, score=name, **options)
        answer = watch.answer(QUESTION, mode=mode, max_new_tokens=6)
        assert [step["id"] for step in result["steps"]] == [event.token for event in answer.tokens]
        for step, event in zip(result["steps"], answer.tokens, strict=True):
            found = step["scores"][name]
            assert found["score"] == pytest.approx(event.score, rel=1e-5)
            assert found["heads"] == pytest.approx(event.heads, rel=1e-5)
            assert (found["unusual"], found["alarm"]) == (event.unusual, event.alarm)
            if mode == "question":
                assert found["probability"] == pytest.approx(event.probability, rel=1e-5)
            else:
                assert found["probability"] is None  # calibrated on questions alone
        assert result["scores"][name]["score"] == pytest.approx(answer.score, rel=1e-5)
        assert result["scores"][name]["alarm"] == answer.alarm


def test_a_changed_model_is_scored_as_it_is(session, model, atlas):
    changes = {"L0H1": 0.0, "L1H2": 2.0}
    result, _ = run(session, atlas, changes=changes)
    plain, _ = run(session, atlas)
    watch = hw.watch(model, atlas, score=LOGPROB_MIN)
    with hw.observe(model, ScaleHeads("L0H1", 0.0), ScaleHeads("L1H2", 2.0)):  # no score of this watch reads rows
        answer = watch.answer(QUESTION, mode="question", max_new_tokens=6)
    for step, event in zip(result["steps"], answer.tokens, strict=True):
        assert step["scores"][LOGPROB_MIN]["score"] == pytest.approx(event.score, rel=1e-5)
    assert result["steps"][0]["scores"]["RAUQ"] != plain["steps"][0]["scores"]["RAUQ"]


def test_a_what_if_tells_whose_tokens_they_are(session, atlas):
    result, _ = run(session, atlas, changes={"L0H1": 0.0})
    events = []
    found = session.what_if(result["id"], {"L1H2": 0.0}, draws=1, on_event=events.append)
    parts = [event["part"] for event in events if event["event"] == "token"]
    assert parts == ["unchanged"] * len(found["before"]["steps"]) + ["changed"] * len(found["after"]["steps"])
    assert [event["part"] for event in events if event["event"] == "answered"] == ["unchanged", "changed"]
    plain, _ = run(session, atlas)
    assert found["before"]["steps"] == plain["steps"] and found["before"]["scores"] == plain["scores"]
    changed, _ = run(session, atlas, changes={"L1H2": 0.0})
    assert found["after"]["steps"] == changed["steps"]  # reading the original answer comes after it


def test_a_cancelled_answer_leaves_nothing_and_the_next_is_right(session, model, atlas):
    before = left_on(model)
    plain, _ = run(session, atlas, max_new_tokens=8, mode="text", text=TEXT)
    cancel, events = CancelToken(), []

    def on_event(event):
        events.append(event)
        if event["event"] == "token" and event["index"] == 2:
            cancel.cancel()

    with pytest.raises(Cancelled):
        session.run(TEXT, mode="text", max_new_tokens=8, atlas=atlas.path, cancel=cancel, on_event=on_event)
    assert len(events) == 3
    assert left_on(model) == before and before[0] == 0
    cancel = CancelToken()
    with pytest.raises(Cancelled):
        session.what_if(plain["id"], {"L0H1": 0.0}, cancel=cancel, on_event=lambda event: cancel.cancel())
    assert left_on(model) == before
    again, _ = run(session, atlas, max_new_tokens=8, mode="text", text=TEXT)
    assert again["steps"] == plain["steps"]


def test_a_listener_that_fails_leaves_nothing(session, model, atlas):
    def fails(event):
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        session.run(QUESTION, atlas=atlas.path, on_event=fails)
    assert left_on(model)[0] == 0


def test_the_choices_name_the_default_first_and_say_what_they_are_worth(session, atlas):
    choices, reason = session.score_choices(atlas.path)
    assert reason is None and [one["name"] for one in choices] == list(known_scores(atlas))
    assert all("AUROC" in one["note"] and "alarm" in one["alarm"] for one in choices)


def test_an_atlas_without_scores_names_the_command(model, tmp_path):
    plain = hw.build(model, ["profile"], output=tmp_path / "plain", progress=False)
    other = LiveSession(model)
    choices, reason = other.score_choices(plain.path)
    assert choices == [] and "headwise build --studies streaming" in reason
    result, events = run(other, plain, mode="text")
    assert result["scores"] == {} and events[0]["scores"] == {} and events[0]["logprob"] < 0


def test_the_atlas_of_another_model_gives_no_score(atlas):
    other = LiveSession(planted_profile_model())
    choices, reason = other.score_choices(atlas.path)
    assert choices == [] and "valid for their own model" in reason
    assert run(other, atlas)[0]["scores"] == {}
