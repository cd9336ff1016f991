from __future__ import annotations

import numpy as np

from wdsloader.assembly import Assembler, GoodRow, Part
from wdsloader.decode import Uint8s

Asked = list[tuple[int, int]]


def part(rows: list[int], *, position: int = 0, epoch: int = 0) -> Part:
    """Rows whose labels are their numbers, counted from the position."""
    return Part(
        epoch=epoch,
        position=position,
        rows=np.asarray(rows, np.int64),
        labels=np.asarray(rows, np.int64) + position,
        weights=np.ones(len(rows), np.float32),
        keys=tuple(str(position + row) for row in rows),
    )


def pixels(parts: list[Part], *, num_rows: int) -> Uint8s:
    """Memory that was used before, in which the pixels of the parts are their labels."""
    images = np.full((num_rows, 2, 2, 3), 205, np.uint8)
    for each in parts:
        images[each.rows] = each.labels.reshape(-1, 1, 1, 1)
    return images


def assembled(together: Assembler, parts: list[Part], *, num_rows: int) -> tuple[Part, list[int]]:
    """The batch, and one value of each of its pictures."""
    images = pixels(parts, num_rows=num_rows)
    whole = together.assemble(parts, images=images)
    assert (images == images[:, :1, :1, :1]).all()
    return whole, images[:, 0, 0, 0].tolist()


def assembler(asked: Asked, found: GoodRow | None = None) -> Assembler:
    def find_good(*, epoch: int, position: int) -> GoodRow | None:
        asked.append((epoch, position))
        return found

    return Assembler(find_good=find_good)


def test_parts_are_put_together_by_row_and_gaps_repeat_the_first_good_row() -> None:
    whole, values = assembled(assembler([]), [part([1, 4]), part([2])], num_rows=6)
    assert whole.labels.tolist() == values == [1, 1, 2, 1, 4, 1]
    assert whole.weights.tolist() == [0, 1, 1, 0, 1, 0]
    assert whole.keys == (None, "1", "2", None, "4", None)


def test_a_batch_without_a_good_row_repeats_the_last_one_of_the_epoch() -> None:
    asked: Asked = []
    together = assembler(asked)
    assembled(together, [part([0, 2])], num_rows=3)
    for position in (3, 6):
        whole, values = assembled(together, [part([], position=position)], num_rows=3)
        assert whole.labels.tolist() == values == [2, 2, 2]
    assert not asked


def test_where_the_batches_so_far_do_not_tell_the_row_is_looked_up_once() -> None:
    asked: Asked = []
    together = assembler(asked, (np.full((2, 2, 3), 7, np.uint8), 7))
    for position in (6, 9):
        whole, values = assembled(together, [part([], position=position)], num_rows=3)
        assert whole.labels.tolist() == values == [7, 7, 7]
    assert asked == [(0, 6)]


def test_a_row_of_the_epoch_before_fills_none_of_this_one() -> None:
    asked: Asked = []
    together = assembler(asked)
    assembled(together, [part([0, 1])], num_rows=2)
    whole, values = assembled(together, [part([], epoch=1)], num_rows=2)
    assert not any([*whole.labels, *whole.weights, *values])
    assert asked == [(1, 0)]
