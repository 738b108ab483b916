"""The features of some cells, ready to be fitted on any fold without making a matrix for each.

A probe standardises with the mean and the scale of its training fold, so that every fold has features of its own:
z = (x - mean_f) / scale_f. No such matrix is needed. The free intercept takes up any shift, and a scale moves into the
penalty: with x* = (x - mean) / scale of *all* rows and u the weight of x*, the weight of z is w = u · scale_f / scale,

    w·z + c_f  =  u·x* + c,        |w|²  =  Σ_j ratio_fj² u_j²,        ratio_f = scale_f / scale

The problem of fold f on x* with the penalty ratio_f² is the problem on z, exactly; rows outside the fold have no say in
it, since x* is only another way to write the same function. So all folds share one matrix and each product with it.

A feature that is constant in a fold has no say there: its ratio is infinite, its weight 0. Where a fold's spread is small
beside its shift, so that float32 could not tell, spreads are taken in float64.

This module does not know labels.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Points", "points_of"]

_CLEAR = 1e-3  # of the squared shift: a variance above it is sure in float32
_NONE = 1e-12  # of the squared shift: a variance below it is rounding in float64


class Points(NamedTuple):
    """A block of cells."""

    x: Tensor
    """(cell, row, feature) float32: shifted, and scaled where the probes are to be standardised"""
    ratio: Tensor
    """(cell, fold, feature) float32: weight of the fold's own features over the weight of ``x``; infinite: constant"""
    centre: Tensor
    """(cell, fold, feature) float32: mean of ``x`` over the fold's training rows"""
    mean: Tensor
    """(cell, feature) float64"""
    scale: Tensor
    """(cell, feature) float64: the features as given are ``x * scale + mean``"""


def points_of(features: Tensor, trains: Tensor, *, standardise: bool) -> Points:
    """Features (cell, row, feature) float32 for folds whose training rows are ``trains`` (fold, row)."""
    mean = features.mean(dim=1)  # (cell, feature)
    x = features - mean[:, None]
    if not standardise:
        ones = torch.ones_like(mean)
        return Points(x, ones[:, None].expand(-1, len(trains), -1), _means(x, trains), mean.double(), ones.double())
    means, spreads = _spreads(x, torch.cat([torch.ones_like(trains[:1]), trains]))  # (cell, 1 + fold, feature)
    scale = torch.where(spreads[:, 0] > 0, spreads[:, 0], 1.0)
    x /= scale[:, None]
    ratio = torch.where(spreads[:, 1:] > 0, spreads[:, 1:] / scale[:, None], torch.inf)
    return Points(x, ratio, means[:, 1:] / scale[:, None], mean.double(), scale.double())


def _spreads(x: Tensor, subsets: Tensor) -> tuple[Tensor, Tensor]:
    """(cell, subset, feature): mean and standard deviation of each subset of rows; 0 where it is constant."""
    means = _means(x, subsets)
    variance = (_means_of_squares(x, subsets) - means.square()).clamp(min=0)
    if bool((variance <= _CLEAR * means.square()).any()):
        exact = x.double()
        means = _means(exact, subsets)
        variance = (_means_of_squares(exact, subsets) - means.square()).clamp(min=0)
    spreads = torch.where(variance <= _NONE * means.square(), 0.0, variance.sqrt())
    return means.float(), spreads.float()


def _means(x: Tensor, subsets: Tensor) -> Tensor:
    """(cell, subset, feature): mean over each subset (subset, row)."""
    return _shares(subsets, x.dtype).expand(len(x), -1, -1) @ x


def _means_of_squares(x: Tensor, subsets: Tensor) -> Tensor:
    """The same of x²; cell by cell, since fresh memory for all squares takes as long as to make them."""
    shares = _shares(subsets, x.dtype)
    return torch.stack([shares @ cell.square() for cell in x])


def _shares(subsets: Tensor, dtype: torch.dtype) -> Tensor:
    """(subset, row): 1 / the size of the subset, or 0."""
    return subsets.to(dtype) / subsets.sum(dim=1, keepdim=True)
