"""Two models' maps side by side, against plain float64 sums."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from planted import tiny_model

from headwise.core.errors import SeamError
from headwise.instruments import MapComparison, Patterns
from headwise.model import load
from headwise.model.gate import put_gate
from headwise.seam import observe

IDS = torch.tensor([[5, 9, 30, 31, 9, 12, 44, 50], [60, 61, 62, 63, 64, 65, 5, 5]])
ACTIVE = 0.05


def entropy(p: np.ndarray) -> float:
    return float(-(p[p > 0] * np.log2(p[p > 0])).sum())


def alike(p: np.ndarray, q: np.ndarray) -> float:
    """1 - JSD of two rows, what is missing to 1 being one more entry."""
    p, q = (np.append(row, max(0.0, 1 - row.sum())) for row in (p, q))
    return 1 - (entropy((p + q) / 2) - (entropy(p) + entropy(q)) / 2)


def maps_of(model: object) -> tuple[object, np.ndarray]:
    with observe(model, Patterns()) as seen:
        model(input_ids=IDS)  # type: ignore[operator]
    weights = np.nan_to_num(seen["patterns"]["weights"].values.astype(np.float64))
    return seen["patterns"], weights.reshape(2, 3, 4, 8, 8)


@pytest.mark.parametrize("gate", [None, 0.0, -1e3])
def test_every_number_is_the_plain_one(gate: float | None) -> None:
    first, (hf, tokenizer) = load(*tiny_model(seed=0)), tiny_model(seed=1)
    if gate is not None:
        put_gate(hf, gate)
    second = load(hf, tokenizer)
    beside, before = maps_of(first)
    _, after = maps_of(second)
    with observe(second, MapComparison(beside, ACTIVE)) as seen:
        second(input_ids=IDS)
    found = seen["map_comparison"]
    for example, layer, head in np.ndindex(2, 3, 4):
        p, q, other = (m[example, layer] for m in (before, after, after))
        p, q, other = p[head], q[head], other[(head + 1) % 4]
        here = {name: float(found[name].values[example, layer, head]) for name in found.data_vars}
        assert here["similarity"] == pytest.approx(np.mean([alike(p[i], q[i]) for i in range(1, 8)]), abs=1e-4)
        assert here["other"] == pytest.approx(np.mean([alike(p[i], other[i]) for i in range(1, 8)]), abs=1e-4)
        beside = [alike(np.append(0.0, p[i][1:]), np.append(0.0, q[i][1:])) for i in range(1, 8)]
        assert here["elsewhere"] == pytest.approx(np.mean(beside), abs=1e-4)
        assert here["before"] == (p[1:] > ACTIVE).sum()
        assert here["after"] == (q[1:] > ACTIVE).sum()
        assert here["both"] == ((p[1:] > ACTIVE) & (q[1:] > ACTIVE)).sum()
    if gate == -1e3:  # nothing is looked at: unlike every row that looks somewhere
        assert float(found["similarity"].max()) < 1e-5


def test_a_model_is_like_itself() -> None:
    model = load(*tiny_model())
    beside, _ = maps_of(model)
    with observe(model, MapComparison(beside, ACTIVE)) as seen:
        model(input_ids=IDS)
    assert (seen["map_comparison"]["similarity"] == 1).all()


def test_maps_of_another_batch_are_refused() -> None:
    model = load(*tiny_model())
    beside, _ = maps_of(model)
    with (
        observe(model, MapComparison(beside, ACTIVE)),
        pytest.raises(SeamError, match="layer 0 are 2 x 4 x 8 x 8 in the first"),
    ):
        model(input_ids=IDS[:, :5])
