from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkit.statistics.duplicates import equal_rows, equal_rows_of_table, names_of_rows
from tests.helpers.shards import jpeg_bytes, write_shard
from tests.helpers.tables import write_table

HASHES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=25)


@given(hashes=HASHES)
def test_groups_are_the_rows_of_equal_hashes(hashes: list[tuple[int, int]]) -> None:
    rows = defaultdict(list)
    for row, both in enumerate(hashes):
        rows[both].append(row)
    found = equal_rows(np.array(hashes, np.uint64).reshape(-1, 2))
    assert found == sorted(group for group in rows.values() if len(group) > 1)


@pytest.mark.parametrize("rows_at_once", [1, 2, 3, 100])
def test_a_table_gives_the_same_groups_in_any_number_of_parts(tmp_path: Path, rows_at_once: int) -> None:
    pytest.importorskip("pyarrow")
    seeds = [1, 2, 3, 1, 4, 2, 1]
    members = [(f"k{n}.jpg", jpeg_bytes(seed)) for n, seed in enumerate(seeds)] + [("x.cls", b"0"), ("y.cls", b"0")]
    table = write_table(tmp_path / "t.parquet", [write_shard(tmp_path / "x.tar", members)])
    assert equal_rows_of_table(table, rows_at_once=rows_at_once) == [[0, 3, 6], [1, 5]]
    assert names_of_rows(table, {3, 6}) == {3: ("x.tar", "k3"), 6: ("x.tar", "k6")}
