"""Curves as the numbers of an SVG: ticks, paths, and no more points than a screen has columns. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["Chart", "Curve", "Line", "Tick", "chart", "ticks"]

# In units of the drawing; the page scales it.
WIDTH, HEIGHT = 480.0, 220.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 52.0, 10.0, 10.0, 26.0
# Columns of points; of each, the lowest and the highest are drawn, so that no spike is lost.
_COLUMNS = 240
_FEW = 40
# Losses that differ by more than this are drawn by their logarithms, or a spike flattens all else.
_LOG_FROM = 50.0

Point = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Points of one run in data units; `name` says whose and of what; `dashed` is the second kind."""

    name: str
    points: Sequence[Point]
    colour: int
    dashed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A curve as SVG: the path, the dots where the points are few, and the last value in words."""

    name: str
    path: str
    dots: tuple[Point, ...]
    colour: int
    dashed: bool
    last: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A place on an axis, in units of the drawing, and what stands there."""

    at: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Everything a drawing of `width` x `height` needs."""

    title: str
    unit: str
    lines: tuple[Line, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    width: float = WIDTH
    height: float = HEIGHT
    left: float = _LEFT
    right: float = WIDTH - _RIGHT
    top: float = _TOP
    bottom: float = HEIGHT - _BOTTOM


def chart(
    title: str, curves: Sequence[Curve], *, unit: str = "", from_zero: bool = False, top: float | None = None
) -> Chart | None:
    """Return the chart of some curves over samples; None where none has a point.

    Args: from_zero: the axis begins at 0. top: where it ends at least; 1 makes shares percent.
    """
    drawn = [curve for curve in curves if curve.points]
    if not drawn:
        return None
    x_high = max(x for curve in drawn for x, _ in curve.points) or 1.0
    lowest = min(y for curve in drawn for _, y in curve.points)
    if not from_zero and lowest > 0 and max(y for curve in drawn for _, y in curve.points) > _LOG_FROM * lowest:
        return _log_chart(title, drawn, x_high=x_high)
    values = [y for curve in drawn for _, y in curve.points]
    low, high = (0.0 if from_zero else min(values)), max([*values, *([top] if top is not None else [])])
    if high <= low:
        low, high = low - (abs(low) or 1) / 2 * (not from_zero), high + (abs(high) or 1) / 2
    y_values = ticks(low, high, most=5)
    # A tick or two beyond the values, so that the curve ends inside.
    low, high = min(low, y_values[0]), max(high, y_values[-1])
    place = _Scale(x_high=x_high, low=low, high=high)
    return Chart(
        title=title,
        unit=unit,
        lines=tuple(_line(curve, place, percent=unit == "%") for curve in drawn),
        x_ticks=tuple(Tick(at=place.x(value), text=_short(value)) for value in ticks(0.0, x_high, most=6)),
        y_ticks=tuple(Tick(at=place.y(value), text=_value(value, percent=unit == "%")) for value in y_values),
    )


def _log_chart(title: str, drawn: Sequence[Curve], *, x_high: float) -> Chart:
    values = [math.log10(y) for curve in drawn for _, y in curve.points]
    place = _Scale(x_high=x_high, low=math.floor(min(values)), high=math.ceil(max(values)), log=True)
    powers = range(int(place.low), int(place.high) + 1, -(-int(place.high - place.low) // 6))
    return Chart(
        title=title,
        unit="logarithmic",
        lines=tuple(_line(curve, place, percent=False) for curve in drawn),
        x_ticks=tuple(Tick(at=place.x(value), text=_short(value)) for value in ticks(0.0, x_high, most=6)),
        y_ticks=tuple(Tick(at=place.y(10.0**power), text=_short(10.0**power)) for power in powers),
    )


def ticks(low: float, high: float, *, most: int) -> list[float]:
    """Return at most `most` + 1 round numbers in low..high, a step of 1, 2 or 5 times a power of ten apart."""
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [number * step for number in range(first, last + 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scale:
    x_high: float
    low: float
    high: float
    log: bool = False

    def x(self, value: float) -> float:
        return round(_LEFT + (WIDTH - _LEFT - _RIGHT) * value / self.x_high, 1)

    def y(self, value: float) -> float:
        value = math.log10(value) if self.log else value
        return round(_TOP + (HEIGHT - _TOP - _BOTTOM) * (self.high - value) / (self.high - self.low), 1)


def _line(curve: Curve, place: _Scale, *, percent: bool) -> Line:
    points = [(place.x(x), place.y(y)) for x, y in _thinned(curve.points)]
    return Line(
        name=curve.name,
        path="M" + "L".join(f"{x:g} {y:g}" for x, y in points),
        dots=tuple(points) if len(points) <= _FEW else (),
        colour=curve.colour,
        dashed=curve.dashed,
        last=_value(curve.points[-1][1], percent=percent),
    )


def _thinned(points: Sequence[Point]) -> Iterator[Point]:
    """Hand out few enough points, of each stretch the lowest and the highest in the order they came."""
    if len(points) <= 2 * _COLUMNS:
        yield from points
        return
    stretch = -(-len(points) // _COLUMNS)
    for begin in range(0, len(points), stretch):
        part = points[begin : begin + stretch]
        ends = {min(part, key=lambda point: point[1]), max(part, key=lambda point: point[1])}
        yield from sorted(ends)


def _value(value: float, *, percent: bool) -> str:
    if percent:
        return f"{100 * value:.4g} %"
    return _short(value) if abs(value) >= 1e4 else f"{value:.4g}"


def _short(value: float) -> str:
    """Return a count as an axis shows it: 1.5M for 1,500,000."""
    if abs(value) >= 1e12:
        return f"{value:.3g}"
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{letter}"
    return f"{value:.4g}"
