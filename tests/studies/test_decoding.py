"""Speaking and reading in batches gives what one prompt at a time, without any cache, gives."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from planted import tiny_model

from headwise.model import Model, load
from headwise.studies.decoding import PrefixCachedDecoder, Reply, Sampling, common_prefix_length

BEGINNING = tuple(random.Random(1).randrange(4, 200) for _ in range(12))
CLOSE = 1e-5


def prompts(count: int = 9, seed: int = 0) -> list[tuple[int, ...]]:
    rng = random.Random(seed)
    return [BEGINNING + tuple(rng.randrange(4, 200) for _ in range(rng.randint(1, 9))) for _ in range(count)]


def special(_: tuple[int, ...], token: int) -> bool:
    return token < 4


def one_at_a_time(model: Model, asked: list[tuple[int, ...]], limit: int, ends: Any = special) -> list[Reply]:
    """The reference: the whole sequence read anew for every token."""
    replies = []
    for prompt in asked:
        said: list[int] = []
        scores: list[float] = []
        finished = False
        while len(said) < limit:
            logits = model(torch.tensor([[*prompt, *said]]), use_cache=False).logits[0, -1].float().log_softmax(-1)
            token = int(logits.argmax())
            if ends(tuple(said), token):
                finished = True
                break
            said.append(token)
            scores.append(float(logits[token]))
        replies.append(Reply(tuple(said), tuple(scores), finished))
    return replies


def same(a: list[Reply], b: list[Reply]) -> bool:
    return [(x.ids, x.finished) for x in a] == [(y.ids, y.finished) for y in b] and all(
        x.logprobs == pytest.approx(y.logprobs, abs=CLOSE) for x, y in zip(a, b, strict=True)
    )


@pytest.mark.parametrize(
    "family", ["llama", "gpt2", "qwen3", "gemma2", "gemma3_text", "gpt_neox", "opt", "bloom", "llama4_text"]
)
def test_batches_padding_and_a_shared_beginning_change_nothing(family: str) -> None:
    model = load(*tiny_model(family, layers=2, heads=2, kv_heads=2))
    expected = one_at_a_time(model, prompts(), 6)
    for options in ({"batch": 1}, {"batch": 4}, {"batch": 64}, {"batch": 64, "batch_tokens": 60}):
        for beginning in ((), BEGINNING):
            found = PrefixCachedDecoder(model, beginning, **options).generate(prompts(), 6, special)  # type: ignore[arg-type]
            assert same(found, expected), (options, bool(beginning))


@pytest.fixture(scope="module")
def model() -> Model:
    return load(*tiny_model(layers=2))


def test_rows_that_end_early_leave_the_others_alone(model: Model) -> None:
    def ends(so_far: tuple[int, ...], token: int) -> bool:
        return len(so_far) >= token % 7

    expected = one_at_a_time(model, prompts(), 6, ends)
    assert len({len(reply.ids) for reply in expected}) > 2
    assert any(reply.finished for reply in expected)
    assert same(PrefixCachedDecoder(model, BEGINNING).generate(prompts(), 6, ends), expected)


def test_a_window_smaller_than_the_text() -> None:
    hf, tokenizer = tiny_model("mistral", layers=2)
    hf.config.sliding_window = 8
    windowed = load(type(hf)(hf.config).eval(), tokenizer)
    assert windowed.card.per_layer[0].window == 8
    expected = one_at_a_time(windowed, prompts(), 6)
    assert same(PrefixCachedDecoder(windowed, BEGINNING, batch=4).generate(prompts(), 6, special), expected)


def test_a_model_without_a_cache_reads_anew(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = one_at_a_time(model, prompts(), 4)
    real = model.hf.forward

    def forgetful(input_ids: torch.Tensor, use_cache: bool = False) -> Any:
        return real(input_ids=input_ids, use_cache=False)

    monkeypatch.setattr(model.hf, "forward", forgetful)
    assert same(PrefixCachedDecoder(model, BEGINNING, batch=4).generate(prompts(), 4, special), expected)


def test_prompts_that_do_not_share_the_beginning_are_read_whole(model: Model) -> None:
    others = [(5, 6, 7), *prompts(2), BEGINNING]
    assert same(PrefixCachedDecoder(model, BEGINNING).generate(others, 4, special), one_at_a_time(model, others, 4))


def test_sampling_hangs_on_the_seed_alone(model: Model) -> None:
    asked = prompts()

    def sample(temperature: float, *, batch: int = 64, first: int = 0) -> list[tuple[int, ...]]:
        seeds = tuple(range(first, first + len(asked)))
        replies = PrefixCachedDecoder(model, BEGINNING, batch=batch).generate(
            asked, 6, special, Sampling(temperature, seeds)
        )
        return [reply.ids for reply in replies]

    assert sample(1.0) == sample(1.0, batch=2) == sample(1.0, batch=1)
    assert sample(1.0) != sample(1.0, first=100)
    assert sample(1e-4) == [reply.ids for reply in one_at_a_time(model, asked, 6)]


def test_equal_prompts_are_read_once_and_change_nothing(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = [prompt for prompt in prompts(4) for _ in range(5)]
    seeds = Sampling(1.0, tuple(range(len(asked))))
    apart = PrefixCachedDecoder(model, BEGINNING).generate(asked, 6, special, seeds)
    read: list[int] = []
    real = PrefixCachedDecoder._forward

    def watched(self: PrefixCachedDecoder, ids: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        read.append(len(ids))
        return real(self, ids, *args, **kwargs)

    monkeypatch.setattr(PrefixCachedDecoder, "_forward", watched)
    assert same(PrefixCachedDecoder(model, BEGINNING, share_prompts=True).generate(asked, 6, special, seeds), apart)
    assert read[0] == 4 and read[1] == 20
    assert len({reply.ids for reply in apart}) > 10


def test_sampling_draws_from_the_softmax(model: Model) -> None:
    prompt = prompts(1)[0]
    chances = model(torch.tensor([prompt]), use_cache=False).logits[0, -1].softmax(-1)
    likeliest = int(chances.argmax())
    sampling = Sampling(1.0, tuple(range(600)))
    replies = PrefixCachedDecoder(model, prompt[:-1], batch=200).generate([prompt] * 600, 1, lambda *_: False, sampling)
    share = sum(reply.ids == (likeliest,) for reply in replies) / 600
    assert share == pytest.approx(float(chances[likeliest]), abs=4 * (0.25 / 600) ** 0.5)


def test_a_shared_beginning_leaves_everyone_a_token() -> None:
    assert common_prefix_length([(1, 2, 3)]) == 2
    assert common_prefix_length([(1, 2), (1, 2, 3)]) == 1
    assert common_prefix_length([(4,), (5,)]) == 0
