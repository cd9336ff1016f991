from __future__ import annotations

from dataclasses import replace

import numpy as np

from wdsloader.assembly import Assembler, GoodRow, Part, empty_part

Asked = list[tuple[int, int]]


def part(rows: list[int], *, position: int = 0, epoch: int = 0) -> Part:
    """Rows whose pixels and labels are their numbers, counted from the position."""
    made = empty_part(len(rows), size=2, epoch=epoch, position=position)
    for i, row in enumerate(rows):
        made.images[i], made.labels[i], made.weights[i] = position + row, position + row, 1
    return replace(made, rows=np.asarray(rows, np.int64), keys=tuple(str(position + row) for row in rows))


def assembler(asked: Asked, found: GoodRow | None = None) -> Assembler:
    def find_good(*, epoch: int, position: int) -> GoodRow | None:
        asked.append((epoch, position))
        return found

    return Assembler(find_good=find_good)


def test_parts_are_put_together_by_row_and_gaps_repeat_the_first_good_row() -> None:
    whole = assembler([]).assemble([part([1, 4]), part([2])], num_rows=6)
    assert whole.labels.tolist() == [1, 1, 2, 1, 4, 1]
    assert whole.images[:, 0, 0, 0].tolist() == [1, 1, 2, 1, 4, 1]
    assert whole.weights.tolist() == [0, 1, 1, 0, 1, 0]
    assert whole.keys == (None, "1", "2", None, "4", None)


def test_a_batch_without_a_good_row_repeats_the_last_one_of_the_epoch() -> None:
    asked: Asked = []
    together = assembler(asked)
    together.assemble([part([0, 2])], num_rows=3)
    assert together.assemble([part([], position=3)], num_rows=3).labels.tolist() == [2, 2, 2]
    assert together.assemble([part([], position=6)], num_rows=3).labels.tolist() == [2, 2, 2]
    assert not asked


def test_where_the_batches_so_far_do_not_tell_the_row_is_looked_up_once() -> None:
    asked: Asked = []
    together = assembler(asked, (np.full((2, 2, 3), 7, np.uint8), 7))
    for position in (6, 9):
        assert together.assemble([part([], position=position)], num_rows=3).labels.tolist() == [7, 7, 7]
    assert asked == [(0, 6)]


def test_a_row_of_the_epoch_before_fills_none_of_this_one() -> None:
    asked: Asked = []
    together = assembler(asked)
    together.assemble([part([0, 1])], num_rows=2)
    whole = together.assemble([part([], epoch=1)], num_rows=2)
    assert not any(column.any() for column in (whole.images, whole.labels, whole.weights))
    assert asked == [(1, 0)]
