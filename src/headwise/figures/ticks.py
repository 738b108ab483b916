"""Round numbers: the ends of a scale, its ticks and how they are written, and which cells get a label.

The same ticks go to the paper and to the browser, so they are computed here and not by a drawing library.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

_ROUND = (1.0, 1.2, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
_STEPS = (1.0, 2.0, 2.5, 5.0)
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_CELL_STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


def round_up(value: float) -> float:
    """The next round number at or above a positive value.

    >>> round_up(0.37), round_up(1.0), round_up(61)
    (0.4, 1.0, 80.0)
    """
    if not (value > 0 and math.isfinite(value)):
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    for digit in _ROUND:
        if value <= digit * power * (1 + 1e-6):
            return float(f"{digit * power:.6g}")
    return float(f"{10 * power:.6g}")


def ticks_between(low: float, high: float, *, most: int = 4) -> tuple[float, ...]:
    """Both ends, and round values between them where the span divides evenly; else the middle.

    >>> ticks_between(0, 1, most=3), ticks_between(0, 0.4, most=3), ticks_between(-0.3, 0.3, most=3)
    ((0.0, 0.5, 1.0), (0.0, 0.2, 0.4), (-0.3, 0.0, 0.3))
    """
    span = high - low
    power = 10.0 ** math.floor(math.log10(span))
    for scaled in (step * power * factor for factor in (0.1, 1.0) for step in _STEPS):
        count, first = span / scaled, low / scaled
        whole = abs(count - round(count)) < 1e-6 and abs(first - round(first)) < 1e-6
        if whole and 2 <= round(count) <= most - 1:
            return tuple(_clean(low + index * scaled) for index in range(round(count) + 1))
    return (_clean(low), _clean((low + high) / 2), _clean(high))


def decades_between(low: float, high: float, *, most: int = 4) -> tuple[float, ...]:
    """Powers of ten, in even steps down from the highest: at most ``most`` of them, or both ends where there are not two.

    >>> decades_between(1e-6, 1), decades_between(0.01, 1), decades_between(0.2, 0.7)
    ((1e-06, 0.0001, 0.01, 1.0), (0.01, 0.1, 1.0), (0.2, 0.7))
    """
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    if last <= first:
        return (low, high)
    step = math.ceil((last - first) / (most - 1))
    return tuple(float(f"1e{power}") for power in range(last, first - 1, -step))[::-1]


def tick_text(value: float, *, over: bool = False, under: bool = False, decimals: int | None = None) -> str:
    """A tick as it is written: a true minus sign, and a plus where the scale was clipped there.

    >>> tick_text(0.004, over=True), tick_text(0.004, over=True, decimals=4), tick_text(-0.5), tick_text(12000.0)
    ('0.004+', '0.0040+', '−0.5', '12,000')
    >>> tick_text(1e-6, under=True), tick_text(5e-5)
    ('≤ 10⁻⁶', '0.00005')
    """
    if 0 < value < 1e-4 and decimals is None and math.isclose(value, 10.0 ** round(math.log10(value))):
        text = "10" + str(round(math.log10(value))).translate(_RAISED)
    elif decimals is not None:
        text = f"{value:,.{decimals}f}".replace("-", "−")
    else:
        text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
        text = f"{value:.12f}".rstrip("0") if "e" in text else text
        text = "0" if float(value) == 0 else text.replace("-", "−")
    return text + ("+" if over else "") if not under else f"≤ {text}"


def thinned(labels: Sequence[str], most: int) -> tuple[int, ...]:
    """Which of the labels to write when only ``most`` fit: round steps from the first, and the last if there is room.

    >>> thinned([str(layer) for layer in range(30)], 7)
    (0, 5, 10, 15, 20, 25, 29)
    """
    size, most = len(labels), max(most, 1)
    step = next((step for step in _CELL_STEPS if math.ceil(size / step) <= most), size)
    indices = list(range(0, size, step))
    if size - 1 - indices[-1] >= 0.6 * step:
        indices.append(size - 1)
    return tuple(indices)


def _clean(value: float) -> float:
    return float(f"{value:.10g}") + 0.0  # + 0.0 turns -0.0 into 0.0
