"""What comes next, by one pass over the prompt: the same numbers as plain passes give."""

import pytest
import torch
from families import tiny as family
from planted import tiny_model, tiny_tokenizer

from headwise.core.cancellation import CancelToken
from headwise.live.generation import generate, logprobs_of, most_likely, next_tokens
from headwise.model import load
from headwise.studies.decoding import PrefixCachedDecoder

PROMPT = tuple(range(10, 30))


def logprobs(model, ids):
    return model(torch.tensor([ids]), use_cache=False).logits[0].float().log_softmax(-1)


def never(so_far, token):
    return False


def prefill(model):
    return PrefixCachedDecoder(model).begin([PROMPT], 40, most_likely)


def teacher_force(decoding, answer):
    return decoding.fork().teacher_force(answer).log_softmax(-1)


@pytest.fixture(params=["llama", "mistral", "gpt2", "gemma2"])
def model(request):
    return load(family(request.param), tiny_tokenizer(131))


def test_a_given_answer_is_as_likely_as_in_one_plain_pass(model):
    answer = (40, 41, 50, 42)
    found = teacher_force(prefill(model), answer)
    expected = logprobs(model, PROMPT + answer)[len(PROMPT) - 1 : -1]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def test_the_likeliest_tokens_are_said_and_the_state_serves_twice(model):
    state = prefill(model)
    given = state.fork()
    teacher_force(state, (40, 41, 50))  # reads on a copy: what is said after it does not change
    said = generate(model, state, 6, never, CancelToken())
    ids = PROMPT
    for token, row in zip(said.ids, said.before, strict=True):
        plain = logprobs(model, ids)[-1]
        torch.testing.assert_close(row, plain, atol=1e-5, rtol=1e-4)
        assert token == int(plain.argmax())
        ids += (token,)
    assert len(said.ids) == 6 and not said.finished
    torch.testing.assert_close(teacher_force(given, said.ids), torch.stack(said.before), atol=1e-5, rtol=1e-4)
    assert said.logprob == pytest.approx(
        sum(float(logprobs(model, ids[:n])[-1][ids[n]]) for n in range(20, 26)), abs=1e-4
    )


def test_an_end_is_not_part_of_the_answer():
    model = load(*tiny_model(layers=2))
    first = generate(model, prefill(model), 4, never, CancelToken()).ids
    said = generate(model, prefill(model), 4, lambda so_far, token: len(so_far) == 2, CancelToken())
    assert said.ids == first[:2] and said.finished


def test_a_distribution_sums_to_one_and_falls():
    model = load(*tiny_model(layers=2))
    logprobs = logprobs_of(prefill(model))
    shown = next_tokens(model, logprobs)
    p = [one["p"] for one in shown["top"]]
    assert len(p) == 12 and p == sorted(p, reverse=True)
    assert sum(p) + shown["rest"] == pytest.approx(1.0, abs=1e-5)
    full = logprobs.exp()
    assert shown["entropy"] == pytest.approx(float(-(full * full.log()).sum()), rel=1e-4)


def test_a_model_without_a_cache_says_the_same():
    model = load(*tiny_model(layers=2))
    cached, plain = PrefixCachedDecoder(model), PrefixCachedDecoder(model)
    plain._caches = plain._selectable = plain._pads = False  # what such a model is found to be
    found = []
    for decoder in (cached, plain):
        decoding = decoder.begin([PROMPT], 40, most_likely)
        given = decoding.fork()
        said = generate(model, decoding, 4, never, CancelToken())
        found.append((said.ids, torch.stack(said.before), teacher_force(given, (40, 41, 50))))
    assert found[0][0] == found[1][0]
    for one, other in zip(found[0][1:], found[1][1:], strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)
