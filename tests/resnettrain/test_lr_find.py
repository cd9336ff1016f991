from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from resnettrain import ConfigError, LrPoint, find_lr, suggested_lr
from tests.helpers.picture_sets import PictureSet, tiny_config


def points(*smoothed: float) -> list[LrPoint]:
    return [LrPoint(lr=10.0**number, loss=loss, smoothed=loss) for number, loss in enumerate(smoothed)]


def test_the_rate_rises_by_a_constant_factor_over_epochs_and_nothing_is_left(
    train_set: PictureSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    seen: list[LrPoint] = []
    found = find_lr(
        tiny_config(train_set, tmp_path / "unused"), num_updates=9, lowest=1e-4, highest=1e-2, on_point=seen.append
    )
    assert [point.lr for point in found.points] == pytest.approx([1e-4 * 10 ** (n / 4) for n in range(9)])
    assert found.points == tuple(seen)
    assert found.points[0].smoothed == pytest.approx(found.points[0].loss)
    assert not found.diverged
    assert list(tmp_path.iterdir()) == []


def test_it_ends_where_the_loss_diverges(train_set: PictureSet, tmp_path: Path) -> None:
    found = find_lr(tiny_config(train_set, tmp_path / "unused"), num_updates=40, lowest=1e-3, highest=1e12)
    assert found.diverged
    assert 2 <= len(found.points) < 40


def test_the_suggestion_is_a_tenth_of_where_the_loss_was_lowest() -> None:
    assert suggested_lr(points(2.3, 2.2, 1.1, 3.0)) == pytest.approx(10.0)


@pytest.mark.parametrize("losses", [(), (2.3,), (2.3, 2.29, 2.4)])
def test_a_loss_that_does_not_fall_suggests_nothing(losses: tuple[float, ...]) -> None:
    assert suggested_lr(points(*losses)) is None


@pytest.mark.parametrize(
    "wrong",
    [{"lowest": 0.0}, {"lowest": 1.0, "highest": 1.0}, {"highest": float("inf")}, {"lowest": float("nan")},
     {"num_updates": 1}],
)  # fmt: skip
def test_what_makes_no_range_is_refused(wrong: dict[str, float], train_set: PictureSet, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="must be"):
        find_lr(tiny_config(train_set, tmp_path / "unused"), **wrong)  # type: ignore[arg-type]  # by name
