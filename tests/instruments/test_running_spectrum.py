"""The spectrum while a text is generated: against eager maps in float64, on every cache, and what is refused."""

import gc
import tracemalloc
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from closeness import assert_no_worse_than_twice
from families import FAMILIES, HYBRID, SCALED, WINDOWED, build, padded, texts, tiny
from transformers import DynamicCache, QuantizedCache, StaticCache
from transformers.cache_utils import QuantizedLayer
from watchers import Call, float64_softmax

from headwise.core.errors import DataError, SeamError
from headwise.instruments import RunningAnswerRows, RunningSpectrum, Spectrum
from headwise.model.gate import put_gate
from headwise.seam import observe
from headwise.seam.outputs import eager_weights

NEW = 6
LENGTHS = (12, 7)
K = 20
NAMES = ("laplacian", "attention", "log_determinant")


def prompt(side: str = "left") -> dict[str, torch.Tensor]:
    batch = padded(texts(*LENGTHS), side)
    return {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}


def generate(model: Any, running: RunningSpectrum, **kwargs: Any) -> torch.Tensor:
    options = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False, **prompt(), **kwargs}
    with torch.no_grad(), observe(model, running):
        return model.generate(**options)


def by_hand(model: Any, running: RunningSpectrum, batch: dict[str, torch.Tensor], steps: torch.Tensor) -> Any:
    """Decode the given tokens (batch, step) on top of a prompt, padded on either side; gives the cache."""
    mask, position = batch["attention_mask"], batch["attention_mask"].sum(dim=1, keepdim=True)
    with torch.no_grad(), observe(model, running):
        cache = model(**batch, use_cache=True).past_key_values
        for step in range(steps.shape[1]):
            mask = torch.nn.functional.pad(mask, (0, 1), value=1)
            token = {"input_ids": steps[:, step : step + 1], "position_ids": position + step}
            model(**token, attention_mask=mask, past_key_values=cache)
    return cache


def whole(model: Any, batch: dict[str, torch.Tensor]) -> Any:
    """`Spectrum` of whole sequences."""
    with torch.no_grad(), observe(model, Spectrum(K)) as seen:
        model(**batch)
    return seen["spectrum"]


def assert_same(running: RunningSpectrum, expected: Any, *, examples: slice = slice(None)) -> None:
    found = running.result()
    assert found.laplacian.dims == expected.laplacian.dims
    for name in NAMES:
        got = found[name].values[examples]
        np.testing.assert_allclose(got, expected[name].values, rtol=2e-4, atol=2e-4, err_msg=name)


def features(a: torch.Tensor, seen: torch.Tensor) -> dict[str, torch.Tensor]:
    """The definitions, for the maps (head, query, key) of one text without padding and who sees whom (query, key)."""
    diagonal = a.diagonal(dim1=1, dim2=2)
    laplacian = a.sum(dim=1) / seen.sum(dim=0) - diagonal
    pad = (0, max(0, K - a.shape[1]))
    return {
        name: torch.nn.functional.pad(values.sort(descending=True).values[:, :K], pad, value=torch.nan)
        for name, values in (("laplacian", laplacian), ("attention", diagonal))
    } | {"log_determinant": diagonal.log().mean(dim=1)}


@pytest.mark.parametrize("family", [*FAMILIES, *HYBRID, *SCALED])
def test_against_eager_maps(family):
    """Every family, left-padded; the tokens are the plain model's, and the last of them has no row."""
    model, running = tiny(family), RunningSpectrum(K)
    plain = model.generate(**prompt(), max_new_tokens=NEW, min_new_tokens=NEW, do_sample=False)
    ids = generate(model, running)
    assert torch.equal(ids, plain)
    mask = torch.nn.functional.pad(prompt()["attention_mask"], (0, NEW - 1), value=1)
    maps: dict[str, dict[int, torch.Tensor]] = {"exact": {}, "plain": {}, "seen": {}}

    def keep(call: Any) -> None:
        maps["exact"][call.layer] = eager_weights(call, torch.float64).double()
        maps["plain"][call.layer] = eager_weights(call, torch.float32).double()
        maps["seen"][call.layer] = call.attention.mask.matrix().expand(2, -1, -1, -1)[:, 0]

    with torch.no_grad(), float64_softmax(), observe(model, Call(keep)):
        model(input_ids=ids[:, :-1], attention_mask=mask, position_ids=(mask.cumsum(1) - 1).clamp(min=0))
    got = running.readings()
    assert running.result().tokens.values.tolist() == [length + NEW - 1 for length in LENGTHS]
    for layer in range(got["laplacian"].shape[1]):
        for example in range(2):
            if layer not in maps["exact"]:
                assert all(bool(values[:, layer].isnan().all()) for values in got.values())
                continue
            real = mask[example].bool()
            seen = maps["seen"][layer][example][real][:, real]
            exact, single = (
                features(maps[name][layer][example][:, real][:, :, real], seen) for name in ("exact", "plain")
            )
            for name in NAMES:
                where = f"{name} of layer {layer}"
                values = got[name][example, layer]
                assert_no_worse_than_twice(values, exact[name], single[name], condition=100.0, what=where)


@pytest.mark.parametrize("family", ["llama", "gpt2", *WINDOWED])
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_whole_sequences_give_the_same(family, side, cache):
    """Full and sliding-window caches; on the right, padding stands between prompt and answer (and counts in a window)."""
    model, running = tiny(family), RunningSpectrum(K)
    batch, steps = padded(texts(*LENGTHS), side), torch.stack(texts(NEW, NEW, seed=4))
    static = StaticCache(config=model.config, max_cache_len=40)
    held = static if cache == "static" else DynamicCache(config=model.config)
    by_hand(model, running, batch | {"past_key_values": held}, steps)
    if side == "left":
        rows = [torch.cat([row, step]) for row, step in zip(texts(*LENGTHS), steps, strict=True)]
        assert_same(running, whole(model, padded(rows)))
    mask = torch.nn.functional.pad(batch["attention_mask"], (0, NEW), value=1)
    places = (mask.cumsum(1) - 1).clamp(min=0)
    together = {
        "input_ids": torch.cat([batch["input_ids"], steps], dim=1),
        "attention_mask": mask,
        "position_ids": places,
    }
    assert_same(running, whole(model, together))


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma3_text", "gpt_oss"])
@pytest.mark.parametrize("cuts", [(0, 24), (0, 5, 17, 24), (0, 23, 24), (0, 1, 2, 24)])
@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_a_prompt_in_parts_gives_the_same(family, cuts, cache):
    model, ids, running = tiny(family), texts(27)[0][None], RunningSpectrum(K)
    static = StaticCache(config=model.config, max_cache_len=30)
    held = static if cache == "static" else DynamicCache(config=model.config)
    with torch.no_grad(), observe(model, running):
        for start, stop in pairwise([*cuts, 25, 26, 27]):
            model(input_ids=ids[:, start:stop], past_key_values=held)
    assert_same(running, whole(model, padded(list(ids))))


def test_the_parts_of_a_padded_prompt():
    model, batch, running = tiny("llama"), padded(texts(*LENGTHS), "left"), RunningSpectrum(K)
    cache = DynamicCache(config=model.config)
    with torch.no_grad(), observe(model, running):
        for start, stop in ((0, 3), (3, 8), (8, 12)):  # nothing but padding at first, in one example
            part = {name: values[:, start:stop] for name, values in batch.items()}
            model(**part | {"attention_mask": batch["attention_mask"][:, :stop]}, past_key_values=cache)
    assert_same(running, whole(model, padded(texts(*LENGTHS))))


def test_a_further_turn_continues_and_a_new_text_starts():
    model, running = tiny("mistral"), RunningSpectrum(K)
    first, second = texts(20, 9)
    with torch.no_grad(), observe(model, running):
        cache = None
        for part in (first[None, :10], first[None, 10:11], first[None, 11:12], first[None, 12:]):
            cache = model(input_ids=part, past_key_values=cache, use_cache=True).past_key_values
        assert_same(running, whole(model, padded([first])))
        model(input_ids=second[None])
    assert_same(running, whole(model, padded([second])))


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_examples_leave_the_batch(family):
    model, running = tiny(family), RunningSpectrum(K)
    batch, steps = padded(texts(12, 7, 9), "left"), torch.stack(texts(3, 3, 3, seed=4))
    cache = by_hand(model, running, batch, steps)
    stay = torch.tensor([2, 0])
    running.select(stay)
    cache.batch_select_indices(stay)
    mask = torch.nn.functional.pad(batch["attention_mask"][stay], (0, 4), value=1)
    more = texts(2, seed=5)[0][:, None]
    with torch.no_grad(), observe(model, running):
        model(input_ids=more, attention_mask=mask, position_ids=mask.sum(1)[:, None] - 1, past_key_values=cache)
    rows = [torch.cat([texts(12, 7, 9)[line], steps[line], more[i]]) for i, line in enumerate(stay.tolist())]
    assert_same(running, whole(model, padded(rows)))


def test_an_example_that_has_ended_counts_no_further():
    """In a batch that goes on, what follows the end of an answer is no part of it."""
    model, running = tiny("llama"), RunningSpectrum(K)
    batch, steps = padded(texts(*LENGTHS), "left"), torch.stack(texts(NEW, NEW, seed=4))

    class Stop(Call):
        def on_forward_end(self, context: Any) -> None:
            running.active = torch.tensor([True, context.index < 2])

    mask, position = batch["attention_mask"], batch["attention_mask"].sum(dim=1, keepdim=True)
    with torch.no_grad(), observe(model, running, Stop(lambda call: None)):
        cache = model(**batch, use_cache=True).past_key_values
        for step in range(NEW):
            mask = torch.nn.functional.pad(mask, (0, 1), value=1)
            token = {"input_ids": steps[:, step : step + 1], "position_ids": position + step}
            model(**token, attention_mask=mask, past_key_values=cache)
    rows = [torch.cat([row, step]) for row, step in zip(texts(*LENGTHS), (steps[0], steps[1, :2]), strict=True)]
    assert_same(running, whole(model, padded(rows)))


def test_a_sparse_model():
    model, running = build("llama"), RunningSpectrum(K)
    put_gate(model, -0.3)
    ids = generate(model, running)
    rows = [ids[example, 12 - length : -1] for example, length in enumerate(LENGTHS)]
    assert_same(running, whole(model, padded(rows)))


def test_layers_in_slices(monkeypatch):
    """Where the rows of all layers are large, they are added one layer at a time."""
    model, running, sliced = tiny("gemma2"), RunningSpectrum(K), RunningSpectrum(K)
    generate(model, running)
    monkeypatch.setattr("headwise.instruments.running_spectrum._CELLS", 1)
    generate(model, sliced)
    for name in NAMES:
        torch.testing.assert_close(sliced.readings()[name], running.readings()[name], equal_nan=True)


@pytest.mark.parametrize("family", ["llama", "mistral", "gpt_oss"])
def test_together_with_answer_rows_each_reads_what_it_reads_alone(family):
    """Both take the row of a decode step, in one form or the other."""
    model, alone, rows, both = (
        tiny(family),
        RunningSpectrum(K),
        RunningAnswerRows(),
        (RunningSpectrum(K), RunningAnswerRows()),
    )
    generate(model, alone)
    options = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False, **prompt()}
    with torch.no_grad():
        for instruments in ((rows,), both):
            with observe(model, *instruments):
                model.generate(**options)
    assert_same(both[0], alone.result())
    torch.testing.assert_close(both[1].means, rows.means, rtol=1e-4, atol=1e-4)


class Rounding(QuantizedLayer):
    """A quantised cache without a library: keys and values to steps of 1/4."""

    def _quantize(self, tensor: Any, axis: Any) -> Any:
        return (tensor * 4).round()

    def _dequantize(self, q_tensor: Any) -> Any:
        return q_tensor / 4


def test_a_quantised_cache_is_read_as_the_model_reads_it():
    """The rows of each pass attend to the keys as the cache gave them back."""
    model, running = tiny("llama"), RunningSpectrum(K)
    cache = QuantizedCache.__new__(QuantizedCache)
    super(QuantizedCache, cache).__init__(layers=[Rounding(residual_length=3) for _ in range(2)])
    ids, total = texts(20)[0][None], 26
    maps = torch.zeros(2, 6, total, total, dtype=torch.float64)

    def keep(call: Any) -> None:
        start = call.context.cached
        rows = call.attention.weights(dtype=torch.float64)[0]
        maps[call.layer, :, start : start + rows.shape[1], : rows.shape[2]] = rows

    with torch.no_grad(), observe(model, running, Call(keep)):
        model(input_ids=ids, past_key_values=cache)
        for token in texts(total - 20, seed=4)[0]:
            model(input_ids=token.view(1, 1), past_key_values=cache)
    causal = torch.ones(total, total, dtype=torch.bool).tril()
    got = running.readings()
    for layer in range(2):
        for name, expected in features(maps[layer], causal).items():
            torch.testing.assert_close(got[name][0, layer].double(), expected, rtol=1e-4, atol=1e-4)
    plain = whole(model, padded([torch.cat([ids[0], texts(total - 20, seed=4)[0]])]))
    assert float(abs(plain.laplacian.values - running.result().laplacian.values).max()) > 1e-3


@pytest.mark.parametrize("backend", ["quanto", "hqq"])
def test_quantised_caches_of_transformers(backend):
    pytest.importorskip({"quanto": "optimum.quanto", "hqq": "hqq"}[backend])
    model, running = tiny("llama"), RunningSpectrum(K)
    axis = {"axis_key": 1, "axis_value": 1} if backend == "hqq" else {}
    cache = QuantizedCache(backend, model.config, nbits=4, q_group_size=16, residual_length=4, **axis)
    ids = generate(model, running, **{name: values[:1] for name, values in prompt().items()}, past_key_values=cache)
    found = running.result()
    assert found.tokens.values.tolist() == [ids.shape[1] - 1]
    assert bool(np.isfinite(found.laplacian.values[..., : ids.shape[1] - 1]).all())


def test_a_prefix_that_was_cached_before_the_observation_is_refused():
    model, ids = tiny("llama"), texts(24)[0][None]
    cache = model(input_ids=ids[:, :20], use_cache=True).past_key_values
    with (
        torch.no_grad(),
        observe(model, RunningSpectrum()),
        pytest.raises(
            SeamError,
            match=r"holds 20 tokens that RunningSpectrum has not read: their rows are gone.*RunningAnswerRows",
        ),
    ):
        model(input_ids=ids[:, 20:], past_key_values=cache)


def test_tokens_that_were_taken_back_are_refused():
    """What assisted generation does."""
    model, ids = tiny("llama"), texts(24)[0][None]
    with torch.no_grad(), observe(model, RunningSpectrum()):
        cache = model(input_ids=ids[:, :20], use_cache=True).past_key_values
        cache.crop(-3)
        with pytest.raises(
            SeamError, match=r"holds 17 tokens and 20 were read: some were taken back \(assisted generation\)"
        ):
            model(input_ids=ids[:, 20:], past_key_values=cache)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_beam_search_is_refused(cache):
    model = tiny("llama")
    kwargs = {"past_key_values": StaticCache(config=model.config, max_cache_len=40)} if cache == "static" else {}
    with pytest.raises(SeamError, match=r"beam search has reordered its examples.*generate without beams"):
        generate(model, RunningSpectrum(), num_beams=3, **kwargs)


def test_examples_that_left_unannounced_are_refused():
    model = tiny("llama")
    running = RunningSpectrum()
    cache = by_hand(model, running, padded(texts(12, 12)), torch.stack(texts(2, 2)))
    cache.batch_select_indices(torch.tensor([1]))
    with (
        torch.no_grad(),
        observe(model, running),
        pytest.raises(SeamError, match=r"the batch has 1 examples and had 2.*RunningSpectrum\.select"),
    ):
        model(input_ids=torch.tensor([[5]]), past_key_values=cache)


def test_a_cache_that_evicts_is_refused():
    """Its length counts every token, but it holds fewer, in a model without windows."""
    model, ids = tiny("llama"), texts(12)[0][None]

    class Evicting(DynamicCache):
        def get_seq_length(self, layer_idx: int = 0) -> int:
            return super().get_seq_length(layer_idx) + (2 if self.evicted else 0)

    cache = Evicting(config=model.config)
    cache.evicted = False
    running = RunningSpectrum()
    with torch.no_grad(), observe(model, running):
        model(input_ids=ids, past_key_values=cache)
        for layer in cache.layers:
            layer.keys, layer.values = layer.keys[:, :, 2:], layer.values[:, :, 2:]
        cache.evicted, running._keys = True, None
        with pytest.raises(SeamError, match=r"layer 0 holds 11 keys of 13 tokens.*this KV cache evicts tokens"):
            model(input_ids=ids[:, :1], past_key_values=cache)


def test_a_failed_pass_is_not_continued():
    model, ids, running = build("llama"), texts(12)[0][None], RunningSpectrum(K)
    with torch.no_grad(), observe(model, running):
        cache = model(input_ids=ids[:, :8], use_cache=True).past_key_values
        broken = model.model.layers[1].mlp.register_forward_pre_hook(lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            model(input_ids=ids[:, 8:9], past_key_values=cache)
        broken.remove()
        with pytest.raises(SeamError, match="has not read"):
            model(input_ids=ids[:, 8:9], past_key_values=cache)
        model(input_ids=ids)
    assert_same(running, whole(model, padded(list(ids))))


@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_steps_leave_nothing_behind(family):
    """Hundreds of steps: no more objects, and only the vectors grow."""
    model, running = build(family, max_position_embeddings=1024), RunningSpectrum(K)
    cache, token = DynamicCache(config=model.config), torch.tensor([[5]])
    counts, memory = [], []
    tracemalloc.start()
    with torch.no_grad(), observe(model, running):
        model(input_ids=texts(4)[0][None], past_key_values=cache)
        for _ in range(3):
            for _ in range(150):
                model(input_ids=token, past_key_values=cache)
            gc.collect()
            counts.append(len(gc.get_objects()))
            memory.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert abs(counts[2] - counts[1]) < 20
    assert abs(memory[2] - memory[1]) < 20_000
    (tally,) = running._tallies
    assert tally.sums.shape[-1] <= 454 * 9 // 8 + 64
    assert running.result().tokens.values.tolist() == [454]


def test_half_precision():
    model, running = build("llama").half(), RunningSpectrum(K)
    ids = generate(model, running)
    rows = [ids[example, 12 - length : -1] for example, length in enumerate(LENGTHS)]
    expected, found = whole(model, padded(rows)), running.result()
    np.testing.assert_allclose(found.laplacian.values, expected.laplacian.values, atol=0.02)


def test_what_it_is_given():
    with pytest.raises(DataError, match="k is 0; give at least 1 eigenvalue"):
        RunningSpectrum(0)
    with pytest.raises(SeamError, match="has read no token yet"):
        RunningSpectrum().result()
