"""Fuzz the header and the walk of a shard with atheris (libFuzzer for Python).

Not part of the tests: atheris carries clang's libFuzzer and has wheels for few Pythons. The same laws are hypothesis
tests in tests/property/test_walk_laws.py. To run it from the repository root, for ten minutes::

    uv venv --python 3.12 fuzz && uv pip install --python fuzz/bin/python atheris packages/shardkit
    PYTHONPATH=. fuzz/bin/python tools/fuzz/fuzz_walk.py -max_total_time=600 -max_len=8192 corpus/

What it finds ends it, and lies in ``crash-*``: make it a test of tests/shardkit before you mend it.
"""

from __future__ import annotations

import contextlib
import io
import sys

import atheris  # type: ignore[import-not-found,import-untyped,unused-ignore]  # optional, see above

with atheris.instrument_imports(include=["shardkit"]):
    from shardkit import ShardReadError
    from shardkit.tar.byte_source import MemorySource, stream_source
    from shardkit.tar.header import HeaderError, parse_header, parse_pax_records
    from shardkit.tar.walk import Member, ShardWalk

_BLOCK_BYTES = 512
_CHECKSUM = slice(148, 156)


def check_header(block: bytes) -> None:
    """A header is read, or refused with HeaderError; a size is never negative."""
    try:
        _require(parse_header(block).size >= 0)
    except HeaderError:
        return


def check_walk(data: bytes, *, streamed: bool, goes_on: bool) -> None:
    """A walk ends; members ascend and lie within the bytes; nothing but ShardReadError is raised."""
    source = stream_source(io.BytesIO(data)) if streamed else MemorySource(data)
    packed = source.gunzip is not None
    damage: list[ShardReadError] = []
    walk = ShardWalk(source, shard="x", want=_is_small, on_damage=damage.append if goes_on else None)
    end = 0
    try:
        for member, content in walk:
            _require(end <= member.header_offset < member.offset)
            end = member.offset + member.size
            _require(packed or end <= len(data))
            _require(content is None or packed or content == data[member.offset : end])
    except ShardReadError:
        _require(not goes_on)
    _require(len(damage) <= len(data) // _BLOCK_BYTES + 2 or packed)


def _require(law: bool) -> None:
    if not law:
        raise RuntimeError("a law is broken")


def _is_small(member: Member) -> bool:
    return member.size < 1 << 16


def one_input(data: bytes) -> None:
    """Try one input: its first byte says how, and whether checksums are made right, which chance would never do."""
    if not data:
        return
    how, data = data[0], data[1:]
    if how & 1:
        data = _with_checksums(data)
    check_header(data[:_BLOCK_BYTES])
    with contextlib.suppress(HeaderError):
        parse_pax_records(data)
    check_walk(data, streamed=bool(how & 2), goes_on=bool(how & 4))


def _with_checksums(data: bytes) -> bytes:
    """Return the bytes with the checksum made right in every block that has a name and is followed by a type flag."""
    blocks = []
    for start in range(0, len(data), _BLOCK_BYTES):
        block = bytearray(data[start : start + _BLOCK_BYTES])
        if len(block) == _BLOCK_BYTES and block[0] and block[_CHECKSUM] == b"\0" * 8:
            block[_CHECKSUM] = b" " * 8
            block[_CHECKSUM] = b"%06o\0 " % sum(block)
        blocks.append(bytes(block))
    return b"".join(blocks)


def main() -> None:
    """Run until libFuzzer's options say to stop."""
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
