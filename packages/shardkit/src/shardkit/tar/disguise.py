"""Say in plain words what a file is that should have been a tar. Pure: works on its first bytes."""

from __future__ import annotations

import re

from shardkit.errors import counted, printable
from shardkit.tar.header import BLOCK_BYTES, HeaderError, parse_header

__all__ = ["describe_foreign"]

_MAGIC = (
    (b"PK\x03\x04", "a zip archive"),
    (b"\xfd7zXZ\0", "an xz file"),
    (b"BZh", "a bzip2 file"),
    (b"\x28\xb5\x2f\xfd", "a zstd file"),
    (b"\xff\xd8\xff", "a JPEG picture"),
    (b"\x89PNG", "a PNG picture"),
    (b"PAR1", "a Parquet file"),
    (b"%PDF", "a PDF file"),
)
_FETCH = "Fetch the shard again and look at what the server sent"


def describe_foreign(head: bytes, cause: str) -> tuple[str, str]:
    """Return (what the file is, what to do), from its first bytes (64 KiB are enough).

    Args: cause: why the first block is no tar header, for a file of no known kind.
    """
    start = head[:1024].lstrip().lower()
    if head.startswith(b"version https://git-lfs"):
        return "not a tar: a Git LFS pointer", "Run `git lfs pull` to get the file it points to"
    if start.startswith((b"<!doctype html", b"<html")):
        return f"not a tar: an HTML page beginning with '{_readable(head)}'", _FETCH
    if b"<error>" in start and b"<code>" in start:
        code = re.search(rb"<Code>([^<]*)</Code>", head)
        return f"not a tar: an S3 error document, {_readable(code[1]) if code else 'no code'}", _FETCH
    for magic, name in _MAGIC:
        if head.startswith(magic):
            return f"not a tar: {name}", "Unpack or convert it first"
    tar_at = _first_tar(head)
    text = _readable(head[: tar_at or len(head)])
    if tar_at:
        reason = (
            f"not a tar: {counted(tar_at, 'byte is/bytes are')} in front of the first header, beginning with '{text}'"
        )
        return reason, f"A command wrote text to stdout in front of the tar; `tail -c +{tar_at + 1}` cuts it off"
    if len(text) >= min(16, len(head)):
        return f"not a tar: text beginning with '{text}'", "A command may have written text to stdout; fetch it again"
    return f"not a tar: {cause}", "Fetch or pack the shard again"


def _first_tar(head: bytes) -> int:
    """Return the offset of the first tar header behind the start, 0 where there is none."""
    for match in re.finditer(b"ustar", head):
        offset = match.start() - 257
        block = head[max(offset, 0) : offset + BLOCK_BYTES]
        try:
            if offset > 0 and len(block) == BLOCK_BYTES:
                parse_header(block)
                return offset
        except HeaderError:
            continue
    return 0


def _readable(head: bytes) -> str:
    """Return the readable beginning of the bytes, at most 80 characters, on one line."""
    match = re.match(rb"[\x09\x0a\x0d\x20-\x7e\x80-\xff]*", head[:80])
    return printable(" ".join((match[0] if match else b"").decode("utf-8", "replace").split()))
