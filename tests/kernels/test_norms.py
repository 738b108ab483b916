"""How long what a head writes is: against the product with W_O itself, in float64."""

import pytest
import torch
from triton_here import DEVICE, interprets, runs, under_the_interpreter

from headwise.kernels import Gram
from headwise.kernels.norms import fused_sq_norms, in_halves


def layer(width: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """z (batch, token, head, width), W (head, width, hidden), and ||z W|| (batch, head, token) in float64."""
    generator = torch.Generator().manual_seed(width)
    z = torch.randn(2, 37, 3, width, generator=generator).to(dtype)
    weight = (torch.randn(3, width, 50, generator=generator) * torch.tensor([1e-3, 1.0, 40.0])[:, None, None]).to(dtype)
    exact = torch.einsum("bthd,hdn->bhtn", z.double(), weight.double()).norm(dim=-1)
    return z, weight, exact


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_norms(dtype):
    z, weight, exact = layer(20, dtype)
    torch.testing.assert_close(Gram.of(weight).norms(z).double(), exact, rtol=1e-5, atol=0)


@runs
@pytest.mark.parametrize("width", [16, 20, 64, 80, 256])
def test_the_kernel(width):
    z, weight, exact = layer(width, torch.float16)
    whole = weight.float() @ weight.float().transpose(1, 2)
    squares = fused_sq_norms(z.to(DEVICE), *(part.to(DEVICE) for part in in_halves(whole, torch.float16)))
    torch.testing.assert_close(squares.cpu().double().sqrt(), exact, rtol=1e-4, atol=0)


@pytest.mark.parametrize(("dtype", "bits"), [(torch.bfloat16, 15), (torch.float16, 20)])
def test_two_halves_are_nearly_the_whole(dtype, bits):
    _, weight, _ = layer(20, torch.float32)
    whole = weight @ weight.transpose(1, 2)
    coarse, fine, unit = in_halves(whole, dtype)
    back = (coarse.double() + fine.double()) * unit[:, None, None]
    assert float(((back - whole).abs() / unit[:, None, None]).max()) < 2.0**-bits


@interprets
def test_under_the_interpreter():
    under_the_interpreter(__file__)
