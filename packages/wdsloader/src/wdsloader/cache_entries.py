"""What lies in a cache folder: the name of a URL's file, the record beside it, and which files are the cache's own.

An entry is ``<24 hex digits>-<base name>`` with ``<entry>.origin.json`` beside it (format ``wdsloader-cache``, version
1), which is written first: a file without its record is none of ours. The record's time of change is the time of the
entry's last use; the access times of files are not kept everywhere.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

import xxhash

from shardkit import INDEX_SUFFIX, is_command, mask_url, write_atomically

__all__ = [
    "ORIGIN_SUFFIX",
    "CacheEntry",
    "Origin",
    "checksum_of",
    "damage_of",
    "entries_in",
    "entry_name",
    "own_bytes",
    "read_origin",
    "shown_origin",
    "touch",
    "unfinished_in",
]

ORIGIN_SUFFIX = ".origin.json"
_PIECE_BYTES = 1 << 20
_FORMAT, _VERSION = "wdsloader-cache", 1
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_NAME_BYTES = 100
_ENTRY = re.compile(r"[0-9a-f]{24}-[A-Za-z0-9._-]*")
COMMAND_PREFIX = "pipe:"
# What is being written has such a name (shardkit.atomic), and counts.
_UNFINISHED = ".unfinished-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a kept file came from: URL without secrets, length, XXH3 (128 bits, hex), when it was written (ns)."""

    url: str
    num_bytes: int
    checksum: str
    written_ns: int

    def write(self, entry: Path) -> None:
        """Write it beside the entry. Raises: OSError."""
        document = {"format": _FORMAT, "version": _VERSION, **asdict(self)}
        write_atomically(_origin_of(entry), json.dumps(document).encode() + b"\n", replace=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheEntry:
    """One kept file, with what belongs to it. ``num_bytes``: of all of these; ``used_s``: last use, Unix time."""

    path: Path
    origin: Origin
    num_bytes: int
    used_s: float

    def remove(self) -> None:
        """Remove the file and what belongs to it. The file goes first: nobody finds it without its record."""
        for path in (self.path, _index_of(self.path), _origin_of(self.path)):
            path.unlink(missing_ok=True)


def entry_name(url: str, *, ignore_query: tuple[str, ...] = ()) -> str:
    """Return the file name of a URL or command: a hash of all of it, then its base name for people, no secret in it."""
    named = url
    if is_command(url):
        base = "command"
    else:
        parts = urlsplit(url)
        base = _UNSAFE.sub("_", unquote(parts.path).rpartition("/")[2])
        if ignore_query and parts.query:
            kept = [field for field in parts.query.split("&") if not _ignored(field, ignore_query)]
            named = urlunsplit(parts._replace(query="&".join(kept)))
    digest = hashlib.blake2b(named.encode("utf-8", "surrogateescape"), digest_size=12).hexdigest()
    return f"{digest}-{base[-_NAME_BYTES:]}"


def shown_origin(url: str) -> str:
    """Return a URL without its secrets; of a command, whose words may all be secrets, the first word."""
    return f"{COMMAND_PREFIX}{url.removeprefix(COMMAND_PREFIX).split()[0]} .." if is_command(url) else mask_url(url)


def _ignored(field: str, ignore_query: tuple[str, ...]) -> bool:
    name = unquote(field.partition("=")[0])
    return any(fnmatchcase(name, pattern) for pattern in ignore_query)


def read_origin(entry: Path) -> Origin | None:
    """Return the record of an entry, None where there is none that can be read."""
    try:
        document = json.loads(_origin_of(entry).read_bytes())
        if document.pop("format") != _FORMAT or document.pop("version") != _VERSION:
            return None
        return Origin(**document)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def touch(entry: Path) -> None:
    """Note that the entry is used now; a folder that cannot be written keeps the old time."""
    with contextlib.suppress(OSError):
        os.utime(_origin_of(entry))


def entries_in(folder: Path) -> Iterator[CacheEntry]:
    """Yield the cache's own files, whole ones alone. Raises: OSError: the folder cannot be listed."""
    sizes = dict(_sizes(folder))
    for name, (num_bytes, _) in sizes.items():
        origin = read_origin(folder / name) if _ENTRY.fullmatch(name) and name + ORIGIN_SUFFIX in sizes else None
        if origin is None:
            continue
        beside = [sizes[name + suffix] for suffix in (ORIGIN_SUFFIX, INDEX_SUFFIX) if name + suffix in sizes]
        total = num_bytes + sum(size for size, _ in beside)
        yield CacheEntry(path=folder / name, origin=origin, num_bytes=total, used_s=beside[0][1])


def own_bytes(folder: Path) -> int:
    """Return the bytes of all that the cache has in the folder, unfinished files in the length they will have."""
    own = (num_bytes for name, (num_bytes, _) in _sizes(folder) if _ENTRY.fullmatch(name.removeprefix(_UNFINISHED)))
    return sum(own)


def unfinished_in(folder: Path) -> list[str]:
    """Return the names, without their mark, of the cache's own unfinished files and locks."""
    names = [name.removeprefix(_UNFINISHED) for name, _ in _sizes(folder) if name.startswith(_UNFINISHED)]
    return [name for name in names if _ENTRY.fullmatch(name)]


def damage_of(descriptor: int, origin: Origin) -> str | None:
    """Read all of an open file, and return what is wrong with it, in words; None: it is as it was fetched."""
    num_bytes = os.fstat(descriptor).st_size
    if num_bytes != origin.num_bytes:
        return f"has {num_bytes} bytes, not {origin.num_bytes}"
    found = checksum_of(descriptor)
    return None if found == origin.checksum else f"is damaged: has checksum {found}, not {origin.checksum}"


def checksum_of(descriptor: int) -> str:
    """Return the XXH3 checksum of an open file, wherever it is read at."""
    digest, offset = xxhash.xxh3_128(), 0
    while piece := os.pread(descriptor, _PIECE_BYTES, offset):
        digest.update(piece)
        offset += len(piece)
    return digest.hexdigest()


def _sizes(folder: Path) -> Iterator[tuple[str, tuple[int, float]]]:
    with os.scandir(folder) as found:
        for file in found:
            # It may be gone since it was listed.
            with contextlib.suppress(FileNotFoundError):
                status = file.stat(follow_symlinks=False)
                if file.is_file(follow_symlinks=False):
                    yield file.name, (status.st_size, status.st_mtime)


def _origin_of(entry: Path) -> Path:
    return entry.with_name(entry.name + ORIGIN_SUFFIX)


def _index_of(entry: Path) -> Path:
    return entry.with_name(entry.name + INDEX_SUFFIX)
