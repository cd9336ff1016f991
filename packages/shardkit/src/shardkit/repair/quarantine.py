"""The tar of what a repair dropped: its bytes, under names that are safe to unpack, and a report of what and why.

Format ``shardkit-quarantine`` version 1: a plain tar whose first member, ``report.json``, lists every other one: its
name there, the member's name, rule, reason, and byte offset in the (unpacked) shard. Members that are no files (links,
devices) and bytes that are no members are kept raw, headers included, under names that end in ``.raw``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from shardkit.atomic import atomic_file
from shardkit.errors import ShardReadError, printable
from shardkit.repair.mending import Change, Dropped
from shardkit.tar.header import BLOCK_BYTES, build_headers, padded

__all__ = ["change_document", "quarantine_path", "write_member", "write_quarantine"]

_FORMAT = "shardkit-quarantine"
_VERSION = 1
_REPORT = "report.json"
# A folder of its own: `*.tar` beside the shard must not find it.
_FOLDER = "quarantine"
_COPY_BYTES = 1 << 20
# 4 GiB: half of what a header can say.
_MOST_BYTES = 1 << 32


def quarantine_path(shard: Path) -> Path:
    """Return where the quarantine of a shard goes: ``quarantine/NAME.quarantine.tar`` in the shard's folder."""
    return shard.parent / _FOLDER / f"{shard.name.removesuffix('.tar')}.quarantine.tar"


def write_quarantine(
    path: Path,
    file: BinaryIO,
    *,
    shard: str,
    dropped: Sequence[Dropped],
    changes: Sequence[Change],
    replace: bool = False,
) -> None:
    """Write the quarantine of one shard, whole or not at all.

    Args: file: the shard, unpacked. changes: all that the repair did.
    Raises: OutputExistsError. ShardReadError: the shard has become shorter. OSError.
    """
    entries = list(_entries(dropped))
    report = {
        "format": _FORMAT,
        "version": _VERSION,
        "shard": printable(os.path.basename(shard)),
        "members": [
            {**change_document(entry.change), "name": printable(name), "raw": entry.raw, "num_bytes": size}
            for name, entry, _, size in entries
        ],
        "changes": [change_document(change) for change in changes],
    }
    data = json.dumps(report, indent=1).encode() + b"\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path, replace=replace) as target:
        target.write(build_headers(_REPORT, num_bytes=len(data)) + data + bytes(padded(len(data)) - len(data)))
        for name, _, offset, size in entries:
            write_member(target, name, file=file, offset=offset, size=size, shard=shard)
        target.write(bytes(2 * BLOCK_BYTES))


def change_document(change: Change) -> dict[str, object]:
    """Return a change as JSON values; names that are not UTF-8 are escaped."""
    return {
        "action": change.action,
        "rule": change.rule,
        "message": printable(change.message),
        "member": None if change.member is None else printable(change.member),
        "offset": change.offset,
    }


def write_member(target: BinaryIO, name: str, *, file: BinaryIO, offset: int, size: int, shard: str) -> None:
    """Append a plain member whose content are ``size`` bytes of ``file`` from ``offset``.

    Raises: ShardReadError: they are not all there. OSError.
    """
    target.write(build_headers(name, num_bytes=size))
    _copy_bytes(file, target, offset=offset, size=size, shard=shard)
    target.write(bytes(padded(size) - size))


def _copy_bytes(file: BinaryIO, target: BinaryIO, *, offset: int, size: int, shard: str) -> None:
    """Copy bytes in pieces. Raises: ShardReadError: they are not all there. OSError."""
    end = offset + size
    while offset < end:
        piece = os.pread(file.fileno(), min(_COPY_BYTES, end - offset), offset)
        if not piece:
            reason = "the file has become shorter while it was read"
            raise ShardReadError(shard, reason, rule="WDS002", offset=offset, remedy="Leave it alone and repair again")
        target.write(piece)
        offset += len(piece)


def _entries(dropped: Sequence[Dropped]) -> Iterator[tuple[str, Dropped, int, int]]:
    """Yield (safe name, what is dropped, byte offset, size) of every member of the quarantine."""
    taken = {_REPORT}
    # The next number for a name that is taken: thousands may be the same.
    following: dict[str, int] = {}
    for entry in dropped:
        for start in range(0, max(entry.size, 1), _MOST_BYTES):
            plain = _safe_name(entry.name) + (".raw" if entry.raw else "")
            name = plain
            while name in taken:
                following[plain] = following.get(plain, 1) + 1
                name = f"{following[plain]}/{plain}"
            taken.add(name)
            yield name, entry, entry.offset + start, min(_MOST_BYTES, entry.size - start)


def _safe_name(name: str) -> str:
    """Return the name without what leads out of a folder, hides a file, or cannot be seen."""
    parts = [part.lstrip(".") for part in name.split("/")]
    safe = "/".join(part for part in parts if part)
    return "".join(c if c.isprintable() or "\udc80" <= c <= "\udcff" else "_" for c in safe) or "unnamed"
