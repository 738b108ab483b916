"""What interventions refuse, and in which words."""

import numpy as np
import pytest
import torch
import xarray as xr
from families import padded, texts, tiny

from headwise.core.errors import DataError
from headwise.interventions import MeanAblation, ResampleAblation, ScaleHeads, Steer
from headwise.seam import observe

BATCH = padded(texts(12, 8))
DIMS = ("example", "layer", "head", "token", "width")


def run(watcher, batch=BATCH, family="llama") -> None:
    with torch.no_grad(), observe(tiny(family), watcher):
        tiny(family)(**batch)


def reading(**sizes: int) -> xr.DataArray:
    """A HeadOutputs reading of tiny llama, or one that does not fit."""
    shape = {"example": 2, "layer": 2, "head": 6, "token": 1, "width": 16} | sizes
    coords = {"layer": np.arange(shape["layer"]), "head": np.arange(shape["head"])}
    return xr.DataArray(np.ones(list(shape.values()), np.float32), dims=DIMS, coords=coords)


@pytest.mark.parametrize(
    ("heads", "words"),
    [
        ("L0H6", "there is no head L0H6: layer 0 of llama has heads 0 to 5"),
        ("L2H0", "there is no head L2H0: llama has layers 0 to 1"),
        ([(0, -1)], "there is no head L0H-1"),
        ("head 3", "'head' is not the name of a head; write it as L3H7"),
        ("H3L1", "'H3L1' is not the name of a head"),
        ("", "no heads are given; name at least one"),
        ([], "no heads are given; name at least one"),
    ],
)
def test_heads(heads, words):
    with pytest.raises(DataError, match=words):
        run(ScaleHeads(heads))


def test_heads_of_a_layer_without_any():
    with pytest.raises(DataError, match=r"there is no head L0H1: layer 0 has none \(mamba: no heads\)"):
        run(ScaleHeads("L0H1"), family="jamba")


def test_positions():
    with pytest.raises(DataError, match=r"positions are 'all', 'last'.*; got 'end'"):
        ScaleHeads("L0H0", positions="end")
    with pytest.raises(DataError, match="positions name token 40, but the batch has 12 tokens"):
        run(ScaleHeads("L0H0", positions=torch.tensor([[40], [1]])))


@pytest.mark.parametrize("watcher", [MeanAblation, Steer])
@pytest.mark.parametrize(
    ("vectors", "words"),
    [
        ({"L0H1": torch.ones(16)}, "there is no vector for L0H0; give one for every head"),
        ({"L0H0": torch.ones(1, 16)}, r"the vector for L0H0 has the shape \(1, 16\)"),
        ({"L0H0": torch.full((16,), torch.nan)}, "the vector for L0H0 is not finite; some example had no token there"),
        ({"none": torch.ones(16)}, "'none' is not the name of a head"),
        (reading(), r"vectors need dims \(layer, head, width\) and have .*take the mean over examples and one token"),
        (
            reading(layer=0).mean("example").isel(token=0),
            "the vectors have no entry for L0H0; take them from this model",
        ),
        (reading().mean("example").isel(token=0) * np.nan, "the vector for L0H0 is not finite"),
    ],
)
def test_vectors(watcher, vectors, words):
    with pytest.raises(DataError, match=words):
        watcher("L0H0", vectors)


@pytest.mark.parametrize("watcher", [MeanAblation, Steer])
def test_vectors_of_another_model(watcher):
    with pytest.raises(DataError, match="the vector for L0H2 has 12 entries and z has 16; take it from Head"):
        run(watcher("L0H1 L0H2", {"L0H1": torch.ones(16), "L0H2": torch.ones(12)}))


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ([1], r"source is \[1\] and the batch has 2 examples; give one index per example"),
        ([0, 1, 2], r"source is \[0, 1, 2\] and the batch has 2 examples"),
        ([0, 2], r"source is \[0, 2\] and the batch has 2 examples"),
        ([0, -1], r"source is \[0, -1\] and the batch has 2 examples"),
    ],
)
def test_sources_in_the_batch(source, words):
    with pytest.raises(DataError, match=words):
        run(ResampleAblation("L0H0", source))


def test_no_z_is_taken_from_padding():
    words = 'token 8 of example 0 would take z from padding of example 1; resample .*such as positions="last"'
    with pytest.raises(DataError, match=words):
        run(ResampleAblation("L0H0", [1, 0]))
    run(ResampleAblation("L0H0", [0, 1]))  # each from itself
    run(ResampleAblation("L0H0", [1, 0], [0, 7]))


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (reading(example=3), "source has 3 examples and this pass has 2"),
        (reading(token=2), "source has 2 tokens and this pass has 1"),
        (reading(width=8), "source has 8 entries per head and this pass has 16; read it with the same positions"),
        (reading(head=0), "source has no values for heads .* of layer 0; read it from this model"),
        (reading() * np.nan, "source is not finite at a token of this batch"),
    ],
)
def test_sources_from_a_reading(source, words):
    with pytest.raises(DataError, match=words):
        run(ResampleAblation("L0H0", source, "last"))


def test_a_reading_of_single_tokens_needs_their_names():
    with pytest.raises(
        DataError, match="a source from HeadOutputs has single tokens; name the same tokens in positions"
    ):
        ResampleAblation("L0H0", reading())
    with pytest.raises(DataError, match=r"source has dims .*; give the z of a HeadOutputs reading"):
        ResampleAblation("L0H0", reading().isel(token=0), "last")
