"""Every error shardkit raises. Each message says where, what, and what to do; each survives pickling."""

from __future__ import annotations

import functools

from shardkit.locations import mask_url

__all__ = [
    "ExportError",
    "IndexFileError",
    "ManifestError",
    "OutputExistsError",
    "PackError",
    "PatternError",
    "PictureError",
    "PlanFileError",
    "RemoteChangedError",
    "RemoteError",
    "ReportError",
    "ShardReadError",
    "ShardkitError",
    "SourceError",
    "TableError",
    "UnfinishedPackingError",
    "UnknownRuleError",
    "UnusableSourcesError",
    "WorkerDiedError",
    "counted",
    "message_naming",
    "printable",
]


def counted(number: int, noun: str, *, spec: str = "") -> str:
    """Return the number and its noun: ``1 shard``, ``2 shards``.

    Args: noun: in the singular; with another plural than by ``s``, or a verb, as ``class has/classes have``. spec: of
        the number, such as ``,``.
    """
    one, _, more = noun.partition("/")
    return f"{number:{spec}} {one if number == 1 else more or one + 's'}"


def printable(name: str) -> str:
    """Return the name as valid, visible text: bytes that are not UTF-8 and control characters are escaped."""
    return name if name.isprintable() else "".join(c if c.isprintable() else _escaped(c) for c in name)


def message_naming(shard: str, error: Exception) -> str:
    """Return the message of an error that came with a shard; the system's own may not say which one it was."""
    if isinstance(error, OSError) and not isinstance(error, ShardkitError) and error.strerror:
        return f"{printable(mask_url(shard))}: {error.strerror}"
    return str(error)


class ShardkitError(Exception):
    """Base of every error of this package."""


class PatternError(ShardkitError, ValueError):
    """A shard pattern that cannot be expanded, or matches nothing."""


class IndexFileError(ShardkitError, ValueError):
    """An index file that cannot be read, or does not belong to its shard."""


class ManifestError(ShardkitError, ValueError):
    """A manifest file that cannot be read, or contradicts its shards."""


class TableError(ShardkitError, ValueError):
    """A table of samples that cannot be written or read."""


class ExportError(ShardkitError, ValueError):
    """An index that another tool's format cannot hold."""


class PackError(ShardkitError):
    """Shards that cannot be made as asked."""


class OutputExistsError(PackError):
    """Output that is already there and was not to be overwritten."""


class UnfinishedPackingError(OutputExistsError):
    """A packing of the same plan lies there that was not finished: it can be resumed."""


class PlanFileError(PackError):
    """A plan file that cannot be read, or whose source is gone or another by now."""


class SourceError(PackError):
    """A source that cannot be packed: its name, and why."""

    def __init__(self, origin: str, reason: str) -> None:
        super().__init__(origin, reason)
        self.origin = origin
        self.reason = reason

    def __str__(self) -> str:
        return f"{printable(self.origin)}: {self.reason}"


class UnusableSourcesError(PackError):
    """Sources that cannot be packed, all of them named; nothing was packed."""


class UnknownRuleError(ShardkitError, ValueError):
    """A rule id that no rule has."""


class RemoteError(ShardkitError, OSError):
    """A shard elsewhere that cannot be read: its location, shown without secrets, and why.

    Attributes: location; reason; status: of HTTP, also where a store says the same in its own way; None without one.
    """

    def __init__(self, location: str, reason: str, *, status: int | None = None) -> None:
        super().__init__(location, reason)
        self.location = location
        self.reason = self.strerror = reason
        self.status = status

    def __str__(self) -> str:
        return f"{printable(mask_url(self.location))}: {self.reason}"

    def __reduce__(self) -> tuple[object, ...]:
        return functools.partial(type(self), self.location, self.reason, status=self.status), ()


class RemoteChangedError(RemoteError):
    """A shard elsewhere that is not the one it was when reading began."""


class WorkerDiedError(ShardkitError):
    """A process that did part of the work was killed."""


class PictureError(ShardkitError, ValueError):
    """A picture that cannot be decoded whole, with the rule it breaks."""

    def __init__(self, reason: str, rule: str = "WDS040") -> None:
        super().__init__(reason, rule)
        self.reason = reason
        self.rule = rule

    def __str__(self) -> str:
        return self.reason


class ReportError(ShardkitError):
    """A report or a contact sheet that cannot be made."""


class ShardReadError(ShardkitError, OSError):
    """Bytes of a shard that cannot be read as a tar of whole samples.

    Attributes: shard; member (None: no member concerned); offset in bytes from the start of the tar; rule id; remedy.
    """

    def __init__(
        self,
        shard: str,
        reason: str,
        *,
        rule: str,
        member: str | None = None,
        offset: int | None = None,
        remedy: str = "",
    ) -> None:
        where = "" if member is None else f" '{printable(member)}'"
        where += "" if offset is None else f" at byte {offset}"
        advice = f". {remedy}" if remedy else ""
        super().__init__(f"{printable(mask_url(shard))}:{where}{':' if where else ''} {reason} ({rule}){advice}")
        self.shard = shard
        self.reason = reason
        self.rule = rule
        self.member = member
        self.offset = offset
        self.remedy = remedy

    def __reduce__(self) -> tuple[object, ...]:
        build = functools.partial(
            ShardReadError,
            self.shard,
            self.reason,
            rule=self.rule,
            member=self.member,
            offset=self.offset,
            remedy=self.remedy,
        )
        return build, ()


def _escaped(character: str) -> str:
    # Python keeps a byte that is not UTF-8 as one of these surrogates (PEP 383).
    code = ord(character)
    return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else character.encode("unicode_escape").decode()
