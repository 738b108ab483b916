"""What rules would do to each head, against the whole maps."""

import numpy as np
import torch
from planted import tiny_model

from headwise.instruments import AttentionDropEffects, Patterns, RawHeadOutputs
from headwise.interventions import DropAttention
from headwise.kernels import SparsityRule
from headwise.model import load
from headwise.seam import Structure, observe

RULES = (SparsityRule("top", 3), SparsityRule("window", 4, sink=1), SparsityRule("top", 99))


def seen():
    structure = Structure(load(*tiny_model()))
    ids = torch.randint(5, 150, (2, 12), generator=torch.Generator().manual_seed(0))
    maps, dropped = Patterns(), AttentionDropEffects(RULES)
    with torch.no_grad(), observe(structure, maps, dropped):
        structure.decoder(input_ids=ids, use_cache=False)
    return structure, ids, maps.result()["weights"].values, dropped.result()


def test_shares_and_keys_are_those_of_the_maps():
    _, _, p, found = seen()  # p is (example, place, query, key)
    p = np.nan_to_num(p.astype(np.float64)).reshape(2, 3, 4, 12, 12)
    edges = 12 * 13 / 2
    assert np.allclose(found["kept"].isel(rule=0), sum(min(i + 1, 3) for i in range(12)) / edges)
    order = np.sort(p, axis=-1)[..., ::-1]
    assert np.allclose(found["mass"].isel(rule=0), 1 - order[..., :3].sum(-1).mean(-1), atol=1e-5)
    needed = ((order.cumsum(-1) < 0.99).sum(-1) + 1).mean(-1)
    assert np.abs(found["needed"].values - needed).max() < 0.1  # a row may stand on the edge of 99 %
    query, key = np.ogrid[:12, :12]
    outside = (query - key >= 4) & (key >= 1)
    assert np.allclose(found["mass"].isel(rule=1), (p * outside).sum((-1, -2)) / 12, atol=1e-5)
    assert np.allclose(found["change"].isel(rule=2), 0, atol=1e-6) and np.allclose(found["kept"].isel(rule=2), 1)


def test_the_change_is_that_of_an_intervention_on_the_head():
    structure, ids, _, found = seen()
    plain, cut = RawHeadOutputs(), RawHeadOutputs()
    with torch.no_grad(), observe(structure, plain):
        structure.decoder(input_ids=ids, use_cache=False)
    with torch.no_grad(), observe(structure, DropAttention(RULES[0], "L1H2"), cut):
        structure.decoder(input_ids=ids, use_cache=False)
    moved = (cut.z[1] - plain.z[1])[:, :, 2].flatten(1).norm(dim=1) / plain.z[1][:, :, 2].flatten(1).norm(dim=1)
    assert np.allclose(found["change"].sel(layer=1, head=2).isel(rule=0), moved, atol=1e-5)
    assert torch.equal(cut.z[1][:, :, 1], plain.z[1][:, :, 1]) and torch.equal(cut.z[0], plain.z[0])
    assert not torch.equal(cut.z[2], plain.z[2])


def test_padding_counts_for_nothing():
    structure, ids, _, _ = seen()
    valid = torch.ones(2, 12, dtype=torch.bool)
    valid[1, 8:] = False
    padded, alone = AttentionDropEffects(RULES), AttentionDropEffects(RULES)
    with torch.no_grad(), observe(structure, padded, valid=valid):
        structure.decoder(input_ids=ids, use_cache=False)
    with torch.no_grad(), observe(structure, alone):
        structure.decoder(input_ids=ids[1:, :8], use_cache=False)
    for name in ("kept", "mass", "change", "needed"):
        assert np.allclose(padded.result()[name][1], alone.result()[name][0], atol=1e-5), name


def test_streams_are_the_outputs_of_every_token():
    structure, ids, _, _ = seen()
    streams = RawHeadOutputs()
    with torch.no_grad(), observe(structure, streams):
        structure.decoder(input_ids=ids, use_cache=False)
    z = streams.result()["z"]
    assert z.dims == ("example", "layer", "head", "token", "width")
    assert np.allclose(z.sel(layer=1, head=2)[0], streams.z[1][0, :, 2])
