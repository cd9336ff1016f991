from __future__ import annotations

import io

import pytest
import torch
from PIL import Image

from resnettrain import ClassFigures, ReportError, confusion_picture


def drawn(confusion_KK: torch.Tensor, names: tuple[str, ...] | None = None) -> Image.Image:
    figures = ClassFigures(confusion=confusion_KK, correct5=confusion_KK.sum(dim=1), names=names)
    content = confusion_picture(figures)
    assert content == confusion_picture(figures)
    return Image.open(io.BytesIO(content))


def test_right_answers_are_blue_wrong_ones_red_by_their_share_of_the_row_and_nothing_is_white() -> None:
    confusion = torch.zeros(100, 100, dtype=torch.int64)
    confusion[0, 0], confusion[1, 1], confusion[1, 99], confusion[99, 0] = 7, 9, 3, 5
    picture = drawn(confusion)
    # A cell is 9 pixels of a matrix whose right lower corner is 8 pixels from that of the picture.
    left, top = picture.width - 908, picture.height - 908

    def colour(row: int, column: int) -> object:
        return picture.getpixel((left + 9 * column + 4, top + 9 * row + 4))

    assert colour(0, 0) == (31, 99, 178)
    assert colour(99, 0) == (200, 40, 32)
    assert colour(1, 99) == (228, 148, 144)
    assert colour(0, 1) == colour(2, 2) == (255, 255, 255)


@pytest.mark.parametrize("names", [None, ("a", "\x1b[31m" + "n" * 5000)])
def test_names_of_any_kind_leave_the_picture_its_size(names: tuple[str, ...] | None) -> None:
    assert drawn(torch.eye(2, dtype=torch.int64) * 123_456, names).width < 500


@pytest.mark.parametrize(("one", "other"), [("é", "è"), ("щ", "ю"), ("鳥", "魚")])
def test_names_that_differ_look_different(one: str, other: str) -> None:
    """Boxes in place of letters would be the same for both."""
    eye = torch.eye(2, dtype=torch.int64)
    assert drawn(eye, (one, "b")).tobytes() != drawn(eye, (other, "b")).tobytes()


def test_a_thousand_classes_have_a_pixel_each_and_more_than_a_picture_holds_are_refused() -> None:
    picture = drawn(torch.eye(1000, dtype=torch.int64))
    assert picture.getpixel((picture.width - 9, picture.height - 9)) == (31, 99, 178)
    with pytest.raises(ReportError, match="4001 classes make no picture"):
        drawn(torch.zeros(4001, 4001, dtype=torch.int8))
