"""The real default model, once: it answers, its answer is looked at, and a head is switched off."""

import pytest

from headwise.live import LiveSession
from headwise.model import load


@pytest.mark.real
def test_the_default_model_answers_and_is_changed():
    session = LiveSession(load())
    look = session.run("What is the capital of Norway?", max_new_tokens=12)
    assert "Oslo" in look["answer"] and look["finished"]
    assert (look["layers"], look["heads"]) == (30, 9)
    assert look["tokens"][0]["text"] == "<|im_start|>" and look["tokens"][0]["special"]
    assert look["next"]["top"][0]["text"] == "The" and look["logprob"] < 0
    found = session.what_if(look["id"], {"L0H1": 0.0}, draws=1)
    assert found["effect"]["kl"] > 0 and found["before"]["answer"] == look["answer"]
    assert session.head_map(look["id"], "L29H8")["exact"]
