"""A colour scale: which colour means which number.

A scale belongs to the figure, and panels name it, so that panels which share a scale share one colour bar and can be
compared. What is beyond its ends is drawn in the colour of the end, and then the end's tick says so with a plus.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headwise.core.errors import DataError, did_you_mean
from headwise.figures.ticks import decades_between, round_up, tick_text, ticks_between

# All are safe for colour-blind readers and keep their order in greyscale.
COLOURS = {
    "viridis": "sequential",
    "cividis": "sequential",
    "magma": "sequential",
    "Blues": "sequential",
    "Greys": "sequential",
    "RdBu_r": "diverging",
    "PuOr_r": "diverging",
    "BrBG": "diverging",
}


@dataclass(frozen=True)
class ScaleMark:
    """A level worth knowing, drawn as a pointer on the colour bar: chance, or what a uniform head would get.

    Examples:
        >>> Scale("AUROC", 0.4, 1.0, marks=(ScaleMark(0.5, "chance"),)).marks[0].label
        'chance'
    """

    value: float  # where on the scale
    label: str  # what it is


@dataclass(frozen=True)
class Scale:
    """From ``low`` to ``high`` through the colours of a named colour map.

    Examples:
        >>> scale = Scale("weight on the first token", 0.0, 1.0, over=True)
        >>> scale.ticks()
        ((0.0, '0'), (0.5, '0.5'), (1.0, '1+'))
        >>> scale.share(np.array([0.25, 1.5]))
        array([0.25, 1.5 ])
    """

    label: str  # what the numbers are
    low: float  # the number of the first colour
    high: float  # the number of the last colour
    colours: str = "viridis"  # viridis, cividis, magma, Blues or Greys; RdBu_r, PuOr_r or BrBG around a middle
    over: bool = False  # some cells lie above high: the last tick is written with a plus
    under: bool = False  # some cells lie below low
    marks: tuple[ScaleMark, ...] = ()  # levels worth knowing
    decimals: int | None = None  # of the ticks, so that all are written alike; None: as few as each needs
    log: bool = False  # equal steps of colour are equal factors

    def __post_init__(self) -> None:
        if self.colours not in COLOURS:
            raise DataError(f"{self.colours!r} is no colour map of Headwise. {did_you_mean(self.colours, COLOURS)}")
        if not (np.isfinite(self.low) and np.isfinite(self.high) and self.low < self.high):
            raise DataError(
                f"The scale {self.label!r} runs from {self.low} to {self.high}; "
                "both ends must be finite, and the low end below the high end."
            )
        if self.log and self.low <= 0:
            raise DataError(f"The logarithmic scale {self.label!r} starts at {self.low}; it must start above 0.")

    @property
    def kind(self) -> str:
        """``sequential`` (from little to much) or ``diverging`` (below and above a middle)."""
        return COLOURS[self.colours]

    def share(self, values: np.ndarray) -> np.ndarray:
        """How far along the scale: 0 at ``low``, 1 at ``high``, beyond both where values are."""
        values = np.asarray(values, dtype=float)
        if self.log:
            least = self.low * 1e-9  # 0 has no logarithm: far below the end
            return np.log(np.maximum(values, least) / self.low) / np.log(self.high / self.low)
        return (values - self.low) / (self.high - self.low)

    def ticks(self, *, most: int = 4) -> tuple[tuple[float, str], ...]:
        """Where the colour bar has ticks, and what is written there."""
        values = (decades_between if self.log else ticks_between)(self.low, self.high, most=most)
        last = len(values) - 1
        return tuple(
            (
                value,
                tick_text(
                    value,
                    over=self.over and index == last,
                    under=self.under and index == 0,
                    decimals=self.decimals,
                ),
            )
            for index, value in enumerate(values)
        )


def scale_over(
    values: np.ndarray,
    label: str,
    *,
    ceiling: float | None = None,
    clip: float = 1.0,
    colours: str = "viridis",
    marks: tuple[ScaleMark, ...] = (),
) -> Scale:
    """A sequential scale from 0 (or the round number below the least value) to a round number.

    Args:
        values: what is to be drawn; NaN is ignored.
        label: what the numbers are.
        ceiling: the largest value that is possible, 1 for a share.
        clip: below 1 the scale ends near that quantile when a few cells are so much larger (over 1.5 times) that they
            would leave all others in one colour.
        colours: a colour map.
        marks: levels worth knowing.

    Returns:
        The scale.

    Examples:
        >>> scale = scale_over(np.array([0.1, 0.3, 0.87]), "weight", ceiling=1.0)
        >>> scale.low, scale.high
        (0.0, 1.0)
    """
    finite = np.asarray(values, dtype=float)[np.isfinite(values)]
    if finite.size == 0:
        return Scale(label, 0.0, ceiling or 1.0, colours, marks=marks)
    top = float(finite.max())
    bulk = float(np.quantile(finite, clip))
    if top > 1.5 * bulk > 0:
        top = bulk
    high = round_up(top)
    if ceiling is not None:
        high = min(high, ceiling)
    low = -round_up(-float(finite.min())) if finite.min() < 0 else 0.0
    return Scale(label, low, high, colours, over=bool(finite.max() > high * (1 + 1e-6)), marks=marks)


def scale_around(
    values: np.ndarray, label: str, *, centre: float = 0.0, colours: str = "RdBu_r", clip: float = 1.0
) -> Scale:
    """A diverging scale, equally long on both sides of ``centre``.

    Args:
        values: what is to be drawn; NaN is ignored.
        label: what the numbers are.
        centre: the middle: no difference, chance.
        colours: a diverging colour map.
        clip: as for `scale_over`.

    Returns:
        The scale.

    Examples:
        >>> scale = scale_around(np.array([0.31, 0.5, 0.58]), "AUROC", centre=0.5)
        >>> scale.low, scale.high
        (0.3, 0.7)
    """
    away = np.abs(np.asarray(values, dtype=float) - centre)
    away = away[np.isfinite(away)]
    if away.size == 0:
        return Scale(label, centre - 1.0, centre + 1.0, colours)
    reach = float(away.max())
    bulk = float(np.quantile(away, clip))
    half = round_up(bulk if reach > 1.5 * bulk > 0 else reach)
    finite = np.asarray(values, dtype=float)[np.isfinite(values)]
    over, under = bool(finite.max() > centre + half * (1 + 1e-6)), bool(finite.min() < centre - half * (1 + 1e-6))
    return Scale(label, centre - half, centre + half, colours, over, under)
