from __future__ import annotations

import pytest

from resnettrain.charts import Curve, chart, ticks


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.0, 1.0, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (0.0, 1920.0, [0.0, 500.0, 1000.0, 1500.0]),
        (2.1, 2.4, [2.1, 2.2, 2.3, 2.4]),
    ],
)
def test_ticks_are_round_numbers_inside(low: float, high: float, expected: list[float]) -> None:
    assert ticks(low, high, most=5) == pytest.approx(expected)


def test_a_curve_lies_inside_the_drawing_and_ends_with_its_last_value() -> None:
    made = chart("Loss", [Curve(name="a", points=[(0.0, 2.0), (100.0, 1.0)], colour=0)])
    assert made is not None
    assert made.lines[0].path == f"M{made.left:g} {made.top:g}L{made.right:g} {made.bottom:g}"
    assert made.lines[0].last == "1"


def test_a_spike_survives_thinning() -> None:
    points = [(float(number), 5.0 if number == 77_777 else 1.0) for number in range(100_000)]
    made = chart("Loss", [Curve(name="a", points=points, colour=0)])
    assert made is not None
    path = made.lines[0].path
    assert path.count("L") < 500
    assert f" {made.top:g}L" in path


def test_losses_of_different_size_are_drawn_by_their_logarithms() -> None:
    made = chart("Loss", [Curve(name="a", points=[(1.0, 1.0), (2.0, 1e6)], colour=0)])
    assert made is not None
    assert [tick.text for tick in made.y_ticks] == ["1", "10", "100", "1k", "10k", "100k", "1M"]
    assert made.unit == "logarithmic"


@pytest.mark.parametrize("value", [0.0, 1.0, -3.0])
def test_a_curve_that_does_not_move_is_drawn(value: float) -> None:
    made = chart("x", [Curve(name="a", points=[(1.0, value), (2.0, value)], colour=0)], from_zero=value >= 0)
    assert made is not None
    assert made.y_ticks[0].at > made.y_ticks[-1].at


def test_no_points_make_no_chart() -> None:
    assert chart("x", [Curve(name="a", points=[], colour=0)]) is None
