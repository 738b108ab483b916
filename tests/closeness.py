"""How close is close enough: a kernel may be at most twice as wrong as a plain float32 computation.

The rule is flash-attention's. `exact` is computed in float64, `plain` by the same few lines in float32, and `got` is
on trial. Errors are largest absolute differences over the whole tensor: the tolerance is measured, not guessed.

    error(got) <= 2 error(plain) + slack

The slack is for results that plain float32 happens to get exactly right: a softmax that divides by its own sum gives
rows that sum to 1 whatever the logits' error is, while a streamed weight exp(s - lse) carries it. A float32 number s is
known to |s| eps, exp() turns that into a relative error, and there are two such numbers, s and lse. So the slack is two
units in the last place of the largest value, times the `condition`: the largest logit or log-sum-exp, and at least 1.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headwise.kernels import Reductions

EPS = 2.0**-23


def assert_no_worse_than_twice(
    got: Tensor, exact: Tensor, plain: Tensor, *, condition: float = 1.0, what: str = ""
) -> None:
    """The rule above; NaN and infinities must stand at the same places as in `exact`."""
    assert got.shape == exact.shape, f"{what}: {tuple(got.shape)} and {tuple(exact.shape)} expected"
    got, plain = got.double(), plain.double()
    assert torch.equal(got.isnan(), exact.isnan()), f"{what}: NaN elsewhere than expected"
    finite = exact.isfinite()
    assert torch.equal(got[~finite].nan_to_num(7), exact[~finite].nan_to_num(7)), f"{what}: infinite elsewhere"
    if not bool(finite.any()):
        return
    both = finite & plain.isfinite()  # a logarithm that underflows in plain float32 need not do so here
    error, allowed = (got - exact)[finite].abs().max(), 2 * (plain - exact)[both].abs().max() if bool(both.any()) else 0
    slack = 2 * EPS * max(1.0, condition) * max(1.0, float(exact[finite].abs().max()))
    assert error <= allowed + slack, f"{what}: error {error:.2e}, allowed {allowed:.2e} + {slack:.2e}"


def assert_reductions_close(
    got: Reductions, exact: Reductions, plain: Reductions, *, condition: float = 1.0, maps: Tensor | None = None
) -> None:
    """The rule for every reduction; where keys are named or counted, ties are settled with the exact `maps`."""
    mine, exactly, plainly = got.flat(), exact.flat(), plain.flat()
    assert mine.keys() == exactly.keys()
    for name, value in mine.items():
        if name == "top_keys":
            assert_same_keys(value, exactly["top_weights"], maps, condition)
        elif name.startswith("over"):
            assert_counts(value, float(name[5:-1]), exactly[name], maps, condition)
        else:
            assert_no_worse_than_twice(value, exactly[name], plainly[name], condition=condition, what=name)


def assert_same_keys(keys: Tensor, weights: Tensor, maps: Tensor | None, condition: float) -> None:
    """The named keys hold the exact largest weights; of two keys that tie to the last digit, either will do."""
    assert maps is not None
    held = maps.gather(-1, keys.clamp(min=0)).masked_fill(keys < 0, 0.0)
    there = weights.isfinite()
    assert torch.equal(keys[~there], torch.full_like(keys[~there], -1))
    tie = 8 * EPS * max(1.0, condition)
    torch.testing.assert_close(held[there], weights[there], rtol=tie, atol=1e-30)


def assert_counts(counts: Tensor, threshold: float, exact: Tensor, maps: Tensor | None, condition: float) -> None:
    """A weight within rounding of the threshold may be counted or not."""
    assert maps is not None
    assert torch.equal(counts.isnan(), exact.isnan())
    near = ((maps - threshold).abs() <= 8 * EPS * max(1.0, condition) * threshold).sum(dim=-1)
    assert bool(((counts - exact).abs().nan_to_num(0.0) <= near).all())
