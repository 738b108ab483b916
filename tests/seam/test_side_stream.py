"""Layers are observed once each, in order, one layer late; on a GPU on a side stream, with the same bits."""

import gc
import weakref
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import xarray as xr
from families import build, padded, texts

from headwise.core.errors import SeamError
from headwise.instruments import (
    AnswerSpectrum,
    AttentionReceived,
    HeadOutputs,
    HeadValues,
    PatternStatistics,
    Profile,
    Spectrum,
)
from headwise.seam import Instrument, forward, observe
from headwise.seam.forward import Pass, SideStream

on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="a side stream needs a GPU")


def call(index: int) -> Any:
    some = torch.zeros(1)
    return SimpleNamespace(layer=index, z=some, v=some, attention=SimpleNamespace(q=some, k=some))


def seen_after_each(stream: SideStream) -> tuple[list[list[int]], list[int]]:
    """What was seen after each of three layers was submitted, and in the end."""
    seen: list[int] = []
    after = []
    for index in range(3):
        stream.submit(call(index), lambda one: seen.append(one.layer))
        after.append(list(seen))
    stream.finish(lambda one: seen.append(one.layer))
    return after, seen


@pytest.mark.parametrize("stream_safe", [True, False])
def test_each_is_observed_once_the_next_has_run(stream_safe):
    assert seen_after_each(SideStream(stream_safe)) == ([[], [0], [0, 1]], [0, 1, 2])


def test_large_calls_are_not_deferred(monkeypatch):
    monkeypatch.setattr("headwise.seam.forward.MAX_DEFERRED_BYTES", 15)  # four times four bytes are more
    assert seen_after_each(SideStream(True)) == ([[0], [0, 1], [0, 1, 2]], [0, 1, 2])


def test_after_a_failure_nothing_more_is_observed():
    seen: list[int] = []
    stream = SideStream(stream_safe=False)
    stream.submit(call(0), lambda one: seen.append(one.layer))
    stream.submit(call(1), lambda one: seen.append(one.layer))
    stream.abort()
    stream.finish(lambda one: seen.append(one.layer))
    assert seen == [0]


def test_a_pass_is_freed_when_it_is_over(monkeypatch):
    """By counting references: what waits for the garbage collector keeps a GPU's memory."""
    monkeypatch.setattr(forward, "ASYNC_DEVICES", ("cpu",))
    passes: list[weakref.ref[Any]] = []
    monkeypatch.setattr(
        Pass, "run", lambda self, *given, own=Pass.run: (passes.append(weakref.ref(self)), own(self, *given))[1]
    )
    model = build("llama")
    gc.disable()
    try:
        with torch.no_grad(), observe(model, Spectrum(), Profile()):
            model(input_ids=texts(9)[0][None])
            model(input_ids=texts(9)[0][None])
        assert len(passes) > 1  # attaching is one more
        assert not any(one() for one in passes)
    finally:
        gc.enable()


class CurrentStream(Instrument):
    """The streams on which it was called."""

    name = "stream"

    def __init__(self, stream_safe: bool):
        self.stream_safe, self.found = stream_safe, set()

    def on_layer(self, call):
        self.found.add(torch.cuda.current_stream())

    def result(self):
        raise NotImplementedError


class Slow(Instrument):
    """Delays its stream before every layer, so that a tensor freed too early is overwritten."""

    name, stream_safe = "slow", True

    def on_layer(self, call):
        torch.cuda._sleep(40_000_000)

    def result(self):
        raise NotImplementedError


class Fails(Instrument):
    name, stream_safe = "fails", True

    def on_layer(self, call):
        if call.layer == 1:
            raise SeamError("not this one")

    def result(self):
        raise NotImplementedError


@on_a_gpu
def test_a_side_stream_only_if_all_allow_it():
    model, ids = build("llama").cuda(), texts(7)[0][None].cuda()
    own = torch.cuda.current_stream()
    for willing, other in ((True, True), (False, True), (True, False)):
        instruments = CurrentStream(willing), CurrentStream(other)
        with torch.no_grad(), observe(model, *instruments):
            model(input_ids=ids)
        found = instruments[0].found | instruments[1].found
        assert len(found) == 1
        assert (found == {own}) is not (willing and other)


def readings(model: Any, batches: list[dict[str, torch.Tensor]]) -> list[xr.Dataset]:
    watchers = Spectrum(), Profile((3, 4)), AttentionReceived([0, -1])
    with torch.no_grad(), observe(model, Slow(), *watchers):
        for batch in batches:
            model(**batch, use_cache=False)
            for _ in range(4):  # memory freed too early would be reused here, and overwritten
                torch.full((batch["input_ids"].numel(), 300), torch.nan, device="cuda")
    return [one.result() for one in watchers]


@on_a_gpu
@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize(
    ("family", "side"),
    [("llama", "none"), ("llama", "right"), ("llama", "left"), ("gemma2", "none"), ("gpt2", "right")],
)
def test_the_same_bits_on_a_side_stream(family, side, large, monkeypatch):
    monkeypatch.setattr("headwise.seam.forward.MAX_DEFERRED_BYTES", 0 if large else 2**28)
    model = build(family).cuda()
    batches = []
    for seed in range(4):
        if side == "none":
            ids = torch.stack([texts(24 + 8 * seed, seed=10 * seed + one)[0] for one in range(4)])
            batches.append({"input_ids": ids.cuda()})
        else:
            batch = padded(texts(24 + 8 * seed, 9, 17, seed=seed), side)
            batches.append({name: values.cuda() for name, values in batch.items()})
    on_side = readings(model, batches)
    for kind in (Spectrum, Profile, AttentionReceived):
        monkeypatch.setattr(kind, "stream_safe", False)
    for one, other in zip(on_side, readings(model, batches), strict=True):
        xr.testing.assert_identical(one, other)


@on_a_gpu
@pytest.mark.parametrize(
    "watcher",
    [Spectrum, PatternStatistics, lambda: Profile((3, 4)), lambda: AnswerSpectrum(torch.tensor([5])), AttentionReceived,
     HeadOutputs, lambda: HeadValues(torch.tensor([[2]]))],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
def test_no_layer_is_waited_for(watcher, monkeypatch):
    def observe_call(self, call, own=Pass._observe):
        torch.cuda.set_sync_debug_mode("error")
        try:
            own(self, call)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    model, ids = build("llama").cuda(), texts(40)[0][None].cuda()
    monkeypatch.setattr(Pass, "_observe", observe_call)
    with torch.no_grad(), observe(model, watcher()) as seen:
        model(input_ids=ids, use_cache=False)
    assert seen.passes == 1


@on_a_gpu
def test_a_failed_pass_does_not_disturb_the_next():
    model, ids = build("llama").cuda(), texts(40)[0][None].cuda()
    with torch.no_grad():
        with observe(model, Spectrum()) as expected:
            model(input_ids=ids)
        with observe(model, Spectrum()) as seen:
            with observe(model, Fails()), pytest.raises(SeamError, match="not this one"):
                model(input_ids=ids)
            model(input_ids=ids)
    xr.testing.assert_identical(seen["spectrum"], expected["spectrum"])
