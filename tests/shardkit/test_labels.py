from __future__ import annotations

import pytest

from shardkit import parse_label


@pytest.mark.parametrize(
    ("content", "label"),
    [(b"0", 0), (b"999\n", 999), (b" 7 ", 7), (b"-1", -1), (b"+3", 3), (b"007", 7), (b"9" * 18, 10**18 - 1)],
)
def test_an_integer_is_read_with_space_around_it(content: bytes, label: int) -> None:
    assert parse_label(content) == label


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"tench", b"1.0", b"1_0", b"0x1", b"1 2", b"1\0", "١".encode(), b"9" * 19, b"9" * 5000]
)
def test_anything_else_is_no_label(content: bytes) -> None:
    assert parse_label(content) is None
