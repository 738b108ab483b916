"""Packed products are plain products; without what torch offers, or for small matrices, there are none."""

import pytest
import torch

from headwise.probes.together import packing
from headwise.probes.together.packing import pack
from headwise.probes.together.shares import Shares


@pytest.fixture
def matrices():
    return torch.randn(3, 160, 120, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("cells", [[0, 0, 1, 1, 2, 2], [0, 1, 1, 1, 1, 1, 1, 1], [0, 2, 2]])
def test_packed_products_are_plain_ones(matrices, cells, turned):
    matrices = matrices.mT if turned else matrices
    packed = pack(matrices)
    if packed is None:
        pytest.skip("this torch packs no matrices")
    vectors = torch.randn(len(cells), matrices.shape[1], generator=torch.Generator().manual_seed(1))
    plain = torch.stack([vectors[place] @ matrices[cell] for place, cell in enumerate(cells)])
    torch.testing.assert_close(Shares(torch.tensor(cells), 3).product(vectors, packed), plain, atol=1e-4, rtol=1e-4)


def test_small_matrices_stay_as_they_are(matrices):
    assert pack(matrices[:, :20, :20]) is None


@pytest.mark.parametrize("broken", [AttributeError("gone"), RuntimeError("not for this machine"), None])
def test_where_torch_cannot_pack_or_errs_products_are_plain(matrices, monkeypatch, broken):
    def product(ordered, vectors):
        if broken is not None:
            raise broken
        return torch.zeros(2, 4)

    monkeypatch.setattr(packing, "_product", product)
    packing._can_pack.cache_clear()
    try:
        assert pack(matrices) is None
    finally:
        packing._can_pack.cache_clear()
