"""The plain reference against loops over single numbers, and whole maps against the textbook."""

import math

import pytest
import torch
from layers import Setting, attention_of, everything, logits_of

from headwise.kernels import reference

SETTINGS = {
    "plain": Setting(queries=7),
    "window, left padding": Setting(queries=7, window=3, padding="left"),
    "sinks, cap": Setting(queries=7, sinks=True, softcap=2.0),
    "cached keys": Setting(queries=3, keys=8),
    "more queries than keys": Setting(queries=8, keys=5),
    "mask of each head": Setting(queries=7, mask="per_head"),
}


def one_row(weights: list[float], own: int, wanted, b: int, i: int) -> dict[str, float]:
    """Every reduction of one row, from its definition."""
    mass = math.fsum(weights)
    p = [w / mass for w in weights]
    lag = [own - j for j in range(len(weights))]
    mean = math.fsum(x * y for x, y in zip(p, lag, strict=True))
    row = {
        "log_diagonal": math.log(weights[own]) if 0 <= own < len(weights) and weights[own] > 0 else -math.inf,
        "entropy": -math.fsum(x * math.log(x) for x in p if x > 0),
        "distance_mean": mean,
        "distance_variance": math.fsum(x * (y - mean) ** 2 for x, y in zip(p, lag, strict=True)),
        "row_max": max(weights),
        "top_weights": sorted(weights, reverse=True)[: wanted.top],
    }
    for low, high in wanted.offsets:
        row[f"offsets[{(low, high)}]"] = math.fsum(w for w, d in zip(weights, lag, strict=True) if low <= d < high)
    for threshold in wanted.count_above:
        row[f"count_above[{threshold}]"] = float(sum(w > threshold for w in weights))
    for name, marks in wanted.key_weights.items():
        row[f"key_weights[{name}]"] = math.fsum(w * float(m) for w, m in zip(weights, marks[b], strict=True))
    for name, match in wanted.token_matches.items():
        mine, ids = int(match.query[b, i]), match.key[b].tolist()
        row[f"token_matches[{name}]"] = math.fsum(
            weight for key, weight in enumerate(weights) if key < own and mine >= 0 and ids[key] == mine
        )
    return row


@pytest.mark.parametrize("name", SETTINGS)
def test_every_row_by_hand(name):
    attention = attention_of(SETTINGS[name])
    wanted = everything(attention, top=3)
    got = reference.reduce(attention, wanted).flat()
    maps, mask = attention.weights(dtype=torch.float64), attention.mask
    batch, heads, queries, keys = maps.shape
    sums = torch.zeros(batch, heads, keys, dtype=torch.float64)
    weighted = torch.zeros_like(sums)
    for b in range(batch):
        for h in range(heads):
            for i in range(queries):
                weights = maps[b, h, i].tolist()
                if not bool(mask.valid_queries(batch)[b, i]) or sum(weights) == 0:
                    assert bool(got["entropy"][b, h, i].isnan())
                    continue
                sums[b, h] += maps[b, h, i]
                weighted[b, h] += maps[b, h, i] * wanted.query_weights["weighted"][b, i]
                for what, value in one_row(weights, i + mask.offset, wanted, b, i).items():
                    expected = torch.tensor(value, dtype=torch.float64)
                    torch.testing.assert_close(got[what][b, h, i], expected, rtol=1e-10, atol=1e-12, msg=what)
    torch.testing.assert_close(got["column_sums"], sums)
    torch.testing.assert_close(got["query_weights[weighted]"], weighted)
    torch.testing.assert_close(got["query_weights[shared]"], sums)


@pytest.mark.parametrize("name", SETTINGS)
def test_whole_maps(name):
    """softmax of the logits, the sink in the denominator alone, nought for rows that see nothing."""
    attention = attention_of(SETTINGS[name])
    logits = logits_of(attention)
    sink = 0.0 if attention.sinks is None else attention.sinks.double().exp().view(1, -1, 1, 1)
    expected = (logits.exp() / (logits.exp().sum(dim=-1, keepdim=True) + sink)).nan_to_num(0.0)
    torch.testing.assert_close(attention.weights(dtype=torch.float64), expected)
    chosen = [4, 1]
    torch.testing.assert_close(attention.weights(chosen, dtype=torch.float64), expected[:, chosen])
    assert attention.weights(chosen).dtype == torch.float32
