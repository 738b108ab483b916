"""Profile's eleven statistics against loops over single rows in float64, and its baseline against closed forms."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from families import VOCABULARY, padded, texts, tiny
from watchers import Call

from headwise.instruments import STATISTICS, Profile
from headwise.seam import observe

DELIMITERS = tuple(range(5, VOCABULARY, 4))


def repetitive(length: int, seed: int) -> torch.Tensor:
    """A text over few tokens, so that it repeats itself; token 0 is one of them, and padding too."""
    return texts(length, seed=seed)[0] % 11


ROWS = [repetitive(26, 1), repetitive(17, 2)]


def by_hand(a: np.ndarray, seen: np.ndarray, ids: list[int], moved: np.ndarray) -> dict[str, float]:
    """Means over the rows of one map (query, key), the first row left out. `moved`: (query,)."""
    rows: dict[str, list[float]] = {name: [] for name in STATISTICS}
    for i in range(1, len(ids)):
        visible = [j for j in range(len(ids)) if seen[i, j]]
        if len(visible) < 2:
            continue
        w = a[i]
        mass = sum(w[j] for j in visible)
        p = {j: w[j] / mass for j in visible}
        mean = sum(p[j] * (i - j) for j in visible)
        rows["entropy"].append(-sum(x * math.log(x) for x in p.values() if x > 0) / math.log(len(visible)))
        rows["sink"].append(w[0])
        rows["diagonal"].append(w[i])
        rows["previous"].append(w[i - 1])
        rows["distance"].append(mean)
        rows["spread"].append(math.sqrt(sum(p[j] * (i - j - mean) ** 2 for j in visible)))
        rows["delimiter"].append(sum(w[j] for j in range(1, i + 1) if ids[j] in DELIMITERS))
        rows["top1"].append(max(w))
        rows["output_norm_ratio"].append(moved[i])
        before = [j for j in range(i) if ids[j] == ids[i]]
        if before:
            rows["duplicate"].append(sum(w[j] for j in before))
        after = [j + 1 for j in before if j + 1 < i]
        if after:
            rows["induction"].append(sum(w[j] for j in after))
    return {name: float(np.mean(values)) if values else math.nan for name, values in rows.items()}


def projection_of(layer: Any) -> torch.Tensor:
    """(head, width, hidden), by name: what the instrument must find by itself."""
    attention = layer.attn if hasattr(layer, "attn") else layer.self_attn
    weight = attention.c_proj.weight if hasattr(layer, "attn") else attention.o_proj.weight.T
    return weight.detach().double().unflatten(0, (6, -1))


def measured(model: Any, valid: Any = None, **batch: Any) -> tuple[Any, dict[int, Any]]:
    found: dict[int, Any] = {}
    residual: dict[int, torch.Tensor] = {}
    layers = model.transformer.h if hasattr(model, "transformer") else model.model.layers
    handles = [
        layer.register_forward_pre_hook(
            lambda _, args, kwargs, i=i: residual.update({i: (args or [kwargs["hidden_states"]])[0].double()}),
            with_kwargs=True,
        )
        for i, layer in enumerate(layers)
    ]

    def keep(call: Any) -> None:
        weights = call.attention.weights(dtype=torch.float64)
        seen = call.attention.mask.matrix().expand(len(weights), -1, -1, -1)[:, 0]
        written = torch.einsum("bqhd,hdm->bhqm", call.z.double(), projection_of(layers[call.layer]))
        moved = written.norm(dim=-1) / residual[call.layer].norm(dim=-1)[:, None]
        found[call.layer] = (weights.numpy(), seen.numpy(), moved.numpy())

    with torch.no_grad(), observe(model, Profile(DELIMITERS), Call(keep), valid=valid) as seen:
        model(**batch)
    for handle in handles:
        handle.remove()
    return seen["profile"], found


@pytest.mark.parametrize("side", ["alone", "left", "right"])
@pytest.mark.parametrize("family", ["llama", "gpt2", "mistral", "gemma2", "gpt_oss", "cohere2"])
def test_every_statistic_by_hand(family, side):
    batch = {"input_ids": ROWS[0][None]} if side == "alone" else padded(ROWS, side)
    reading, found = measured(tiny(family), **batch)
    assert reading.value.dims == ("example", "layer", "head", "statistic")
    assert tuple(reading.statistic.values) == STATISTICS
    width = batch["input_ids"].shape[1]
    for example in range(len(batch["input_ids"])):
        ids = ROWS[example].tolist()
        start = width - len(ids) if side == "left" else 0
        place = slice(start, start + len(ids))
        for layer, (weights, seen, moved) in found.items():
            for head in range(6):
                expected = by_hand(
                    weights[example, head, place, place], seen[example, place, place], ids, moved[example, head, place]
                )
                got = reading.value.values[example, layer, head]
                for name, value in zip(STATISTICS, got, strict=True):
                    assert value == pytest.approx(expected[name], rel=2e-5, abs=2e-6), f"{name} L{layer}H{head}"


def test_the_baseline_is_an_even_head():
    """Closed forms: query i spreads 1 / (i + 1) over the keys 0 .. i."""
    ids = ROWS[0]
    reading, _ = measured(tiny("llama"), input_ids=ids[None])
    uniform = reading.uniform.isel(example=0, layer=0, head=0)
    n = np.arange(2, len(ids) + 1)  # keys seen by queries 1, 2, ...
    marked = np.cumsum(np.isin(ids.numpy(), DELIMITERS) & (np.arange(len(ids)) > 0))[1:]
    tokens = ids.tolist()
    before = np.array([sum(tokens[j] == tokens[i] for j in range(i)) for i in range(1, len(ids))])
    after = np.array([sum(tokens[j] == tokens[i] for j in range(i - 1)) for i in range(1, len(ids))])
    expected = {
        "entropy": 1.0,
        "sink": np.mean(1 / n),
        "diagonal": np.mean(1 / n),
        "previous": np.mean(1 / n),
        "distance": np.mean((n - 1) / 2),
        "spread": np.mean(np.sqrt((n**2 - 1) / 12)),
        "induction": np.mean((after / n)[after > 0]),
        "duplicate": np.mean((before / n)[before > 0]),
        "delimiter": np.mean(marked / n),
        "top1": np.mean(1 / n),
    }
    for name, value in expected.items():
        assert float(uniform.sel(statistic=name)) == pytest.approx(value, rel=1e-5), name
    assert bool(reading.uniform.sel(statistic="output_norm_ratio").isnull().all())
    assert bool((reading.uniform == uniform).sel(statistic=list(expected)).all())  # the same for every head


def test_the_baseline_knows_windows():
    """In a window of 8 an even head spreads over at most 8 keys."""
    reading, _ = measured(tiny("mistral"), input_ids=ROWS[0][None])
    n = np.minimum(np.arange(2, 27), 8)
    uniform = reading.uniform.isel(example=0, layer=1, head=3)
    assert float(uniform.sel(statistic="top1")) == pytest.approx(np.mean(1 / n), rel=1e-5)
    assert float(uniform.sel(statistic="distance")) == pytest.approx(np.mean((n - 1) / 2), rel=1e-5)
    assert float(uniform.sel(statistic="sink")) == pytest.approx(np.sum(1 / n[:7]) / 25, rel=1e-5)
    assert float(uniform.sel(statistic="entropy")) == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize("how", ["left", "right", "valid"])
@pytest.mark.parametrize("family", ["llama", "mistral", "gpt2"])
def test_a_text_in_a_batch_is_the_text_alone(family, how):
    """Padding holds a token (0) that the texts hold too: it is neither a repeat nor the first token."""
    batch = padded(ROWS, "right" if how == "valid" else how)
    if how == "valid":
        together, _ = measured(tiny(family), valid=batch["attention_mask"].bool(), input_ids=batch["input_ids"])
    else:
        together, _ = measured(tiny(family), **batch)
    for i, row in enumerate(ROWS):
        alone, _ = measured(tiny(family), input_ids=row[None])
        for name in ("value", "uniform"):
            np.testing.assert_allclose(together[name].values[i], alone[name].values[0], rtol=1e-4, atol=1e-5)


def test_what_a_text_does_not_have_is_nan():
    """No token comes twice: nothing to say about repeats. One token: nothing to say at all."""
    reading, _ = measured(tiny("llama"), input_ids=torch.arange(3, 20)[None])
    assert bool(reading.value.sel(statistic=["induction", "duplicate"]).isnull().all())
    assert not bool(reading.value.drop_sel(statistic=["induction", "duplicate"]).isnull().any())
    reading, _ = measured(tiny("llama"), input_ids=torch.tensor([[7]]))
    assert bool(reading.value.isnull().all())


def test_without_delimiters():
    with torch.no_grad(), observe(tiny("llama"), Profile()) as seen:
        tiny("llama")(input_ids=ROWS[0][None])
    assert float(abs(seen["profile"].value.sel(statistic="delimiter")).max()) < 1e-6
