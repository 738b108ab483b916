"""What comes next, by one pass over the prompt: the same numbers as plain passes give."""

import copy

import pytest
import torch
from families import tiny as family
from planted import tiny_model, tiny_tokenizer

from headwise.core.cancellation import CancelToken
from headwise.live.generation import generate, next_tokens, prefill, teacher_force
from headwise.model import load

PROMPT = tuple(range(10, 30))


def logprobs(model, ids):
    return model(torch.tensor([ids]), use_cache=False).logits[0].float().log_softmax(-1)


def never(so_far, token):
    return False


@pytest.fixture(params=["llama", "mistral", "gpt2", "gemma2"])
def model(request):
    return load(family(request.param), tiny_tokenizer(131))


def test_a_given_answer_is_as_likely_as_in_one_plain_pass(model):
    answer = (40, 41, 50, 42)
    state = prefill(model, PROMPT)
    found = teacher_force(model, state, answer)
    expected = logprobs(model, PROMPT + answer)[len(PROMPT) - 1 : -1]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def test_the_likeliest_tokens_are_said_and_the_state_serves_twice(model):
    state = prefill(model, PROMPT)
    teacher_force(model, state, (40, 41, 50))  # reads on a copy: what is said after it does not change
    said = generate(model, copy.deepcopy(state), 6, never, CancelToken())
    ids = PROMPT
    for token, row in zip(said.ids, said.before, strict=True):
        plain = logprobs(model, ids)[-1]
        torch.testing.assert_close(row, plain, atol=1e-5, rtol=1e-4)
        assert token == int(plain.argmax())
        ids += (token,)
    assert len(said.ids) == 6 and not said.finished
    assert said.logprob == pytest.approx(
        sum(float(logprobs(model, ids[:n])[-1][ids[n]]) for n in range(20, 26)), abs=1e-4
    )


def test_an_end_is_not_part_of_the_answer():
    model = load(*tiny_model(layers=2))
    first = generate(model, prefill(model, PROMPT), 4, never, CancelToken()).ids
    said = generate(model, prefill(model, PROMPT), 4, lambda so_far, token: len(so_far) == 2, CancelToken())
    assert said.ids == first[:2] and said.finished


def test_a_distribution_sums_to_one_and_falls():
    model = load(*tiny_model(layers=2))
    state = prefill(model, PROMPT)
    shown = next_tokens(model, state.logprobs)
    p = [one["p"] for one in shown["top"]]
    assert len(p) == 12 and p == sorted(p, reverse=True)
    assert sum(p) + shown["rest"] == pytest.approx(1.0, abs=1e-5)
    full = state.logprobs.exp()
    assert shown["entropy"] == pytest.approx(float(-(full * full.log()).sum()), rel=1e-4)
