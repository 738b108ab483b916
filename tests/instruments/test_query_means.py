"""Means from column sums against means of the very rows."""

import pytest
import torch
from layers import Setting, attention_of

from headwise.instruments.profile import QueryMeans
from headwise.kernels import ReductionRequest, reference

SETTINGS = {
    "plain": Setting(),
    "left padding": Setting(batch=3, padding="left"),
    "right padding, window": Setting(batch=3, window=4, padding="right"),
    "every query sees itself alone but": Setting(window=1),
    "cached keys": Setting(queries=9, keys=31),
    "sinks": Setting(sinks=True),
    "explicit mask": Setting(mask="shared"),
    "a mask for every example": Setting(mask="batched"),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_marked_keys_get_what_their_rows_give(name):
    attention = attention_of(SETTINGS[name])
    mask, batch = attention.mask, attention.q.shape[0]
    keys = attention.k.shape[2]
    marks = torch.rand(2, batch, keys, generator=torch.Generator().manual_seed(0)) < 0.4
    wanted = ReductionRequest(
        column_sums=True, row_max=True, key_weights={str(place): mark.float() for place, mark in enumerate(marks)}
    )
    exact = reference.reduce(attention, wanted)
    averages = QueryMeans.of(mask, [None, None], marks)
    rows = torch.stack([exact.key_weights[str(place)] for place in range(2)])
    by_rows = averages.of_rows(rows, gated=False)
    by_columns = averages.of_keys(exact.column_sums, exact.row_max)
    torch.testing.assert_close(by_columns, by_rows, rtol=1e-5, atol=1e-6, equal_nan=True)


def test_a_closed_row_is_left_out_of_a_gated_mean():
    averages = QueryMeans.of(
        attention_of(Setting(queries=4, batch=1)).mask, [None], torch.zeros(1, 1, 4, dtype=torch.bool)
    )
    rows = torch.tensor([9.0, 1.0, torch.nan, 3.0]).expand(1, 1, 1, 4)
    assert float(averages.of_rows(rows, gated=True)) == 2.0
    assert averages.of_rows(rows, gated=False).isnan().all()
