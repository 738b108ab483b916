"""Attention received is what eager attention's columns add up to, the diagonal left out."""

import numpy as np
import pytest
import torch
from families import build, padded, texts

from headwise.instruments import AttentionReceived
from headwise.seam import observe

ROWS = texts(12, 8)


@pytest.mark.parametrize("family", ["llama", "gemma2", "gpt_oss"])
def test_against_eager(family):
    """Also with windows and with rows that do not sum to one."""
    model, batch = build(family, attn_implementation="eager"), padded(ROWS)
    with torch.no_grad():
        eager = model(**batch, output_attentions=True).attentions
    with torch.no_grad(), observe(model, AttentionReceived([0, 3, -2, -1])) as seen:
        model(**batch)
    received = seen["attention_received"]["received"]
    assert received.dims == ("example", "layer", "head", "token")
    for layer, weights in enumerate(eager):
        for row, ids in enumerate(ROWS):
            own = weights[row, :, : len(ids), : len(ids)].double().numpy()  # (head, query, key)
            for place, token in enumerate([0, 3, len(ids) - 2, len(ids) - 1]):
                later = own[:, token + 1 :, token]
                sees = (own[:, token + 1 :, token] > 0).any(axis=0)
                expected = later[:, sees].mean(axis=1) if sees.any() else np.full(own.shape[0], np.nan)
                np.testing.assert_allclose(received[row, layer, :, place], expected, rtol=1e-4, atol=1e-6)


def test_what_is_not_valid_does_not_count():
    """A question put behind the answer must not change what the answer's tokens receive."""
    model = build("llama")
    ids = texts(14)[0][None]
    valid = torch.arange(14)[None] < 10
    with torch.no_grad(), observe(model, AttentionReceived([2, 9]), valid=valid) as seen:
        model(input_ids=ids, use_cache=False)
    with torch.no_grad(), observe(model, AttentionReceived([2, 9])) as alone:
        model(input_ids=ids[:, :10], use_cache=False)
    np.testing.assert_allclose(
        seen["attention_received"]["received"].values,
        alone["attention_received"]["received"].values,
        rtol=1e-4,
        atol=1e-6,
    )
    assert np.isnan(seen["attention_received"]["received"].values[..., 1]).all()
