"""Layers looked at behind the model's back: each once, in order, one late; on a GPU beside it, with the same bits."""

import gc
import weakref
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import xarray as xr
from families import build, padded, texts

from headwise.core.errors import SeamError
from headwise.instruments import AnswerSpectrum, HeadOutputs, HeadValues, PatternNumbers, Profile, Received, Spectrum
from headwise.seam import Instrument, forward, observe
from headwise.seam.behind import Behind
from headwise.seam.forward import Pass

on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="a second queue needs a GPU")


def call(place: int) -> Any:
    some = torch.zeros(1)
    return SimpleNamespace(layer=place, z=some, v=some, attention=SimpleNamespace(q=some, k=some))


def seen_after_each(behind: Behind) -> tuple[list[list[int]], list[int]]:
    """What was seen after each of three layers was handed over, and in the end."""
    seen: list[int] = []
    after = []
    for place in range(3):
        behind.hand(call(place), lambda one: seen.append(one.layer))
        after.append(list(seen))
    behind.finish(lambda one: seen.append(one.layer))
    return after, seen


@pytest.mark.parametrize("beside", [True, False])
def test_each_is_looked_at_once_the_next_has_run(beside):
    assert seen_after_each(Behind(beside)) == ([[], [0], [0, 1]], [0, 1, 2])


def test_large_ones_do_not_wait(monkeypatch):
    monkeypatch.setattr("headwise.seam.behind.LIGHT", 15)  # four times four bytes are more
    assert seen_after_each(Behind(True)) == ([[0], [0, 1], [0, 1, 2]], [0, 1, 2])


def test_after_a_failure_nothing_more_is_looked_at():
    seen: list[int] = []
    behind = Behind(beside=False)
    behind.hand(call(0), lambda one: seen.append(one.layer))
    behind.hand(call(1), lambda one: seen.append(one.layer))
    behind.drop()
    behind.finish(lambda one: seen.append(one.layer))
    assert seen == [0]


def test_a_pass_is_freed_when_it_is_over(monkeypatch):
    """By counting references: what waits for the garbage collector keeps a GPU's memory."""
    monkeypatch.setattr(forward, "RUNS_BEHIND", ("cpu",))
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


class Queue(Instrument):
    """In which queue it was asked to look."""

    name = "queue"

    def __init__(self, beside: bool):
        self.stream_safe, self.found = beside, set()

    def on_layer(self, call):
        self.found.add(torch.cuda.current_stream())

    def result(self):
        raise NotImplementedError


class Slow(Instrument):
    """Keeps its queue waiting before every layer, so that what is let go too early is lost."""

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
def test_a_second_queue_only_if_all_agree():
    model, ids = build("llama").cuda(), texts(7)[0][None].cuda()
    own = torch.cuda.current_stream()
    for willing, other in ((True, True), (False, True), (True, False)):
        queues = Queue(willing), Queue(other)
        with torch.no_grad(), observe(model, *queues):
            model(input_ids=ids)
        found = queues[0].found | queues[1].found
        assert len(found) == 1
        assert (found == {own}) is not (willing and other)


def readings(model: Any, batches: list[dict[str, torch.Tensor]]) -> list[xr.Dataset]:
    watchers = Spectrum(), Profile((3, 4)), Received([0, -1])
    with torch.no_grad(), observe(model, Slow(), *watchers):
        for batch in batches:
            model(**batch, use_cache=False)
            for _ in range(4):  # what was freed too early would be given out here, and written over
                torch.full((batch["input_ids"].numel(), 300), torch.nan, device="cuda")
    return [one.result() for one in watchers]


@on_a_gpu
@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize(
    ("family", "side"),
    [("llama", "none"), ("llama", "right"), ("llama", "left"), ("gemma2", "none"), ("gpt2", "right")],
)
def test_the_same_bits_in_a_second_queue(family, side, large, monkeypatch):
    monkeypatch.setattr("headwise.seam.behind.LIGHT", 0 if large else 2**28)
    model = build(family).cuda()
    batches = []
    for seed in range(4):
        if side == "none":
            ids = torch.stack([texts(24 + 8 * seed, seed=10 * seed + one)[0] for one in range(4)])
            batches.append({"input_ids": ids.cuda()})
        else:
            batch = padded(texts(24 + 8 * seed, 9, 17, seed=seed), side)
            batches.append({name: values.cuda() for name, values in batch.items()})
    beside = readings(model, batches)
    for kind in (Spectrum, Profile, Received):
        monkeypatch.setattr(kind, "beside", False)
    for one, other in zip(beside, readings(model, batches), strict=True):
        xr.testing.assert_identical(one, other)


@on_a_gpu
@pytest.mark.parametrize(
    "watcher",
    [Spectrum, PatternNumbers, lambda: Profile((3, 4)), lambda: AnswerSpectrum(torch.tensor([5])), Received, HeadOutputs,
     lambda: HeadValues(torch.tensor([[2]]))],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
def test_no_layer_is_waited_for(watcher, monkeypatch):
    def look(self, call, own=Pass._look):
        torch.cuda.set_sync_debug_mode("error")
        try:
            own(self, call)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    model, ids = build("llama").cuda(), texts(40)[0][None].cuda()
    monkeypatch.setattr(Pass, "_look", look)
    with torch.no_grad(), observe(model, watcher()) as seen:
        model(input_ids=ids, use_cache=False)
    assert seen.passes == 1


@on_a_gpu
def test_a_pass_that_fails_beside_leaves_the_next_one_right():
    model, ids = build("llama").cuda(), texts(40)[0][None].cuda()
    with torch.no_grad():
        with observe(model, Spectrum()) as expected:
            model(input_ids=ids)
        with observe(model, Spectrum()) as seen:
            with observe(model, Fails()), pytest.raises(SeamError, match="not this one"):
                model(input_ids=ids)
            model(input_ids=ids)
    xr.testing.assert_identical(seen["spectrum"], expected["spectrum"])
