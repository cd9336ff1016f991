from __future__ import annotations

import io
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from shardkit import Statistics, StatisticsOptions, measure_shards, measure_table
from tests.helpers.pictures import bomb_png, cmyk_jpeg, cut_jpeg, encode
from tests.helpers.shards import jpeg_bytes, sample_members, tar_bytes, write_samples, write_shard
from tests.helpers.tables import write_table


def measure(shards: list[Path], **options: Any) -> Statistics:
    return measure_shards([str(shard) for shard in shards], StatisticsOptions(**options), on_shard=lambda _: None)


def pixels_of(pictures: list[bytes]) -> np.ndarray[Any, np.dtype[np.float64]]:
    arrays = [np.asarray(Image.open(io.BytesIO(data)).convert("RGB")).reshape(-1, 3) for data in pictures]
    return np.concatenate(arrays).astype(np.float64) / 255


class TestColours:
    def test_mean_and_deviation_are_those_of_all_pixels(self, tmp_path: Path) -> None:
        pictures = [jpeg_bytes(n, size=(10 + n, 30 - n)) for n in range(12)]
        members = [(f"{n}.jpg", picture) for n, picture in enumerate(pictures)]
        shards = [write_shard(tmp_path / f"{n}.tar", members[n::3]) for n in range(3)]
        channels = measure(shards).channels
        assert channels is not None
        assert channels.mean == pytest.approx(pixels_of(pictures).mean(axis=0), abs=1e-12)
        assert channels.std == pytest.approx(pixels_of(pictures).std(axis=0), abs=1e-12)

    def test_they_are_equal_to_the_last_bit_for_any_jobs_and_order(self, tmp_path: Path) -> None:
        shards = [write_samples(tmp_path / f"{n}.tar", 5, first=10 * n) for n in range(4)]
        assert measure(shards, jobs=3) == measure(shards)
        assert measure(shards[::-1]).channels == measure(shards).channels

    def test_gray_and_other_colour_spaces_count_as_they_are_shown(self, tmp_path: Path) -> None:
        gray = encode(Image.new("L", (6, 5), 100), "PNG")
        deep = encode(Image.fromarray(np.full((5, 6), 25700, np.uint16)), "PNG")
        channels = measure([write_shard(tmp_path / "x.tar", [("a.png", gray), ("b.png", deep)])]).channels
        assert channels is not None
        assert channels.mean == pytest.approx((100 / 255,) * 3)
        assert channels.std == pytest.approx((0, 0, 0), abs=1e-12)
        red = measure([write_shard(tmp_path / "y.tar", [("a.jpg", cmyk_jpeg())])]).channels
        assert red is not None
        assert red.mean == pytest.approx((1, 0, 0), abs=0.05)

    def test_without_pictures_there_are_none(self, tmp_path: Path) -> None:
        found = measure([write_shard(tmp_path / "x.tar", [("a.cls", b"1")])])
        assert (found.channels, found.widths, found.bits_per_pixel, found.pictures) == (None, None, None, 0)


class TestCounts:
    def test_classes_are_counted_and_missing_ones_named(self, tmp_path: Path) -> None:
        labels = [b"0", b"3", b"3", b"3", b"tench", b"-1"]
        members = [
            (f"{n}.{e}", c) for n, label in enumerate(labels) for e, c in (("jpg", jpeg_bytes(n)), ("cls", label))
        ]
        found = measure([write_shard(tmp_path / "x.tar", members)])
        assert (found.labels, found.unlabelled) == ({0: 1, 3: 3}, 2)
        assert (found.missing_classes, found.imbalance) == ((1, 2), 3.0)
        assert measure([tmp_path / "x.tar"], num_classes=6).missing_classes == (1, 2, 4, 5)

    def test_sizes_are_those_of_the_pictures(self, tmp_path: Path) -> None:
        pictures = [jpeg_bytes(n, size=(10 * n, 7)) for n in range(1, 11)]
        found = measure([write_shard(tmp_path / "x.tar", [(f"{n}.jpg", data) for n, data in enumerate(pictures)])])
        assert found.widths is not None
        assert found.heights is not None
        assert found.picture_bytes is not None
        assert (found.widths.mean, found.heights.percentiles) == (55.0, dict.fromkeys(found.heights.percentiles, 7))
        assert found.widths.percentiles == {0: 10, 1: 10, 5: 10, 25: 30, 50: 50, 75: 80, 95: 100, 99: 100, 100: 100}
        total = sum(map(len, pictures))
        assert found.picture_bytes.mean == total / 10
        assert found.bits_per_pixel == pytest.approx(8 * total / (7 * 550))


class TestDuplicates:
    def test_equal_bytes_are_found_within_and_across_shards(self, tmp_path: Path) -> None:
        first = write_shard(
            tmp_path / "a.tar", [("1.jpg", jpeg_bytes(1)), ("2.jpg", jpeg_bytes(2)), ("3.jpg", jpeg_bytes(1))]
        )
        second = write_shard(tmp_path / "b.tar", [("4.jpg", jpeg_bytes(3)), ("5.jpg", jpeg_bytes(2))])
        assert measure([first, second], jobs=2).duplicates == (
            ((str(first), "1"), (str(first), "3")),
            ((str(first), "2"), (str(second), "5")),
        )

    def test_names_that_are_not_utf8_are_kept(self, tmp_path: Path) -> None:
        shard = write_shard(tmp_path / "x.tar", [("\udce9.jpg", jpeg_bytes(1)), ("b.jpg", jpeg_bytes(1))])
        assert measure([shard]).duplicates == (((str(shard), "\udce9"), (str(shard), "b")),)


class TestSample:
    def test_so_many_pictures_are_drawn_over_all_shards(self, tmp_path: Path) -> None:
        shards = [write_samples(tmp_path / f"{n}.tar", 6, first=10 * n, size=(n + 5, 9)) for n in range(5)]
        counts: Counter[int] = Counter()
        for seed in range(12):
            found = measure(shards, sample=7, seed=seed)
            assert (found.looked_at, found.pictures, found.estimated, found.duplicates) == (7, 30, True, None)
            assert found.labels == dict(sorted(measure(shards).labels.items()))
            assert found.widths is not None
            counts.update(found.widths.percentiles.values())
        assert set(counts) == {5, 6, 7, 8, 9}

    def test_the_draw_is_the_seed_s(self, tmp_path: Path) -> None:
        shards = [write_samples(tmp_path / f"{n}.tar", 6, first=10 * n) for n in range(3)]
        first = measure(shards, sample=5, seed=1)
        assert measure(shards, sample=5, seed=1, jobs=2) == first
        assert measure(shards, sample=5, seed=2).channels != first.channels

    def test_more_than_there_are_is_all(self, tmp_path: Path) -> None:
        shards = [write_samples(tmp_path / "x.tar", 4)]
        assert measure(shards, sample=100).channels == measure(shards).channels


class TestTrouble:
    def test_pictures_that_cannot_be_used_are_named_and_left_out(self, tmp_path: Path) -> None:
        members = [*sample_members(2), ("cut.jpg", cut_jpeg()), ("bomb.png", bomb_png(20_000)), ("empty.jpg", b"")]
        shard = write_shard(tmp_path / "x.tar", members)
        found = measure([shard])
        assert [picture.key for picture in found.unusable] == ["cut", "bomb", "empty"]
        assert {picture.shard for picture in found.unusable} == {str(shard)}
        assert (found.samples, found.pictures, found.looked_at) == (5, 5, 2)
        assert found.channels == measure([write_samples(tmp_path / "y.tar", 2)]).channels

    @pytest.mark.parametrize("sample", [None, 3])
    def test_shards_that_cannot_be_read_are_named_and_left_out(self, tmp_path: Path, sample: int | None) -> None:
        good, bad, gone = write_samples(tmp_path / "a.tar", 3), tmp_path / "b.tar", tmp_path / "c.tar"
        bad.write_bytes(tar_bytes(sample_members(4))[:3000])
        found = measure([good, bad, gone], sample=sample)
        assert list(found.failed) == [str(bad), str(gone)]
        assert "WDS002" in found.failed[str(bad)]
        assert found.failed[str(gone)] == f"{gone}: No such file or directory"
        assert (found.samples, found.channels) == (3, measure([good]).channels)

    def test_a_shard_that_may_be_cut_is_a_warning(self, tmp_path: Path) -> None:
        (tmp_path / "x.tar").write_bytes(tar_bytes(sample_members(2))[: 2 * 2560])
        found = measure([tmp_path / "x.tar"])
        assert (found.samples, len(found.warnings)) == (2, 1)


class TestTable:
    def test_it_gives_all_but_the_colours(self, tmp_path: Path) -> None:
        pytest.importorskip("pyarrow")
        members = [
            *sample_members(5, size=(31, 17)),
            ("x.jpg", jpeg_bytes(1)),
            ("y.cls", b"4"),
            ("z.jpg", jpeg_bytes(1)),
        ]
        shards = [write_shard(tmp_path / "a.tar", members), write_samples(tmp_path / "b.tar", 3, first=1)]
        table, read = measure_table(write_table(tmp_path / "t.parquet", shards)), measure(shards)
        assert table.channels is None
        for name in ("samples", "pictures", "looked_at", "labels", "unlabelled", "missing_classes", "imbalance"):
            assert getattr(table, name) == getattr(read, name), name
        for name in ("widths", "heights", "picture_bytes", "bits_per_pixel"):
            assert getattr(table, name) == getattr(read, name), name
        assert read.duplicates is not None
        assert table.duplicates == tuple(
            tuple((Path(shard).name, key) for shard, key in group) for group in read.duplicates
        )
