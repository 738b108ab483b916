"""Points in fewer coordinates: n answers with 27,000 numbers each become n points in at most 768 coordinates.

n points lie in a space of at most n dims, however many columns they have. With the Gram matrix of the centred features
G = X X' = U Λ U', the points Z = U √Λ have the same distances and angles. Whatever is invariant to rotations and shifts gives
the same result on Z as on X: PCA is, and so is a logistic regression with an L2 penalty and a free intercept. So every fold,
every k and every training size is fitted on few columns. Test rows take part in the projection, which carries no information
from them to a training fold: no label is used, and any other rotation gives the same scores. Coefficients return to the
features by β = X' U Λ^-1/2 w. Directions with less than n · 2e-16 of the largest eigenvalue are rounding and are dropped.

**Many answers.** The classifier's own PCA retains 512 directions of its training rows, so more than that are hardly needed.

- Up to `COORDINATES` = 768 answers, or columns: everything is retained, and the projection is exact.
- Above, the 768 directions of largest variance. The PCA of 512 inside each training fold follows, as published. Where every
  training fold has `SHARED_FROM` answers or more, all folds share one PCA of 512, which saw the tested answers but no label:
  one in each fold costs an eigendecomposition and a matrix of its own for each fold and k. With 1,000 answers sharing would
  change AUROCs by up to .004, with 3,000 by .0015 (synthetic answers, all rows of the table).
- Above `LANDMARKS` = 2,048 answers the directions are those of 2,048 rows, evenly spaced (Nyström; Williams and Seeger, NIPS
  2000). With X_m these rows, Z = X X_m' U Λ^-1/2: cost n instead of n².

Against an exact PCA in each fold (synthetic answers with the covariance of the default model's Laplacian eigenvalues): AUROC
differed by .0004 and .0006 (2,000 answers, two draws) and .0006 (4,000), scores correlated at .9996 and .999.

**Nested choices.** The k largest eigenvalues of a head are the first of the k' > k largest, so their Gram matrix is a term of
the other: `growing_points` adds columns, and all k cost as much as the largest.

**Precision.** Where directions are dropped, products are taken in float32 (Gram error 1e-7 of the largest eigenvalue) and
summed in float64; where the smallest retained direction is not above 1e-6 of the largest, everything is done again in float64.

Cost, one core: 500 x 27,000 takes 0.2 s, 4,000 x 27,000 with five k 15-20 s: 9 s for the products, 2 s for the
eigendecomposition of each k. Products run on a GPU where torch sees one, decompositions in parallel, one per core.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy
import torch
from numpy.typing import NDArray
from torch import Tensor

from headwise.probes.batched_logistic.parallel_map import parallel_map, single_torch_thread
from headwise.probes.batched_logistic.problems import gram_matrix
from headwise.stats.blas import single_threaded_blas

Floats = NDArray[np.float64]

CPU = torch.device("cpu")
COORDINATES = 768
LANDMARKS = 2048
SHARED_FROM = 2048  # answers in every training fold: from here on the folds share one PCA
_COLUMNS_PER_BLOCK = 4096  # held at a time
_RESOLVED = 1e-6  # of the largest eigenvalue: what float32 products can tell from 0


class Projection(NamedTuple):
    """Points in fewer coordinates."""

    points: Floats
    """(example, coordinate)"""
    to_features: Callable[[Floats], Floats]
    """weights of the coordinates -> weights of the features"""
    mean: Floats
    """(feature,): the point that became 0"""


def product_device() -> torch.device:
    """Where large products are taken: the first GPU, if torch sees one; never in a forked worker, which cannot use it."""
    worker = multiprocessing.parent_process() is not None
    return torch.device("cuda" if not worker and torch.cuda.is_available() else "cpu")


def coordinates_for(smallest_fold: int, components: int | None) -> int:
    """How many coordinates to retain for a classifier whose PCA retains so many, on training folds of this size or more."""
    return COORDINATES if components is None or smallest_fold < SHARED_FROM else min(components, COORDINATES)


def project(table: NDArray[Any], coordinates: int | None = None) -> Projection:
    """The rows of a table (example, feature) in at most so many coordinates; exactly, up to so many rows or columns."""
    rows, width = table.shape
    coordinates = coordinates or COORDINATES
    mean = table.mean(axis=0, dtype=np.float64)
    if width <= min(rows, coordinates):
        return Projection(table - mean, lambda weights: weights, mean)
    if width <= min(rows, LANDMARKS):
        points, vectors = principal(table - mean, coordinates)
        return Projection(points, lambda weights: vectors @ weights, mean)
    chosen = _landmarks(rows)
    for dtype in _precisions(table):
        found = _embedding(_cross_products(table, mean, chosen, dtype), chosen, coordinates)
        if found.resolved:
            break

    return found.projection([table], [mean], chosen)


def growing_points(
    parts: Sequence[NDArray[Any]], coordinates: int | None = None, done: Callable[[], object] = lambda: None
) -> list[Projection]:
    """Of the first table, of the first two side by side, and so on; tables are (example, feature).

    ``done`` is called twice for each.
    """
    coordinates = coordinates or COORDINATES
    rows, widths = len(parts[0]), np.cumsum([part.shape[1] for part in parts])
    narrow = int((widths <= min(rows, LANDMARKS)).sum())  # these are projected by their columns
    found = list[Projection]()
    for count in range(narrow):
        found.append(project(np.concatenate(parts[: count + 1], axis=1), coordinates))
        done()
        if narrow == len(parts):
            done()
    if narrow == len(parts):
        return found
    chosen = _landmarks(rows)
    means = [part.mean(axis=0, dtype=np.float64) for part in parts]
    for dtype in _precisions(parts[-1]):
        total, products = torch.zeros((), dtype=torch.float64), list[Tensor]()
        for part, mean in zip(parts, means, strict=True):
            total = _cross_products(part, mean, chosen, dtype) + total
            products.append(total)
            done()
        wide = parallel_map(lambda cross: _embedding(cross, chosen, coordinates), products[narrow:], CPU, done)
        if all(one.resolved for one in wide):
            break
    counts = range(narrow + 1, len(parts) + 1)
    return found + [
        one.projection(parts[:count], means[:count], chosen) for count, one in zip(counts, wide, strict=True)
    ]


def principal(centred: Floats, components: int) -> tuple[Floats, Floats]:
    """The centred rows along their directions of largest variance, and these directions (feature, component)."""
    table = torch.from_numpy(np.ascontiguousarray(centred, dtype=np.float64))
    gram = table.mT @ table
    with single_torch_thread():  # on a busy machine threads that wait for each other take ten times as long
        values, vectors = torch.linalg.eigh(gram)
    vectors = vectors[:, _largest(values, components, len(table))]
    return (table @ vectors).numpy(), vectors.numpy()


class _Embedding(NamedTuple):
    points: Floats  # (example, coordinate)
    per_landmark: Floats  # (landmark, coordinate): the coordinates' directions, as sums of centred landmarks
    resolved: bool  # whether every direction is above what the products' precision can tell from 0

    def projection(
        self, parts: Sequence[NDArray[Any]], means: Sequence[Floats], chosen: NDArray[np.int64]
    ) -> Projection:
        """Of the columns of several tables, one table after the other."""

        def to_features(weights: Floats) -> Floats:
            per_row = self.per_landmark @ weights
            blocks = [
                table[chosen, part] - mean[part]
                for table, mean in zip(parts, means, strict=True)
                for part in _blocks(len(mean))
            ]
            return np.concatenate([per_row @ block for block in blocks])

        return Projection(self.points, to_features, np.concatenate(means))


def _embedding(cross: Tensor, chosen: NDArray[np.int64], coordinates: int) -> _Embedding:
    """From the products of all centred rows with the landmarks, (example, landmark)."""
    rows = len(cross)
    gram = cross[torch.from_numpy(chosen)]
    retained = coordinates if rows > coordinates else len(gram)
    values, vectors = _largest_directions(((gram + gram.mT) / 2).numpy(), min(retained, len(gram)))
    largest = _largest(values, retained, rows)
    values, vectors = values[largest], vectors[:, largest]
    lengths = values.clamp(min=torch.finfo(values.dtype).tiny).sqrt()
    points = vectors * lengths if len(chosen) == rows else cross @ (vectors / lengths)
    resolved = rows <= COORDINATES or bool(values[-1] > _RESOLVED * values[0])
    return _Embedding(points.numpy(), (vectors / lengths).numpy(), resolved)


@single_threaded_blas
def _largest_directions(gram: Floats, count: int) -> tuple[Tensor, Tensor]:
    """The largest eigenvalues of a symmetric matrix, and their vectors; a quarter of 2,048 takes half the time of all."""
    size = len(gram)
    if count < size:
        values, vectors = scipy.linalg.eigh(gram, subset_by_index=[size - count, size - 1], driver="evr")
        return torch.from_numpy(values), torch.from_numpy(vectors)
    with single_torch_thread():
        return torch.linalg.eigh(torch.from_numpy(gram))


def _cross_products(table: NDArray[Any], mean: Floats, chosen: NDArray[np.int64], dtype: torch.dtype) -> Tensor:
    """(example, landmark) float64: of the centred rows; taken on a GPU where there is one."""
    device = product_device()
    total = torch.zeros(len(table), len(chosen), dtype=torch.float64, device=device)
    index = torch.from_numpy(chosen).to(device)
    others = torch.from_numpy(np.setdiff1d(np.arange(len(table)), chosen)).to(device)
    for part in _blocks(table.shape[1]):
        block = torch.from_numpy(np.ascontiguousarray(table[:, part])).to(device, dtype)
        block = block - torch.from_numpy(mean[part]).to(
            device, dtype
        )  # not in place: the block may be the table itself
        landmarks = block if len(chosen) == len(block) else block[index]
        total[index] += gram_matrix(landmarks.mT[None])[0]
        total[others] += block[others] @ landmarks.mT
    return total.cpu()


def _precisions(table: NDArray[Any]) -> Iterator[torch.dtype]:
    """The dtypes of products to try, until all directions are resolved."""
    if len(table) > COORDINATES and table.dtype.itemsize <= 4:
        yield torch.float32
    yield torch.float64


def _landmarks(rows: int) -> NDArray[np.int64]:
    """The rows that directions are computed from: all, or so many evenly spaced ones."""
    return np.linspace(0, rows - 1, min(rows, LANDMARKS)).round().astype(np.int64)


def _blocks(width: int) -> Iterator[slice]:
    return (slice(start, start + _COLUMNS_PER_BLOCK) for start in range(0, width, _COLUMNS_PER_BLOCK))


def _largest(values: Tensor, components: int | None, rows: int) -> Tensor:
    """Indices of the largest eigenvalues that are not rounding, largest first; at least one."""
    order = values.argsort(descending=True)[:components]
    sound = order[values[order] > values[order[0]] * rows * torch.finfo(torch.float64).eps]
    return sound if len(sound) and bool(values[sound[0]] > 0) else order[:1]
