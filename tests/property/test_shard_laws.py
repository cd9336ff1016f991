"""What holds for every shard, whatever is in it and wherever it is damaged."""

from __future__ import annotations

import contextlib
import functools
import io
import tempfile
import tracemalloc
from pathlib import Path

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from shardkit import Sample, ShardReadError, ShardWriter, build_index, iter_samples, open_folder, split_name
from shardkit.check.scan import scan_shard
from shardkit.index.shard_index import index_to_json
from shardkit.keys import picture_extension
from shardkit.tar.header import build_headers, parse_header, parse_pax_records
from tests.helpers.folders import image_folder, pack_folder
from tests.helpers.shards import check, layout, rules_in, sample_members, tar_bytes

# Bytes that are not UTF-8 come as surrogates; a name may be long, and of any script.
NAMES = st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"])
    | st.sampled_from([chr(0xDC80 + n) for n in range(128)]),
    min_size=1,
    max_size=150,
)
KEYS = NAMES.filter(lambda key: split_name(f"{key}.jpg") == (key, "jpg"))
EXTENSIONS = st.sampled_from(["jpg", "cls", "png", "json", "v2.jpg", "txt.é", "x" * 120])
CONTENTS = st.binary(max_size=40) | st.sampled_from([b"", bytes(511), bytes(512), b"\xff" * 513])
MEMBERS = st.lists(st.tuples(EXTENSIONS, CONTENTS), min_size=1, max_size=4, unique_by=lambda m: m[0]).filter(
    lambda members: any(extension in {"jpg", "cls", "png", "v2.jpg"} for extension, _ in members)
)
SAMPLES = st.lists(st.tuples(KEYS, MEMBERS), max_size=5, unique_by=lambda sample: sample[0])
FEW = settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])


@functools.cache
def good_shard() -> tuple[bytes, list[Sample]]:
    """Return a shard with short, long, non-ASCII and empty members, as bytes and as samples."""
    members = [
        *sample_members(2),
        ("é/" + "k" * 150 + ".jpg", b"x" * 700), ("é/" + "k" * 150 + ".cls", b"1"),
        ("empty.jpg", b""), ("empty.cls", b""),
    ]  # fmt: skip
    data = _written([(members[n][0][:-4], [("jpg", members[n][1]), ("cls", members[n + 1][1])]) for n in (0, 2, 4, 6)])
    return data, list(iter_samples(io.BytesIO(data), shard="x"))


def _written(samples: list[tuple[str, list[tuple[str, bytes]]]]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.tar")
        with ShardWriter(path) as writer:
            for key, members in samples:
                writer.write_sample(key, members)
        assert index_to_json(writer.index) == index_to_json(build_index(path))
        return path.read_bytes()


def read_as_far_as_possible(data: bytes) -> tuple[list[Sample], bool]:
    """Return the samples that a reader gets, and whether an error ended them."""
    samples: list[Sample] = []
    try:
        samples.extend(iter_samples(io.BytesIO(data), shard="x"))
    except ShardReadError:
        return samples, True
    return samples, False


def rules_of(data: bytes) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.tar")
        path.write_bytes(data)
        return rules_in(check(path, decode=False))


class TestRoundTrip:
    """What is written is what is read, for any key, extension and content."""

    @FEW
    @given(SAMPLES)
    def test_samples_come_back_as_they_were_given(self, samples: list[tuple[str, list[tuple[str, bytes]]]]) -> None:
        found = list(iter_samples(io.BytesIO(_written(samples)), shard="x"))
        assert [(sample.key, list(sample.members.items())) for sample in found] == samples

    @given(NAMES, st.integers(0, 8**11 - 1))
    @example("é" * 50 + ".jpg", 0)
    @example("/" * 101, 0)
    @example("a/" * 60, 7)
    def test_a_header_says_what_it_was_built_from(self, name: str, num_bytes: int) -> None:
        headers = build_headers(name, num_bytes=num_bytes)
        raw = name.encode("utf-8", "surrogateescape")
        last = parse_header(headers[-512:])
        assert (last.size, last.kind) == (num_bytes, b"0")
        if len(headers) == 512:
            assert last.name == raw
        else:
            assert parse_header(headers[:512]).kind == b"x"
            assert parse_pax_records(headers[512:-512]) == {"path": raw}


class TestTruncation:
    """A shard that was cut anywhere never yields a part of a sample, and never passes without a word."""

    @given(st.integers(0, len(good_shard()[0]) - 1))
    def test_a_cut_gives_whole_samples_and_an_error_or_the_warning(self, length: int) -> None:
        data, samples = good_shard()
        found, ended_by_error = read_as_far_as_possible(data[:length])
        assert found == samples[: len(found)]
        said = {"WDS001", "WDS002", "WDS005", "WDS008", "WDS013"} & set(rules_of(data[:length]))
        only_marker_is_short = length >= len(data) - 512
        assert said or only_marker_is_short
        assert ended_by_error or "WDS005" in said or length > len(data) - 1024

    def test_at_every_member_boundary(self) -> None:
        data, samples = good_shard()
        for place in layout(data):
            found, _ = read_as_far_as_possible(data[: place.header])
            assert found == samples[: len(found)]


class TestDamage:
    """One wrong byte in a header is found, or changes nothing that matters; nothing but ShardReadError is raised."""

    @given(st.data())
    def test_a_wrong_byte_in_a_header_is_found_or_harmless(self, data: st.DataObject) -> None:
        shard, samples = good_shard()
        place = data.draw(st.sampled_from(layout(shard)))
        position = data.draw(st.integers(place.header, place.content - 1))
        value = data.draw(st.integers(0, 255).filter(lambda value: value != shard[position]))
        damaged = shard[:position] + bytes([value]) + shard[position + 1 :]
        found, ended_by_error = read_as_far_as_possible(damaged)
        if ended_by_error or found != samples:
            # The content of a pax record has no checksum: a name may have become another, and a sample lack its part.
            assert {"WDS001", "WDS002", "WDS003", "WDS021", "WDS022"} & set(rules_of(damaged))
        if not place.header + 512 <= position < place.content - 512:
            assert ended_by_error or found == samples

    @given(st.binary(max_size=3000) | st.binary(max_size=600).map(lambda junk: good_shard()[0][:2048] + junk))
    def test_no_bytes_crash_the_scan_or_fill_the_memory(self, data: bytes) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "x.tar")
            path.write_bytes(data)
            tracemalloc.start()
            try:
                scan_shard(str(path))
                assert tracemalloc.get_traced_memory()[1] < 8 << 20
            finally:
                tracemalloc.stop()
        with contextlib.suppress(ShardReadError):
            for sample in iter_samples(io.BytesIO(data), shard="x"):
                assert sample.members

    @given(st.data())
    def test_wrong_bytes_anywhere_raise_nothing_else(self, data: st.DataObject) -> None:
        shard = bytearray(tar_bytes(sample_members(3)))
        for _ in range(data.draw(st.integers(1, 8))):
            shard[data.draw(st.integers(0, len(shard) - 1))] = data.draw(st.integers(0, 255))
        found, _ = read_as_far_as_possible(bytes(shard))
        assert all(picture_extension(sample.members) or sample.members for sample in found)
        rules_of(bytes(shard))


class TestPacking:
    """Neither the number of processes nor the split changes what is packed."""

    @settings(max_examples=3, suppress_health_check=[HealthCheck.too_slow])
    @given(num_shards=st.integers(2, 5), per_class=st.integers(2, 4))
    def test_one_process_and_two_write_equal_bytes(self, num_shards: int, per_class: int) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            image_folder(folder / "in", per_class=per_class)
            for jobs in (1, 2):
                pack_folder(folder / "in", folder / str(jobs), num_shards=num_shards, jobs=jobs)
            one, two = ({p.name: p.read_bytes() for p in (folder / jobs).iterdir()} for jobs in ("1", "2"))
            assert one == two

    @FEW
    @given(share=st.floats(0.15, 0.85), seed=st.integers(0, 2**32 - 1), per_class=st.integers(4, 9))
    def test_train_and_val_are_a_partition(self, share: float, seed: int, per_class: int) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for label in ("a", "b"):
                (folder / label).mkdir()
                for number in range(per_class):
                    (folder / label / f"{number}.jpg").touch()
            halves = [open_folder(folder, split=s, seed=seed, val_share=share).files for s in ("train", "val")]
            assert not set(halves[0]) & set(halves[1])
            assert sorted(halves[0] + halves[1]) == sorted(open_folder(folder, seed=seed).files)
