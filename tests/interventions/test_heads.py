"""Interventions against plain hooks on the input of the output projection: the same logits."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from families import FAMILIES, build, padded, texts, tiny
from watchers import Call, Change, Recorder

from headwise.instruments import HeadOutputs
from headwise.interventions import MeanAblation, ResampleAblation, ScaleHeads, Steer
from headwise.seam import Structure, observe, output_projections

ROWS = texts(12, 8)
WIDTH = 16
LAYER, HEAD = 1, 4
NAME = f"L{LAYER}H{HEAD}"
VECTOR = torch.linspace(-1, 1, WIDTH)


def by_hook(
    model: Any, change: Callable[[torch.Tensor], torch.Tensor], batch: dict, layer: int = LAYER
) -> torch.Tensor:
    """Logits with `change` applied to (batch, token, head, width) on its way into one layer's output projection."""
    module = output_projections(Structure(model))[layer].module

    def hook(_: Any, args: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor]:
        z = args[0].reshape(*batch["input_ids"].shape, 6, -1)
        return (change(z.clone()).reshape(args[0].shape),)

    handle = module.register_forward_pre_hook(hook)
    with torch.no_grad():
        logits = model(**batch).logits
    handle.remove()
    return logits


def observed(model: Any, *watchers: Any, **batch: Any) -> torch.Tensor:
    with torch.no_grad(), observe(model, *watchers):
        return model(**batch).logits


def assert_same(got: torch.Tensor, expected: torch.Tensor, batch: dict) -> None:
    real = batch["attention_mask"].bool()
    torch.testing.assert_close(got[real], expected[real], rtol=1e-4, atol=1e-4 * float(expected[real].std()))


def on_head(new: Callable[[torch.Tensor], torch.Tensor], where: torch.Tensor | None = None) -> Callable:
    """The change of one head as a function of z, at the tokens `where` (batch, token)."""

    def change(z: torch.Tensor) -> torch.Tensor:
        chosen = new(z)[:, :, HEAD].to(z.dtype)
        z[:, :, HEAD] = chosen if where is None else torch.where(where[..., None], chosen, z[:, :, HEAD])
        return z

    return change


@pytest.mark.parametrize("family", [*FAMILIES, "jamba"])
def test_a_head_switched_off(family):
    model, batch = tiny(family), padded(ROWS, "left")
    expected = by_hook(model, on_head(torch.zeros_like), batch)
    assert_same(observed(model, ScaleHeads(NAME), **batch), expected, batch)
    assert not torch.equal(expected, by_hook(model, lambda z: z, batch))


WATCHERS = {
    "scale": (lambda **kw: ScaleHeads(NAME, 2.5, **kw), lambda z: z * 2.5),
    "mean": (lambda **kw: MeanAblation(NAME, {NAME: VECTOR}, **kw), lambda z: VECTOR.expand_as(z)),
    "steer": (lambda **kw: Steer(NAME, {(LAYER, HEAD): VECTOR}, 3.0, **kw), lambda z: z + 3 * VECTOR),
    "resample": (lambda **kw: ResampleAblation(NAME, [1, 0], **kw), lambda z: z[[1, 0]]),
}


def chosen(positions: Any, side: str) -> torch.Tensor:
    """(batch, token): by hand, for texts of 12 and 8 tokens."""
    where = torch.zeros(2, 12, dtype=torch.bool)
    for example, length in enumerate((12, 8)):
        start = 12 - length if side == "left" else 0
        tokens = {"all": range(length), "prompt": range(length), "decode": [], "last": [length - 1], "first": [0]}
        if isinstance(positions, torch.Tensor):
            numbers = [int(i) - start for i in positions[example]]
        elif isinstance(positions, str):
            numbers = list(tokens[positions])
        else:
            numbers = [n if n >= 0 else length + n for n in (positions if isinstance(positions, list) else [positions])]
        for n in numbers:
            if 0 <= n < length:
                where[example, start + n] = True
    return where


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize(
    "positions",
    ["all", "prompt", "decode", "last", "first", 3, -2, [0, 5, -1], torch.tensor([[7, 5], [-1, 6]])],
    ids=str,
)
@pytest.mark.parametrize("name", ["scale", "mean", "steer"])
def test_at_chosen_positions(name, positions, side):
    model, batch = tiny("llama"), padded(ROWS, side)
    make, new = WATCHERS[name]
    expected = by_hook(model, on_head(new, chosen(positions, side)), batch)
    assert_same(observed(model, make(positions=positions), **batch), expected, batch)


@pytest.mark.parametrize("positions", ["all", "last", [2, -1]], ids=str)
def test_resampling_within_a_batch(positions):
    model = tiny("llama")
    batch = padded(texts(12, 12, 12))
    where = torch.zeros(3, 12, dtype=torch.bool)
    where[:, slice(None) if positions == "all" else [11] if positions == "last" else [2, 11]] = True
    expected = by_hook(model, on_head(lambda z: z[[2, 0, 1]], where), batch)
    assert_same(observed(model, ResampleAblation(NAME, [2, 0, 1], positions), **batch), expected, batch)


@pytest.mark.parametrize("side", ["left", "right"])
def test_resampling_by_name_of_the_token(side):
    """The last token of one text takes z from the last token of the other, wherever that stands."""
    model, batch = tiny("llama"), padded(ROWS, side)
    last = [11, 11] if side == "left" else [11, 7]

    def new(z: torch.Tensor) -> torch.Tensor:
        other = z.clone()
        other[0, last[0]], other[1, last[1]] = z[1, last[1]], z[0, last[0]]
        return other

    assert_same(
        observed(model, ResampleAblation(NAME, [1, 0], "last"), **batch), by_hook(model, on_head(new), batch), batch
    )
    # token 9 is there in one text only: nothing to take, nothing taken
    nothing = observed(model, ResampleAblation(NAME, [1, 0], 9), **batch)
    assert_same(nothing, by_hook(model, lambda z: z, batch), batch)


def test_resampling_from_a_reading():
    """Activation patching: z of other texts, at tokens of the same name."""
    model, batch = tiny("llama"), padded(ROWS, "left")
    outputs = HeadOutputs([0, -1])
    others = padded(texts(9, 10, seed=5), "left")
    observed(model, outputs, **others)
    source = outputs.result().z
    given = torch.from_numpy(source.sel(layer=LAYER, head=HEAD).values)  # (example, token, width)

    def new(z: torch.Tensor) -> torch.Tensor:
        z = z.clone()
        for example, places in enumerate(((0, 11), (4, 11))):
            for which, place in enumerate(places):
                z[example, place] = given[example, which]
        return z

    expected = by_hook(model, on_head(new), batch)
    assert_same(observed(model, ResampleAblation(NAME, source, [0, -1]), **batch), expected, batch)
    transposed = source.transpose("width", "head", "token", "layer", "example")
    assert_same(observed(model, ResampleAblation(NAME, transposed, [0, -1]), **batch), expected, batch)


def test_the_mean_of_a_reading():
    model, batch = tiny("llama"), padded(ROWS, "left")
    outputs = HeadOutputs("last")
    observed(model, outputs, **batch)
    mean = outputs.result().z.mean("example").isel(token=0)
    expected = by_hook(model, on_head(lambda z: torch.from_numpy(mean.values)[LAYER, HEAD].expand_as(z)), batch)
    assert_same(observed(model, MeanAblation(NAME, mean), **batch), expected, batch)
    assert_same(observed(model, MeanAblation(NAME, mean.transpose("width", "head", "layer")), **batch), expected, batch)
    assert_same(observed(model, MeanAblation(NAME, mean.astype(np.float64)), **batch), expected, batch)


def test_several_heads_of_several_layers():
    model, batch = tiny("llama"), padded(texts(12, 12))
    heads = ["L0H1", (1, 2), "L1H5", "L1H5"]  # one of them twice: changed once
    recorder = Recorder()
    observed(model, recorder, ScaleHeads(heads, 3.0), **batch)
    plain = Recorder()
    observed(model, plain, **batch)
    torch.testing.assert_close(recorder.zs[0][0][:, :, 1], 3 * plain.zs[0][0][:, :, 1])
    others = [0, 2, 3, 4, 5]
    assert torch.equal(recorder.zs[0][0][:, :, others], plain.zs[0][0][:, :, others])
    # layer 1 reads another residual stream by now, so its change shows against a run without it
    first = Recorder()
    observed(model, first, ScaleHeads("L0H1", 3.0), **batch)
    torch.testing.assert_close(recorder.zs[0][1][:, :, [2, 5]], 3 * first.zs[0][1][:, :, [2, 5]])
    assert torch.equal(recorder.zs[0][1][:, :, [0, 1, 3, 4]], first.zs[0][1][:, :, [0, 1, 3, 4]])


def test_padding_is_left_alone():
    recorder, plain = Recorder(), Recorder()
    batch = padded(ROWS)
    observed(tiny("llama"), recorder, ScaleHeads("L0H1", 3.0), **batch)
    observed(tiny("llama"), plain, **batch)
    padding = ~batch["attention_mask"].bool()
    assert torch.equal(recorder.zs[0][0][padding], plain.zs[0][0][padding])


@pytest.mark.parametrize("name", WATCHERS)
def test_the_given_z_is_never_written_into(name):
    """Others may hold it: the call's z before and after are two tensors."""
    model, batch = tiny("llama"), padded(texts(12, 12))
    before: list[tuple[torch.Tensor, torch.Tensor]] = []

    def remember(call: Any) -> torch.Tensor:
        before.append((call.z, call.z.clone()))
        return call.z

    after: list[torch.Tensor] = []
    make, _ = WATCHERS[name]
    observed(model, Change(remember), make(), Call(lambda call: after.append(call.z)), **batch)
    for given, copy in before:
        assert torch.equal(given, copy)
    assert after[LAYER] is not before[LAYER][0]
    assert after[0] is before[0][0]  # a layer without chosen heads is passed on as it is
    assert not torch.equal(after[LAYER], before[LAYER][0])


@pytest.mark.parametrize("name", ["scale", "mean", "steer"])
def test_half_precision_and_gradients(name):
    model = build("llama").to(torch.bfloat16)
    make, _ = WATCHERS[name]
    with observe(model, make()):
        logits = model(input_ids=ROWS[0][None]).logits
    assert logits.dtype == torch.bfloat16
    logits.float().logsumexp(-1).sum().backward()
    gradient = model.model.layers[LAYER].self_attn.v_proj.weight.grad
    assert bool(gradient.isfinite().all())


@pytest.mark.parametrize("positions", ["all", "prompt", "decode", "last", 13], ids=str)
@pytest.mark.parametrize("side_length", [(12, 7)])
def test_in_generation(positions, side_length):
    """Against hooks that count the passes by hand; left padding, greedy, with a cache."""
    model = build("llama", seed=3)
    heads = [(layer, head) for layer in range(2) for head in range(6)]
    batch = padded(texts(*side_length), "left")
    batch = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}
    options = {"max_new_tokens": 6, "min_new_tokens": 6, "do_sample": False, "output_logits": True}
    options["return_dict_in_generate"] = True

    def logits() -> torch.Tensor:
        return torch.stack(model.generate(**batch, **options).logits)

    plain = logits()
    with torch.no_grad(), observe(model, ScaleHeads(heads, -1.5, positions)):
        got = logits()
    steps = {"first": 0}

    def where(step: int) -> torch.Tensor:
        mask = batch["attention_mask"].bool() if step == 0 else torch.ones(2, 1, dtype=torch.bool)
        last = torch.zeros_like(mask)
        last[:, -1] = True
        place = torch.tensor([[12 + step - 1], [7 + step - 1]])
        return {
            "all": mask,
            "prompt": mask if step == 0 else ~mask,
            "decode": mask if step else torch.zeros_like(mask),
            "last": last,
            13: (place == 13) if step else torch.zeros_like(mask),
        }[positions]

    def hook(_: Any, args: tuple[torch.Tensor, ...], layer: int) -> tuple[torch.Tensor]:
        chosen = where(steps["first"])
        if layer == 1:
            steps["first"] += 1
        return (torch.where(chosen[..., None], args[0] * -1.5, args[0]),)

    handles = [
        layer.self_attn.o_proj.register_forward_pre_hook(lambda m, a, i=i: hook(m, a, i))
        for i, layer in enumerate(model.model.layers)
    ]
    expected = logits()
    for handle in handles:
        handle.remove()
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3 * float(expected.std()))
    assert float((got - plain).abs().max()) > 0.1 * float(plain.std())
