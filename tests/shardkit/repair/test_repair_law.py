"""The law of repair: the result is clean, whole samples are as they were, and nothing vanishes."""

from __future__ import annotations

import gzip
import tarfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shardkit import (
    RepairReport,
)
from tests.helpers.pictures import cut_jpeg
from tests.helpers.repairing import (
    account,
    is_clean,
    quarantined,
    repair,
    repair_bytes,
    samples_of,
)
from tests.helpers.shards import (
    Content,
    jpeg_bytes,
    layout,
    sample_members,
    tar_bytes,
    tar_entry,
)

# A sample in the making: which of its parts are there, how its picture is, whether it comes twice.
SAMPLE = st.tuples(
    st.sampled_from(["whole", "whole", "whole", "no jpg", "no cls", "bad jpg", "bad cls"]),
    st.sampled_from(["once", "once", "once", "same again", "other again"]),
)
EXTRA = st.sampled_from(
    ["._hidden.jpg", "README", "../up.jpg", "/abs.jpg", "dots.v2.jpg", "link.jpg", "away.jpg", "fifo", "folder/"]
)


def build_members(samples: list[tuple[str, str]], extras: list[str]) -> tuple[list[Content], set[str]]:
    """Return members, and the keys of samples that are whole and come once."""
    members: list[Content] = []
    whole = set()
    for number, (state, times) in enumerate(samples):
        picture = cut_jpeg() if state == "bad jpg" else jpeg_bytes(number)
        label = b"seven" if state == "bad cls" else str(number).encode()
        parts = [(f"{number:03d}.jpg", picture), (f"{number:03d}.cls", label)]
        parts = [part for part in parts if not (state == "no jpg" and part[0].endswith("jpg"))]
        parts = [part for part in parts if not (state == "no cls" and part[0].endswith("cls"))]
        members += parts
        if times == "same again":
            members += parts
        elif times == "other again":
            members += [(name, content + b"\n") for name, content in parts]
        if state == "whole":
            whole.add(f"{number:03d}")
    for name in extras:
        if name == "link.jpg":
            members.append(tar_entry(name, kind=tarfile.SYMTYPE, linkname="000.jpg"))
        elif name == "away.jpg":
            members.append(tar_entry(name, kind=tarfile.LNKTYPE, linkname="../../etc/passwd"))
        elif name in {"fifo", "folder/"}:
            members.append(tar_entry(name, kind=tarfile.FIFOTYPE if name == "fifo" else tarfile.DIRTYPE))
        else:
            members.append((name, name.encode()))
    return members, whole


TEXT = b"text\n"


def damaged(members: list[Content], *, damage: str, where: float) -> tuple[bytes, set[int]]:
    """Return a shard with this damage, at this share of its length, and the numbers of the members that are intact."""
    data = tar_bytes(members)
    places = layout(data)
    numbers = range(len(places))
    if damage == "cut":
        at = int(where * len(data))
        return data[:at], {number for number in numbers if places[number].content + places[number].size <= at}
    if damage == "header":
        hit = min(int(where * len(places)), len(places) - 1)
        at = places[hit].header
        return data[:at] + b"\xff" + data[at + 1 :], set(numbers) - {hit}
    made = {
        "none": data,
        "no end": data[: places[-1].content + -(-places[-1].size // 512) * 512],
        "front": TEXT + data,
        "behind": data + TEXT,
        "twice": data + tar_bytes(sample_members(2, first=900)),
        "gzip": gzip.compress(data),
    }
    return made[damage], set(numbers)


def require_account(
    report: RepairReport, kept: dict[str, dict[str, bytes]], members: list[tuple[Content, int]]
) -> None:
    """Assert that each member (and its header's offset) is kept, or in the quarantine with its bytes, or told of."""
    contents = [content for sample in kept.values() for content in sample.values()]
    told = {(change.member, change.offset): change.action for change in report.changes}
    files = quarantined(report)
    entries = account(report) if report.quarantine else []
    dropped = {(entry["member"], entry["offset"]): files[entry["name"]] for entry in entries}
    for member, offset in members:
        if isinstance(member, tarfile.TarInfo):
            assert (member.name, offset) in told or not report.changes
        elif (member[0], offset) in dropped:
            assert dropped[member[0], offset] == member[1]
        else:
            assert member[1] in contents, (member[0], told)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    samples=st.lists(SAMPLE, min_size=1, max_size=4),
    extras=st.lists(EXTRA, max_size=3, unique=True),
    order=st.randoms(use_true_random=False),
    mixed=st.booleans(),
    damage=st.sampled_from(["none", "cut", "header", "front", "behind", "twice", "gzip", "no end"]),
    where=st.floats(min_value=0, max_value=1),
    doubles=st.sampled_from(["drop", "rename"]),
)
def test_whatever_the_damage_the_result_is_clean_and_every_member_is_accounted_for(
    tmp_path_factory: pytest.TempPathFactory,
    samples: list[tuple[str, str]],
    extras: list[str],
    order: Any,
    mixed: bool,
    damage: str,
    where: float,
    doubles: str,
) -> None:
    members, whole = build_members(samples, extras)
    if mixed:
        order.shuffle(members)
    data, intact = damaged(members, damage=damage, where=where)
    folder = tmp_path_factory.mktemp("law")
    report = repair_bytes(data, folder, doubles=doubles)
    if not report.saved:
        assert report.output is None
        return
    output = folder / "s.tar" if report.output is None else Path(report.output)
    assert is_clean(str(output))
    assert repair(output, folder / "again").changes == ()
    kept = samples_of(output)
    places = layout(tar_bytes(members))
    shift = len(TEXT) if damage == "front" else 0
    require_account(report, kept, [(members[n], places[n].header + shift) for n in sorted(intact)])
    at: dict[str, set[int]] = {}
    for number, place in enumerate(places):
        at.setdefault(place.name.partition(".")[0], set()).add(number)
    undamaged = sorted(key for key in whole if at[key] <= intact)
    for key in undamaged:
        number = int(key)
        if samples[number][1] == "other again" and mixed:
            # Which of the two labels was with which picture, nothing in the shard says any more.
            assert kept[key]["jpg"] in {jpeg_bytes(number), jpeg_bytes(number) + b"\n"}
        else:
            assert kept[key] == {"jpg": jpeg_bytes(number), "cls": str(number).encode()}
    assert mixed or [key for key in kept if key in undamaged] == undamaged


@settings(max_examples=100, deadline=None)
@given(
    edits=st.lists(
        st.tuples(st.floats(0, 1), st.sampled_from(["flip", "cut out", "insert", "repeat"]), st.binary(max_size=700)),
        max_size=6,
    ),
    packed=st.booleans(),
)
def test_any_bytes_are_survived_and_what_comes_out_is_clean(
    tmp_path_factory: pytest.TempPathFactory, edits: list[tuple[float, str, bytes]], packed: bool
) -> None:
    data = tar_bytes(sample_members(3), format=1) + tar_bytes([("x.jpg", jpeg_bytes(7)), ("x.cls", b"7")])
    for where, kind, piece in edits:
        at = int(where * len(data))
        end = at + len(piece)
        data = {
            "flip": data[:at] + bytes(a ^ b for a, b in zip(piece, data[at:end], strict=False)) + data[end:],
            "cut out": data[:at] + data[end:],
            "insert": data[:at] + piece + data[at:],
            "repeat": data[:at] + data[at : at + 1024] * 2 + data[at:],
        }[kind]
    report = repair_bytes(gzip.compress(data) if packed else data, tmp_path_factory.mktemp("any"))
    assert not report.output or is_clean(report.output)
    known = {content for _, content in sample_members(3)} | {jpeg_bytes(7), b"7"}
    if report.output and not edits:
        assert {c for sample in samples_of(report.output).values() for c in sample.values()} == known


@settings(max_examples=100, deadline=None)
@given(data=st.binary(max_size=3000))
def test_what_is_no_tar_at_all_is_survived(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    assert not repair_bytes(data, tmp_path_factory.mktemp("none")).saved
