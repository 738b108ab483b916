"""What was found on a layer x head map, as plain data. Made by `maps`; this module computes nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass

from headwise.core.dims import head_name

__all__ = ["Cluster", "Concentration", "DepthTrend", "HeadValue", "Overlap", "Share"]


@dataclass(frozen=True)
class HeadValue:
    """A head and its value.

    Examples:
        >>> HeadValue(3, 7, 0.87).name
        'L3H7'
    """

    layer: int  # counted from 0
    head: int  # its place in the layer
    value: float  # on the map

    @property
    def name(self) -> str:
        """Such as "L3H7"."""
        return head_name(self.layer, self.head)


@dataclass(frozen=True)
class Cluster:
    """Neighbouring cells over a threshold, as the box around them.

    Examples:
        >>> box = Cluster(first_layer=2, last_layer=4, first_head=0, last_head=1, size=5, area=6, mean=0.7)
        >>> box.last_layer - box.first_layer + 1
        3
    """

    first_layer: int  # of the box
    last_layer: int  # itself included
    first_head: int  # of the box
    last_head: int  # itself included
    size: int
    """cells of the box that are over the threshold"""
    area: int
    """measured cells of the box"""
    mean: float
    """over all measured cells of the box"""


@dataclass(frozen=True)
class Share:
    """How many cells, of how many.

    Examples:
        >>> Share(count=3, total=12).share
        0.25
    """

    count: int  # cells that are meant
    total: int  # cells that were measured

    @property
    def share(self) -> float:
        """The one over the other; NaN where nothing was measured."""
        return self.count / self.total if self.total else math.nan


@dataclass(frozen=True)
class Concentration:
    """How unevenly a non-negative quantity is spread over the heads.

    Examples:
        >>> Concentration(heads=14, share=0.5, gini=0.8).share  # 14 heads carry half
        0.5
    """

    heads: int
    """how many heads the top share is"""
    share: float
    """part of the total that these heads carry"""
    gini: float
    """0 when all heads have the same, near 1 when one head has all"""


@dataclass(frozen=True)
class DepthTrend:
    """How layer means change from the first layer to the last.

    Examples:
        >>> DepthTrend(0.9, 28, "late", (0.1, 0.2, 0.6), (0.1, 0.2, 0.7)).peak_third
        'late'
    """

    correlation: float
    """Spearman's, of the layer mean with the layer"""
    peak_layer: int
    """the layer with the largest mean"""
    peak_third: str
    """early, middle or late: the third of the layers with the largest mean"""
    means: tuple[float, float, float]
    """of the early, middle and late third"""
    shares: tuple[float, float, float]
    """of the total, NaN when values are negative"""


@dataclass(frozen=True)
class Overlap:
    """The heads that are among the n strongest of both maps.

    Examples:
        >>> Overlap(size=2, shared=("L3H7",), jaccard=1 / 3).shared
        ('L3H7',)
    """

    size: int  # n
    shared: tuple[str, ...]  # their names
    jaccard: float  # those shared over those in either
