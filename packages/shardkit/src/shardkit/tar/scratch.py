"""Hidden files that exist for the time of one call, and gzip unpacked into them down to the last byte that can be had.

A killed process leaves its file behind; ``atomic.remove_leftovers`` takes it away on the next run.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from shardkit.atomic import remove_leftovers, unfinished_file
from shardkit.tar.gunzip import GZIP_MAGIC, MAX_UNPACK_RATIO, unpack_up_to_damage, unpacks_too_far

__all__ = ["scratch_file", "unpack"]

# zlib's number for "gzip, with its header and checksum".
_GZIP_WINDOW = 31
# Small enough to go through byte by byte once, where the damage is.
_PIECE_BYTES = 1 << 16
# 4 MiB: a few compressed bytes can stand for a thousand times as many.
_OUTPUT_BYTES = 1 << 22


@contextmanager
def scratch_file(folder: Path, *, name: str) -> Iterator[tuple[Path, BinaryIO]]:
    """Open a new hidden file in the folder, under the name's prefix; it is gone after the block.

    Raises: OSError: naming the folder.
    """
    remove_leftovers(folder, name_prefix=f"{name}-")
    # What is unpacked is for nobody else to read.
    with unfinished_file(folder / name, mode=0o600) as opened:
        yield opened


def unpack(stream: BinaryIO, file: BinaryIO, *, ahead: bytes = b"") -> str | None:
    """Copy a stream to a file, unpacked where it is gzip (of one member or several, told by content).

    Args: ahead: bytes of the stream that were read before.
    Returns: None, or why what was unpacked is not all there is or not to be trusted; what could be had is in the file.
    """
    data = ahead or stream.read(_PIECE_BYTES)
    while 0 < len(data) < len(GZIP_MAGIC) and (more := stream.read(_PIECE_BYTES)):
        data += more
    if not data.startswith(GZIP_MAGIC):
        while data:
            file.write(data)
            data = stream.read(_PIECE_BYTES)
        return None
    while data.startswith(GZIP_MAGIC):
        reason, data = _unpack_member(stream, file, first=data)
        if reason is not None:
            return reason
        while len(data) < len(GZIP_MAGIC) and (more := stream.read(_PIECE_BYTES)):
            data += more
    # Some writers fill the last block with zeros.
    while data and not data.strip(b"\0"):
        data = stream.read(_PIECE_BYTES)
    return "bytes that are no gzip follow the gzip stream" if data else None


def _unpack_member(stream: BinaryIO, file: BinaryIO, *, first: bytes) -> tuple[str | None, bytes]:
    """Unpack one gzip member; return (why it is not whole, the bytes behind it)."""
    unpacker = zlib.decompressobj(_GZIP_WINDOW)
    data = first
    packed_bytes, start = len(first), file.tell()
    while not unpacker.eof:
        if not data:
            file.write(unpacker.flush())
            return "the gzip stream ends early", b""
        before = unpacker.copy()
        try:
            file.write(unpacker.decompress(data, _OUTPUT_BYTES))
        except zlib.error as error:
            file.writelines(unpack_up_to_damage(before, data))
            return f"the gzip stream is damaged ({error})", b""
        if unpacks_too_far(file.tell() - start, packed_bytes=packed_bytes):
            return f"gzip that unpacks to more than {MAX_UNPACK_RATIO} times its size, unpacked no further", b""
        data = unpacker.unconsumed_tail
        if not data and not unpacker.eof:
            data = stream.read(_PIECE_BYTES)
            packed_bytes += len(data)
    return None, unpacker.unused_data + data
