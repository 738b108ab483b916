"""Numbers of attention maps, against plain float64 sums over the maps that eager attention gives."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from planted import tiny_model

from headwise.instruments import PATTERN_STATISTICS, Patterns, PatternStatistics
from headwise.model import Model, load
from headwise.model.gate import put_gate
from headwise.seam import observe

ACTIVE, PEAK = 0.03, 0.2
IDS = torch.tensor([[5, 9, 30, 31, 9, 12, 44, 50, 9, 30, 7, 8], [60, 61, 62, 63, 64, 65, 5, 5, 5, 80, 81, 82]])


def plain(maps: np.ndarray) -> dict[str, float]:
    """The numbers of one map, (query, key) with NaN where the mask hides, one definition a line."""
    rows = range(1, len(maps))
    a = np.nan_to_num(maps)
    seen = np.isfinite(maps)
    mass = [a[i].sum() for i in rows]
    entropies = [
        -sum(p * np.log(p) for p in a[i] / a[i].sum() if p > 0) / np.log(seen[i].sum()) for i in rows if a[i].sum() > 0
    ]
    far = [sum(a[i, j] > PEAK for j in range(1, i - 1)) for i in rows]
    pairs = seen[1:].sum()
    return {
        "diagonal": sum(a[i, i] + a[i, i - 1] for i in rows) / sum(mass) if sum(mass) > 0 else np.nan,
        "first": np.mean([a[i, 0] for i in rows]),
        "peak": np.mean([a[i].max() for i in rows]),
        "off_diagonal": sum(far) / len(rows),
        "entropy": np.mean(entropies) if entropies else np.nan,
        "active": (a[1:] > ACTIVE).sum() / pairs,
        "open": (a[1:] > 0).sum() / pairs,
        "mass": np.mean(mass),
    }


def read(model: Model, ids: torch.Tensor, **options: object) -> tuple[np.ndarray, np.ndarray]:
    """(example, layer, head, number) of the instrument, and of plain sums over the maps."""
    with observe(model, PatternStatistics(ACTIVE, PEAK), Patterns(), **options) as seen:  # type: ignore[arg-type]
        model(input_ids=ids)
    maps = seen["patterns"]["weights"].values.astype(np.float64)
    layers, heads = seen["pattern_statistics"].sizes["layer"], seen["pattern_statistics"].sizes["head"]
    return seen["pattern_statistics"]["value"].values, maps.reshape(len(maps), layers, heads, *maps.shape[2:])


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma2"])
def test_numbers_are_plain_sums_over_eager_maps(family: str) -> None:
    hf, tokenizer = tiny_model(family)
    found, _ = read(load(hf, tokenizer), IDS)
    eager = copy.deepcopy(hf).double()
    eager.set_attn_implementation("eager")
    with torch.no_grad():
        maps = torch.stack(
            eager(input_ids=IDS, output_attentions=True).attentions, dim=1
        )  # (example, layer, head, ...)
    hidden = torch.ones(maps.shape[-2:]).triu(1).bool()
    plainly = maps.masked_fill(hidden, torch.nan).numpy()
    for place in np.ndindex(*plainly.shape[:3]):
        expected = plain(plainly[place])
        for index, name in enumerate(PATTERN_STATISTICS):
            assert found[place][index] == pytest.approx(expected[name], abs=2e-5), (place, name)


@pytest.mark.parametrize("bias", [0.0, -1.0, -1e3])
def test_gated_rows_that_sum_to_less_or_nothing(bias: float) -> None:
    hf, tokenizer = tiny_model(layers=2)
    put_gate(hf, bias)
    found, maps = read(load(hf, tokenizer), IDS)
    if bias == 0:
        assert ((np.nan_to_num(maps).sum(-1) == 0) & (np.arange(12) > 0)).any()  # some rows look nowhere
    for place in np.ndindex(*maps.shape[:3]):
        expected = plain(maps[place])
        for index, name in enumerate(PATTERN_STATISTICS):
            np.testing.assert_allclose(found[place][index], expected[name], atol=2e-5, err_msg=f"{place} {name}")
    if bias == -1e3:
        assert np.isnan(found[..., PATTERN_STATISTICS.index("diagonal")]).all()
        assert (found[..., PATTERN_STATISTICS.index("mass")] < 1e-6).all()


def test_padding_does_not_matter() -> None:
    model = load(*tiny_model(layers=2))
    alone, _ = read(model, IDS[:1, :7])
    padded = torch.cat([IDS[:1, :7], IDS[:1, 6:7].expand(-1, 5)], dim=1)
    valid = torch.arange(12)[None] < 7
    with observe(model, PatternStatistics(ACTIVE, PEAK), valid=valid) as seen:
        model(input_ids=padded)
    np.testing.assert_allclose(seen["pattern_statistics"]["value"].values, alone, atol=1e-5)


def test_the_even_head_is_what_it_should_be() -> None:
    model = load(*tiny_model(layers=1))
    with observe(model, PatternStatistics(ACTIVE, PEAK)) as seen:
        model(input_ids=IDS[:1])
    even = np.where(np.tri(12) > 0, np.tri(12) / np.arange(1, 13)[:, None], np.nan)
    expected = plain(even)
    for index, name in enumerate(PATTERN_STATISTICS):
        assert seen["pattern_statistics"]["uniform"].values[0, 0, 0, index] == pytest.approx(
            expected[name], abs=1e-5
        ), name
