"""The real default model, once: it answers, its answer is looked at, and a head is switched off."""

import pytest

from headwise.live import LiveSession
from headwise.model import load


@pytest.mark.real
def test_the_default_model_answers_and_is_changed():
    session = LiveSession(load())
    run = session.run("What is the capital of Norway?", max_new_tokens=12)
    assert "Oslo" in run["answer"] and run["finished"]
    assert (run["layers"], run["heads"]) == (30, 9)
    assert run["tokens"][0]["text"] == "<|im_start|>" and run["tokens"][0]["special"]
    assert run["next"]["top"][0]["text"] == "The" and run["logprob"] < 0
    found = session.what_if(run["id"], {"L0H1": 0.0}, draws=1)
    assert found["effect"]["kl"] > 0 and found["before"]["answer"] == run["answer"]
    assert session.head_map(run["id"], "L29H8")["exact"]
