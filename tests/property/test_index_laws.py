"""What must hold for the index of any shard, and for what is made from it."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shardkit import ShardFile, build_index, dali_index, index_from_json, read_index, write_index
from shardkit.index.shard_index import index_to_json
from tests.helpers.shards import layout

EXTENSIONS = ("jpg", "cls", "json", "seg.png")
KEYS = st.text(st.characters(codec="utf-8", exclude_characters="./\0", exclude_categories=["Z", "C"]), min_size=1)
LONG_KEYS = st.integers(1, 300).map(lambda length: "k" * length)
FOLDERS = st.sampled_from(["", "a/", "a.b/c/", "f" * 120 + "/"])
CONTENTS = st.one_of(st.binary(max_size=1600), st.integers(-1, 2000).map(lambda label: str(label).encode()))


@st.composite
def samples(draw: st.DrawFn) -> list[tuple[str, bytes]]:
    """Members of whole samples in any order within each: a picture at least, and some of the other extensions."""
    keys = draw(st.lists(st.builds(lambda f, k: f + k, FOLDERS, st.one_of(KEYS, LONG_KEYS)), max_size=6, unique=True))
    members = []
    for key in keys:
        others = draw(st.sets(st.sampled_from(EXTENSIONS[1:])))
        order = draw(st.permutations(["jpg", *sorted(others)]))
        members += [(f"{key}.{extension}", draw(CONTENTS)) for extension in order]
    return members


def write(path: Path, members: list[tuple[str, bytes]], *, format: int) -> Path:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=format) as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    path.write_bytes(buffer.getvalue())
    return path


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(members=samples(), format=st.sampled_from([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT]))
def test_an_index_says_what_tarfile_says_and_survives_its_file(
    tmp_path_factory: pytest.TempPathFactory, members: list[tuple[str, bytes]], format: int
) -> None:
    path = write(tmp_path_factory.mktemp("law") / "x.tar", members, format=format)
    index = build_index(path)
    found = {
        (f"{key}.{extension}", int(index.member_offsets[row, column]), int(index.member_sizes[row, column]))
        for row, key in enumerate(index.keys)
        for column, extension in enumerate(index.extensions)
        if index.member_offsets[row, column] >= 0
    }
    assert found == {(place.name, place.content, place.size) for place in layout(path.read_bytes())}
    if members:
        words = dali_index(index).decode().split("\n", 1)[1].split()
        entries = [tuple(words[n : n + 4]) for n in range(0, len(words), 4)]
        assert [(name, int(offset), int(size)) for _, offset, size, name in entries] == [
            (place.name, place.content, place.size) for place in layout(path.read_bytes())
        ]
    with ShardFile(path) as shard:
        for row, key in enumerate(index.keys):
            sample = shard.read_sample(int(index.offsets[row]), int(index.sizes[row]))
            wanted = {name.removeprefix(f"{key}."): content for name, content in members if name.startswith(f"{key}.")}
            assert (sample.key, sample.members) == (key, wanted)
    write_index(index, path.with_suffix(".json"))
    assert index_to_json(read_index(path.with_suffix(".json"))) == index_to_json(index)
    assert index_to_json(index_from_json(index_to_json(index))) == index_to_json(index)
