"""A session: prompt runs, large maps, scaled heads. Every number against a plain computation."""

import json
import math

import numpy as np
import pytest
import torch
from planted import PLANTED
from synthetic.causal import causal_dataset
from wire_maps import opened, plain

from headwise.atlas import Atlas
from headwise.core.cancellation import Cancelled, CancelToken
from headwise.core.errors import DataError
from headwise.interventions import ScaleHeads
from headwise.live import LiveSession
from headwise.live.effects import stored_effects
from headwise.seam import observe

TEXT = "the old river house door was light and the rain in the garden"


def ids_of(session, run):
    return session.history[run["id"]].ids


def test_a_look_is_plain_json_and_tells_every_token(session):
    run = session.run(TEXT, mode="text", max_new_tokens=5)
    json.dumps(run, allow_nan=False)
    assert len(run["tokens"]) == run["prompt_tokens"] + len(run["steps"])
    assert run["tokens"][0] == {"text": "<s>", "special": True, "generated": False}
    assert [one["text"] for one in run["tokens"][1:4]] == ["the", "old", "river"]
    assert sum(one["text"] == "the" for one in run["tokens"][: run["prompt_tokens"]]) == 3  # not merged
    assert [one["generated"] for one in run["tokens"]] == [False] * run["prompt_tokens"] + [True] * len(run["steps"])
    assert run["logprob"] == pytest.approx(sum(step["logprob"] for step in run["steps"]))
    assert run["steps"][0]["distribution"] == run["next"]


def test_without_an_answer_the_next_token_is_told(session):
    run = session.run(TEXT, mode="text", answer=False, changes={"L0H1": 0.0})
    assert run["steps"] == [] and run["logprob"] is None
    assert len(run["next"]["top"]) == 12
    answered = session.run(TEXT, mode="text", max_new_tokens=1, changes={"L0H1": 0.0})
    assert run["next"]["top"][0]["p"] == pytest.approx(answered["next"]["top"][0]["p"], rel=1e-4)
    found = session.what_if(run["id"], {"L0H1": 0.0}, draws=1)
    assert found["after"]["next"]["top"][0]["p"] == pytest.approx(run["next"]["top"][0]["p"], rel=1e-4)
    assert found["effect"]["logprob_change"] is None and found["effect"]["kl"] > 0


def test_a_head_s_map_is_that_of_the_plain_instrument(session, tiny):
    run = session.run(TEXT, mode="text", max_new_tokens=3)
    whole = plain(tiny, ids_of(session, run))
    found = session.head_map(run["id"], "L2H1")
    np.testing.assert_allclose(opened(found["weights"]), whole[2, 1], atol=2e-6)
    assert found["exact"] and found["row_starts"] == list(range(len(whole[2, 1])))
    part = session.head_map(run["id"], "L1H3", rows=(4, 9), columns=(2, 8))
    np.testing.assert_allclose(opened(part["weights"]), whole[1, 3, 4:9, 2:8], atol=2e-6)


def test_a_head_that_was_dropped_is_read_again(tiny):
    tight = LiveSession(tiny, capacity=0)
    run = tight.run(TEXT, mode="text", max_new_tokens=2, changes={"L0H2": 0.5})
    assert tight.head_map(run["id"], "L2H0", run_model=False) is None
    found = opened(tight.head_map(run["id"], "L2H0")["weights"])
    np.testing.assert_allclose(found, plain(tiny, ids_of(tight, run), ScaleHeads("L0H2", 0.5))[2, 0], atol=2e-6)


def test_planted_heads_show_in_the_numbers(planted):
    words = "the old river house door the old river house door"
    run = planted.run(words, mode="text", answer=False)
    for name, statistic in (("sink", "sink"), ("previous", "previous"), ("induction", "induction")):
        layer, head = PLANTED[name]
        assert run["numbers"][statistic][layer][head] > 0.9
    grid = run["figures"][0]["payload"]["panels"][0]
    assert grid["names"].count("L1H4") == 1 and len(grid["names"]) == 18
    assert run["figures"][0]["key"] == "maps"


def test_what_if_equals_plain_passes_with_the_head_scaled(session, tiny):
    run = session.run(TEXT, mode="text", max_new_tokens=4)
    prompt, answer = session.history[run["id"]].prompt.ids, session.history[run["id"]].generation.ids
    found = session.what_if(run["id"], {"L1H2": 0.0, "L0H0": 2.0}, draws=3)
    json.dumps(found, allow_nan=False)
    with observe(tiny, ScaleHeads("L1H2", 0.0), ScaleHeads("L0H0", 2.0)):
        after = tiny(torch.tensor([prompt + answer]), use_cache=False).logits[0].log_softmax(-1)
    before = tiny(torch.tensor([prompt + answer]), use_cache=False).logits[0].log_softmax(-1)
    end = len(prompt) - 1
    kl = (before.exp() * (before - after)).sum(-1)
    assert found["effect"]["kl"] == pytest.approx(float(kl[end]), rel=1e-3)
    assert found["effect"]["answer_kl"] == pytest.approx(float(kl[end:-1].mean()), rel=1e-3)
    own = torch.tensor(answer)[:, None]
    change = float((after[end:-1].gather(1, own) - before[end:-1].gather(1, own)).sum())
    assert found["effect"]["logprob_change"] == pytest.approx(change, abs=1e-4)
    assert found["logprob_after"] - found["logprob"] == pytest.approx(change, abs=1e-4)
    assert found["after"]["next"]["top"][0]["id"] == int(after[end].argmax())
    assert found["before"]["answer"] == run["answer"]
    assert found["controls_at_least"] == sum(one["kl"] >= found["effect"]["kl"] for one in found["controls"])


def test_controls_are_other_heads_with_the_same_factors(session):
    run = session.run(TEXT, mode="text", max_new_tokens=2)
    changes = {"L0H0": 0.0, "L2H3": 0.5}
    found = session.what_if(run["id"], changes, draws=4)
    again = session.what_if(run["id"], changes, draws=4)
    assert len(found["controls"]) == 4
    for one in found["controls"]:
        assert not set(one["heads"]) & set(changes) and sorted(one["heads"].values()) == [0.0, 0.5]
    assert [one["heads"] for one in again["controls"]] == [one["heads"] for one in found["controls"]]
    assert len({tuple(one["heads"]) for one in found["controls"]}) > 1


def test_a_changed_look_is_compared_with_the_model_as_it_is(session):
    plainly = session.run(TEXT, mode="text", max_new_tokens=4)
    changed = session.run(TEXT, mode="text", max_new_tokens=4, changes={"L0H1": 0.0})
    found = session.what_if(changed["id"], {"L0H1": 0.0}, draws=0)
    assert found["before"]["answer"] == plainly["answer"]
    assert found["after"]["next"]["top"][0]["p"] == pytest.approx(changed["next"]["top"][0]["p"], abs=1e-5)
    assert found["controls"] == [] and found["controls_at_least"] == 0


def test_all_heads_changed_leave_no_control(session):
    run = session.run(TEXT, mode="text", max_new_tokens=2)
    every = {f"L{layer}H{head}": 0.0 for layer in range(3) for head in range(4)}
    found = session.what_if(run["id"], every, draws=3)
    assert found["controls"] == [] and math.isfinite(found["effect"]["kl"])


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda s: s.run("  ", mode="text"), "empty"),
        (lambda s: s.run("the", mode="texts"), "Did you mean 'text'"),
        (lambda s: s.run("the", mode="chat"), "no chat template"),
        (lambda s: s.run("the " * 400, mode="text"), "which is the limit"),
        (lambda s: s.run("the", mode="text", max_new_tokens=10_000), "give 1 to"),
        (lambda s: s.run("the", mode="text", changes={"L9H0": 0}), "has no head L9H0"),
        (lambda s: s.run("the", mode="text", changes={"L0H0": float("nan")}), "give a factor"),
        (lambda s: s.run("the", mode="text", changes={"head": 1}), "is not the name of a head"),
        (lambda s: s.head_map("nobody", "L0H0"), "no longer in memory"),
        (lambda s: s.what_if("nobody", {"L0H0": 0.0}), "no longer in memory"),
    ],
)
def test_what_cannot_be_done_is_refused_in_a_sentence(session, ask, words):
    with pytest.raises(DataError, match=words):
        ask(session)


def test_wrong_windows_and_changes_are_refused(session):
    run = session.run("the old river", mode="text", answer=False)
    for options, words in (
        ({"rows": (3, 3)}, "rows 3:3"),
        ({"columns": (0, 999)}, "columns 0:999"),
        ({"size": 0}, "0 cells"),
    ):
        with pytest.raises(DataError, match=words):
            session.head_map(run["id"], "L0H0", **options)
    with pytest.raises(DataError, match="there is no head"):
        session.head_map(run["id"], "L0H77")
    with pytest.raises(DataError, match="no head was changed"):
        session.what_if(run["id"], {"L0H0": 1.0})


def test_only_the_last_looks_are_remembered(session):
    first = session.run("the old", mode="text", answer=False)
    for _ in range(6):
        last = session.run("the old", mode="text", answer=False)
    with pytest.raises(DataError, match="no longer in memory"):
        session.head_map(first["id"], "L0H0", run_model=False)
    assert session.head_map(last["id"], "L0H0", run_model=False) is not None


def test_a_cancelled_look_stops_and_the_next_is_right(session):
    plainly = session.run(TEXT, mode="text", max_new_tokens=3)
    seen = []

    def stop(stage, share):
        seen.append(stage)
        if stage == "observing every head" and share > 0:
            cancel.cancel()

    cancel = CancelToken(on_progress=stop)
    with pytest.raises(Cancelled, match="cancelled"):
        session.run(TEXT, mode="text", max_new_tokens=3, cancel=cancel)
    assert "generating the answer" in seen
    assert {name for name, _ in session.store._entries} == {plainly["id"]}  # nothing of it is kept
    assert session.run(TEXT, mode="text", max_new_tokens=3)["steps"] == plainly["steps"]


def test_what_takes_too_long_is_stopped(session):
    cancel = CancelToken(seconds=0.0)
    cancel.start()
    with pytest.raises(Cancelled, match="longer than 0 seconds"):
        session.run(TEXT, mode="text", cancel=cancel)


def test_stored_effects_are_those_of_the_same_weights(session, tmp_path):
    causal = causal_dataset(3, 4)
    origin = json.loads(causal.attrs["provenance"])
    run = session.run(TEXT, mode="text", max_new_tokens=1)
    for digest, count in ((session.model.identity()["digest"], 2), ("another", 0)):
        atlas = Atlas.create(tmp_path / digest)
        atlas.add(
            "causal",
            causal.assign_attrs(provenance=json.dumps({**origin, "model": {**origin["model"], "digest": digest}})),
        )
        found = session.what_if(run["id"], {"L1H1": 0.0, "L2H0": 0.0}, draws=0, atlas=tmp_path / digest)["stored"]
        assert len(found) == count
        json.dumps(found, allow_nan=False)
    (first, _), one = stored_effects(causal, ["L1H1", "L2H0"]), causal.sel(ablation="mean", layer=1, head=1)
    every, answer = one.sel(token_class="all"), one.sel(token_class="answer")
    assert first["head"] == "L1H1" and first["rank"] == 1 and first["heads"] == 4 and first["exact"]
    assert first["effect"] == pytest.approx(float(every["effect"])) and first["effect_low"] < first["effect"]
    assert first["answer"] == pytest.approx(float(answer["effect"]), rel=1e-5)
    assert stored_effects(causal, ["L9H0"]) == []
