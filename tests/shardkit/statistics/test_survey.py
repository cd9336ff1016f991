from __future__ import annotations

from pathlib import Path

import numpy as np
import xxhash
from PIL import Image

from shardkit.pictures import MAX_PIXELS
from shardkit.statistics.survey import survey_shard
from tests.helpers.pictures import cut_jpeg, encode
from tests.helpers.shards import jpeg_bytes, layout, sample_members, write_shard


def test_columns_are_those_of_the_pictures_in_order(tmp_path: Path) -> None:
    members = [("a.jpg", jpeg_bytes(1, size=(9, 7))), ("b.cls", b"3"), ("c.jpg", cut_jpeg()), ("d.jpg", jpeg_bytes(2))]
    shard = write_shard(tmp_path / "x.tar", members)
    survey = survey_shard((str(shard), None, MAX_PIXELS, False))
    places = [place for place in layout(shard.read_bytes()) if place.name.endswith(".jpg")]
    assert survey.picture_offsets.tolist() == [place.header for place in places]
    assert survey.picture_bytes.tolist() == [place.size for place in places]
    assert (survey.samples, survey.labels, survey.keys) == (4, {-1: 3, 3: 1}, ["a", "d"])
    assert (survey.widths.tolist(), survey.heights.tolist()) == ([9, 20], [7, 16])
    assert survey.hashes[1].tobytes() == xxhash.xxh3_128_digest(jpeg_bytes(2))
    assert [(picture.shard, picture.key) for picture in survey.unusable] == [(str(shard), "c")]


def test_the_histogram_counts_each_pixel_of_each_channel(tmp_path: Path) -> None:
    picture = encode(Image.new("RGB", (4, 3), (10, 20, 255)), "PNG")
    survey = survey_shard((str(write_shard(tmp_path / "x.tar", [("a.png", picture)])), None, MAX_PIXELS, False))
    assert (survey.histogram.shape, survey.histogram.sum(axis=1).tolist()) == ((3, 256), [12, 12, 12])
    assert [int(np.argmax(counts)) for counts in survey.histogram] == [10, 20, 255]


def test_only_the_pictures_chosen_are_decoded(tmp_path: Path) -> None:
    shard = write_shard(tmp_path / "x.tar", sample_members(5))
    offsets = survey_shard((str(shard), frozenset(), MAX_PIXELS, False)).picture_offsets
    survey = survey_shard((str(shard), frozenset({int(offsets[1]), int(offsets[4])}), MAX_PIXELS, False))
    assert (survey.keys, len(survey.picture_bytes), survey.samples) == (["000001", "000004"], 5, 5)


def test_a_shard_that_cannot_be_read_holds_nothing(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(b"<html>" * 200)
    survey = survey_shard((str(tmp_path / "x.tar"), None, MAX_PIXELS, False))
    assert (survey.samples, survey.labels) == (0, {})
    assert "WDS001" in survey.error
