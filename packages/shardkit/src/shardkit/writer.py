"""Write one shard: equal samples give equal bytes; the file appears whole, under its name, or not at all.

Members in the order given, plain ustar for names that fit, time and owner 0, mode 0644, two zero blocks at the end. The
index falls out of the writing; nothing is read back.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import xxhash

from shardkit.atomic import atomic_file
from shardkit.errors import PackError
from shardkit.header import BLOCK_BYTES, HeaderError, build_headers, padded
from shardkit.index import ShardIndex, index_of_groups
from shardkit.keys import SampleKey, split_name
from shardkit.reader import Group
from shardkit.walk import Member

__all__ = ["ShardWriter"]

ExceptionInfo = tuple[type[BaseException] | None, BaseException | None, TracebackType | None]


class ShardWriter:
    """A shard that is being written; use ``with``. After the block the file is there and ``index`` says what is in it.

    Args: replace: take the place of a file of that name.
    Raises: OutputExistsError: the name is taken and ``replace`` is false. OSError.
    """

    def __init__(self, path: Path, *, replace: bool = False) -> None:
        self._path = path
        self._context = atomic_file(path, replace=replace)
        self._file = self._context.__enter__()
        self._checksum = xxhash.xxh3_128()
        self._position = 0
        self._groups: list[Group] = []
        self._origins: list[str] = []
        self._keys: set[str] = set()

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(self, *error: *ExceptionInfo) -> None:
        if error[0] is None:
            self._write(bytes(2 * BLOCK_BYTES))
        self._context.__exit__(*error)

    @property
    def index(self) -> ShardIndex:
        """The index of what was written."""
        return index_of_groups(
            self._groups,
            shard=self._path.name,
            num_bytes=self._position,
            checksum=self._checksum.hexdigest(),
            origins=tuple(self._origins) if any(self._origins) else (),
        )

    def write_sample(self, key: str, members: Sequence[tuple[str, bytes]], *, origin: str = "") -> None:
        """Append one sample: its (extension, content) pairs in this order. Origin: its source file, for the index.

        Raises: PackError: a key that another reader would split elsewhere, is taken, or cannot be stored.
        """
        if key in self._keys:
            raise PackError(f"{self._path.name}: key '{key}' is there already. Give every sample its own key")
        self._keys.add(key)
        group = Group(SampleKey(key), [])
        for extension, content in members:
            name = f"{key}.{extension}"
            if split_name(name) != (key, extension):
                raise PackError(
                    f"{self._path.name}: '{name}' would be read as {split_name(name)}. "
                    "Use keys without dots in the base name and extensions in lower case"
                )
            group.parts.append((extension, self._write_member(name, content), content if extension == "cls" else None))
        self._groups.append(group)
        self._origins.append(origin)

    def _write_member(self, name: str, content: bytes) -> Member:
        try:
            headers = build_headers(name, num_bytes=len(content))
        except HeaderError as error:
            raise PackError(f"{self._path.name}: {error}") from error
        header_offset = self._position
        self._write(headers)
        offset = self._position
        self._write(content)
        self._write(bytes(padded(len(content)) - len(content)))
        return Member(name, "file", header_offset, offset, len(content))

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        self._checksum.update(data)
        self._position += len(data)
