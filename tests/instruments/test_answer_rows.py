"""The rows that emit an answer: read while it is generated, read whole, and against eager maps in float64."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from closeness import assert_no_worse_than_twice
from families import FAMILIES, HYBRID, SCALED, WINDOW, build, padded, texts, tiny
from transformers import StaticCache
from watchers import Call, float64_softmax

from headwise.core.errors import DataError, SeamError
from headwise.instruments import ROW_STATISTICS, AnswerRows, HeadOutputs, RunningAnswerRows
from headwise.kernels.blocked import FLOOR
from headwise.model.gate import put_gate
from headwise.seam import Instrument, observe
from headwise.seam.outputs import eager_weights

NEW = 6
LENGTHS = (12, 7)
STEPS = (0, 2, NEW - 1)  # rows read so far, less one


def prompt(side: str = "left") -> dict[str, torch.Tensor]:
    batch = padded(texts(*LENGTHS), side)
    return {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}


class Steps(Instrument):
    """The running means after every pass, with the rows of each layer."""

    name = "steps"

    def __init__(self, running: RunningAnswerRows):
        self.running, self.means = running, []

    def on_layer(self, call: Any) -> None:
        pass

    def on_forward_end(self, context: Any) -> None:
        self.means.append(self.running.means.transpose(1, 2).clone())  # (statistic, batch, layer, head)

    def result(self) -> Any:
        raise NotImplementedError


def generate(model: Any, running: RunningAnswerRows, **kwargs: Any) -> tuple[torch.Tensor, list[torch.Tensor]]:
    steps = Steps(running)
    with torch.no_grad(), observe(model, running, steps):
        ids = model.generate(**prompt(), max_new_tokens=NEW, min_new_tokens=NEW, do_sample=False, **kwargs)
    return ids, steps.means


def whole_maps(model: Any, ids: torch.Tensor, side: str, dtype: torch.dtype) -> tuple[dict[int, torch.Tensor], Any]:
    """The eager maps of prompt and answer in one pass, per layer, and which tokens are real."""
    new = ids.shape[1] - max(LENGTHS)
    mask = torch.cat([prompt(side)["attention_mask"], torch.ones(2, new, dtype=torch.long)], dim=1)
    maps: dict[int, torch.Tensor] = {}
    record = Call(lambda call: maps.__setitem__(call.layer, eager_weights(call, dtype).double()))
    with torch.no_grad(), float64_softmax(), observe(model, record):
        model(input_ids=ids, attention_mask=mask, position_ids=(mask.cumsum(1) - 1).clamp(min=0))
    return maps, mask.bool()


def expected(a: np.ndarray, prompt_tokens: int, visible: np.ndarray) -> np.ndarray:
    """(row, statistic): the definitions, written out for the map of one head without padding."""
    rows = []
    for i in range(prompt_tokens - 1, len(a) - 1):
        row = a[i]
        p = row / row.sum() if row.sum() > 0 else row
        entropy = -sum(x * np.log(x) for x in p if x > 0) / np.log(max(2, visible[i].sum()))
        x = row[:prompt_tokens].sum() / prompt_tokens
        y = row[prompt_tokens : i + 1].sum() / max(1, i + 1 - prompt_tokens)
        own = max(np.log(row[i]), FLOOR) if row[i] > 0 else FLOOR
        rows.append([own, entropy, row[0], row[i - 1] if i else 0.0, x / max(x + y, 1e-30)])
    return np.array(rows)


@pytest.mark.parametrize("family", [*FAMILIES, *HYBRID, *SCALED])
def test_running_means_are_those_of_the_eager_maps(family):
    """Every family, left-padded: after each step, the means over the rows so far; and the tokens are the plain model's."""
    model = tiny(family)
    plain = model.generate(**prompt(), max_new_tokens=NEW, min_new_tokens=NEW, do_sample=False)
    ids, means = generate(model, RunningAnswerRows())
    assert torch.equal(ids, plain)
    assert len(means) == NEW
    exact, real = whole_maps(model, ids, "left", torch.float64)
    single, _ = whole_maps(model, ids, "left", torch.float32)
    for layer in range(means[0].shape[2]):
        if layer not in exact:
            assert bool(means[0][:, :, layer].isnan().all())
            continue
        for example, length in enumerate(LENGTHS):
            keep = real[example]
            for head in range(exact[layer].shape[1]):
                tables = []
                for maps in (exact, single):
                    a = maps[layer][example, head][keep][:, keep].numpy()
                    seen = _visible(model, layer, a.shape[0])
                    tables.append(expected(a, length, seen))
                for step in STEPS:
                    got = means[step][:, example, layer, head]
                    sure, plainly = (torch.tensor(table[: step + 1].mean(axis=0)) for table in tables)
                    assert_no_worse_than_twice(got, sure, plainly, condition=100.0, what=f"L{layer}H{head} step {step}")


def _visible(model: Any, layer: int, tokens: int) -> np.ndarray:
    causal = np.tril(np.ones((tokens, tokens), dtype=bool))
    kinds = getattr(model.config, "layer_types", None)
    windowed = getattr(model.config, "sliding_window", None) == WINDOW
    if windowed and (kinds is None or kinds[layer] == "sliding_attention"):
        causal &= ~np.tril(np.ones((tokens, tokens), dtype=bool), -WINDOW)
    return causal


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma2", "gpt_oss", "mistral"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_whole_sequences_give_the_same(family, side):
    model = tiny(family)
    ids, means = generate(model, RunningAnswerRows())
    mask = torch.cat([prompt()["attention_mask"], torch.ones(2, NEW, dtype=torch.long)], dim=1).bool()
    rows = [ids[example][mask[example]] for example in range(2)]
    batch = padded(rows, side)
    counts = (1, 3, 6)
    instrument = AnswerRows(torch.tensor(LENGTHS), torch.tensor([NEW, NEW]), counts=torch.tensor([counts, counts]))
    with torch.no_grad(), observe(model, instrument) as seen:
        model(**batch)
    found = seen["answer_rows"]
    for name_index, name in enumerate(ROW_STATISTICS):
        for prefix, rows_read in enumerate(counts):
            got = found[name].isel(prefix=prefix).values  # (example, layer, head)
            running = means[rows_read - 1][name_index].numpy()
            np.testing.assert_allclose(got, running, rtol=2e-4, atol=2e-4, err_msg=name)
    assert found["row_self"].sizes["token"] == NEW
    np.testing.assert_allclose(np.log(found["row_self"]).mean("token"), found["self_log"].isel(prefix=-1), atol=1e-4)


def test_answers_of_unlike_length_and_long_rows_in_slices(monkeypatch):
    monkeypatch.setattr("headwise.instruments.answer_rows._CELLS", 1)
    model = tiny("llama")
    batch = padded(texts(20, 13), "right")
    both = AnswerRows(torch.tensor([12, 10]), torch.tensor([8, 3]), width=9)
    with torch.no_grad(), observe(model, both):
        model(**batch)
    alone = AnswerRows(torch.tensor([10]), torch.tensor([3]), width=9)
    with torch.no_grad(), observe(model, alone):
        model(input_ids=batch["input_ids"][1:, :13])
    for name in (*ROW_STATISTICS, "row_self"):
        np.testing.assert_allclose(both.result()[name][1], alone.result()[name][0], rtol=1e-4, atol=1e-5, err_msg=name)
    assert np.isnan(both.result()["row_self"][1, 0, 0]).sum() == 6


@pytest.mark.parametrize("family", ["llama", "gemma3_text", "gpt_oss"])
def test_a_static_cache_gives_the_same(family):
    model = tiny(family)
    _, means = generate(model, RunningAnswerRows())
    static = StaticCache(config=model.config, max_cache_len=40)
    _, cached = generate(model, RunningAnswerRows(), past_key_values=static)
    for one, other in zip(means, cached, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma3_text"])
@pytest.mark.parametrize("cuts", [(0, 24), (0, 5, 17, 24), (0, 23, 24)])
def test_a_prompt_in_parts_gives_the_same(family, cuts):
    model, ids, follow = tiny(family), texts(24)[0][None], texts(3, seed=4)[0][None]
    found = []
    for ends in ((0, 24), cuts):
        running, cache = RunningAnswerRows(prompts=24), None
        with torch.no_grad(), observe(model, running):
            for start, stop in pairwise(ends):
                cache = model(input_ids=ids[:, start:stop], past_key_values=cache, use_cache=True).past_key_values
            for token in range(3):
                model(input_ids=follow[:, token : token + 1], past_key_values=cache)
        found.append(running)
    assert found[1].rows.tolist() == [4]
    torch.testing.assert_close(found[0].means, found[1].means, rtol=1e-4, atol=1e-4)


def test_a_prompt_that_was_read_before_the_observation():
    """A prefix cache: its tokens are not run again, and nothing of them is needed."""
    model, ids = tiny("llama"), texts(24)[0][None]
    whole = RunningAnswerRows()
    with torch.no_grad(), observe(model, whole):
        model(input_ids=ids)
    cache = model(input_ids=ids[:, :20], use_cache=True).past_key_values
    after = RunningAnswerRows(prompts=24)
    with torch.no_grad(), observe(model, after):
        model(input_ids=ids[:, 20:], past_key_values=cache)
    torch.testing.assert_close(whole.means, after.means, rtol=1e-4, atol=1e-4)


def test_padding_that_was_read_before_the_observation_is_refused():
    model = tiny("llama")
    batch = prompt()
    cache = model(**batch, use_cache=True).past_key_values
    mask = torch.cat([batch["attention_mask"], torch.ones(2, 1, dtype=torch.long)], dim=1)
    with (
        torch.no_grad(),
        observe(model, RunningAnswerRows()),
        pytest.raises(SeamError, match="holds padding that was read before this observation began"),
    ):
        model(input_ids=torch.tensor([[5], [6]]), attention_mask=mask, past_key_values=cache)


def test_a_sparse_model_gives_the_same_as_its_gated_maps():
    model = build("llama")
    put_gate(model, -0.3)
    ids, means = generate(model, RunningAnswerRows())
    mask = torch.cat([prompt()["attention_mask"], torch.ones(2, NEW, dtype=torch.long)], dim=1)
    rows = AnswerRows(torch.tensor(LENGTHS), torch.tensor([NEW, NEW]))
    with torch.no_grad(), observe(model, rows):
        model(input_ids=ids, attention_mask=mask, position_ids=(mask.cumsum(1) - 1).clamp(min=0))
    for index, name in enumerate(ROW_STATISTICS):
        got = rows.result()[name].isel(prefix=-1).values
        np.testing.assert_allclose(got, means[-1][index].numpy(), rtol=1e-4, atol=1e-4, err_msg=name)


def test_a_new_prompt_starts_a_new_answer_and_an_example_can_stop():
    model, running = tiny("llama"), RunningAnswerRows()
    first, _ = generate(model, running)
    means = running.means.clone()
    again, _ = generate(model, running)
    assert torch.equal(first, again)
    torch.testing.assert_close(running.means, means)
    assert running.rows.tolist() == [NEW, NEW]
    stopping = RunningAnswerRows()
    steps = Steps(stopping)

    class Stop(Steps):
        def on_forward_end(self, context: Any) -> None:
            stopping.active = torch.tensor([True, context.index < 1])

    with torch.no_grad(), observe(model, stopping, steps, Stop(stopping)):
        model.generate(**prompt(), max_new_tokens=NEW, min_new_tokens=NEW, do_sample=False)
    assert stopping.rows.tolist() == [NEW, 2]
    torch.testing.assert_close(steps.means[-1][:, 1], steps.means[1][:, 1])


def test_half_precision_leaves_the_output_as_it_is():
    """In half precision z is the fused kernel's own, to the bit."""
    model = build("llama").half()
    plain, watched = HeadOutputs("last"), HeadOutputs("last")
    with torch.no_grad():
        with observe(model, plain):
            ids = model.generate(**prompt(), max_new_tokens=NEW, min_new_tokens=NEW, do_sample=False)
        with observe(model, watched, RunningAnswerRows()) as seen:
            assert torch.equal(model.generate(**prompt(), max_new_tokens=NEW, min_new_tokens=NEW, do_sample=False), ids)
    assert np.array_equal(plain.result().z.values, watched.result().z.values, equal_nan=True)
    assert bool(np.isfinite(seen["answer_rows"].entropy).all())


def test_an_empty_answer_is_refused():
    with pytest.raises(DataError, match="an empty prompt or an empty answer"):
        AnswerRows(torch.tensor([3]), torch.tensor([0]))


def test_nothing_read_yet():
    with pytest.raises(SeamError, match="has read no row yet"):
        RunningAnswerRows().result()
