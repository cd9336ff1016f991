"""Write one shard: equal samples give equal bytes; the file appears whole, under its name, or not at all.

Members in the order given, plain ustar for names that fit, time and owner 0, mode 0644, two zero blocks at the end. The
index falls out of the writing; nothing is read back.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import xxhash

from shardkit.atomic import atomic_file
from shardkit.errors import PackError
from shardkit.index.shard_index import ShardIndex, index_of_groups
from shardkit.keys import LABEL_EXTENSION, SampleKey, is_part_of_sample, split_name
from shardkit.tar.header import BLOCK_BYTES, HeaderError, build_headers, padded
from shardkit.tar.reader import Group
from shardkit.tar.walk import Member

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
            try:
                self._write(bytes(2 * BLOCK_BYTES))
            except BaseException:
                self._context.__exit__(*sys.exc_info())
                raise
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

        Raises: PackError: a key that another reader would split elsewhere, is taken, or cannot be stored; a member
            twice, or neither picture nor label. Nothing of the sample is written then.
        """
        all_headers = self._checked_headers(key, members)
        self._keys.add(key)
        group = Group(SampleKey(key), [])
        for headers, (extension, content) in zip(all_headers, members, strict=True):
            member = self._write_member(f"{key}.{extension}", content, headers=headers)
            group.parts.append((extension, member, content if extension == LABEL_EXTENSION else None))
        self._groups.append(group)
        self._origins.append(origin)

    def _checked_headers(self, key: str, members: Sequence[tuple[str, bytes]]) -> list[bytes]:
        """Return the headers of a sample's members, once all of it is known to be fit to write."""
        if key in self._keys:
            raise PackError(f"{self._path.name}: key '{key}' is there already. Give every sample its own key")
        extensions = [extension for extension, _ in members]
        if len(set(extensions)) != len(extensions):
            raise PackError(f"{self._path.name}: '{key}' has two members of one extension: {', '.join(extensions)}")
        if not any(is_part_of_sample(extension) for extension in extensions):
            raise PackError(f"{self._path.name}: '{key}' has neither a picture nor a label: readers would pass it over")
        for extension in extensions:
            if split_name(f"{key}.{extension}") != (key, extension):
                raise PackError(
                    f"{self._path.name}: '{key}.{extension}' would be read as {split_name(f'{key}.{extension}')}. "
                    "Use keys without dots in the base name and extensions in lower case"
                )
        try:
            return [build_headers(f"{key}.{extension}", num_bytes=len(content)) for extension, content in members]
        except HeaderError as error:
            raise PackError(f"{self._path.name}: {error}") from error

    def _write_member(self, name: str, content: bytes, *, headers: bytes) -> Member:
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
