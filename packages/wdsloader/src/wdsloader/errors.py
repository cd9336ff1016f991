"""Every error wdsloader raises. Each message says where, what, and what to do; each survives pickling.

Errors cross process boundaries (a worker raises, the main process reports), so each can be rebuilt from its arguments.
"""

from __future__ import annotations

import functools

__all__ = [
    "ConfigError",
    "DatasetError",
    "FetchError",
    "NoLengthError",
    "SampleError",
    "SkipLimitError",
    "TransformError",
    "WdsloaderError",
    "WorkerError",
]


_MEND_OR_SKIP = (
    'Mend the shard (wds repair), or pass over such samples: on_error="skip" with max_skipped '
    "(--on-error skip --max-skipped N)"
)


class WdsloaderError(Exception):
    """Base of every error of this package."""


class ConfigError(WdsloaderError, ValueError):
    """Settings, or a saved state, that do not fit together or do not fit the data."""


class DatasetError(WdsloaderError):
    """Shards that make no dataset: missing, contradicting their manifest, or without the counts that were asked for."""


class FetchError(WdsloaderError, OSError):
    """A remote file that could not be brought here whole. The message names the URL, its secrets masked.

    Attributes: url (masked); status (the HTTP status, None where there was none).
    """

    def __init__(self, url: str, reason: str, *, status: int | None = None) -> None:
        super().__init__(f"{url}: {reason}")
        self.url = url
        self.reason = reason
        self.status = status

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_fetch_error, (self.url, self.reason, self.status)


class SampleError(WdsloaderError):
    """One sample that cannot be delivered.

    Attributes: shard; key (None where it is not known); offset in bytes from the start of the shard (or None); cause;
    rule (its id as ``wds validate`` has it, or None); kind: a few words that are the same for all errors of this kind;
    found: the message without what to do.
    """

    def __init__(
        self,
        shard: str,
        cause: str,
        *,
        key: str | None = None,
        offset: int | None = None,
        rule: str | None = None,
        kind: str = "unreadable",
    ) -> None:
        name = "" if key is None else f" '{key}'"
        place = "" if offset is None else f" at byte {offset}"
        found = f"{shard}:{name}{place}{':' if name or place else ''} {cause}"
        # The cause of a stale index says what to do itself.
        super().__init__(found if kind == "stale index" else f"{found}. {_MEND_OR_SKIP}")
        self.found = found
        self.shard = shard
        self.key = key
        self.offset = offset
        self.cause = cause
        self.rule = rule
        self.kind = kind

    def __reduce__(self) -> tuple[object, ...]:
        build = functools.partial(
            SampleError,
            self.shard,
            self.cause,
            key=self.key,
            offset=self.offset,
            rule=self.rule,
            kind=self.kind,
        )
        return build, ()


class SkipLimitError(WdsloaderError):
    """More samples could not be delivered than ``max_skipped`` allows: the limit, the count, the first causes."""


class TransformError(WdsloaderError):
    """A ``keep`` or ``transform`` of the user's that failed, on which sample; its notes have the traceback."""


class WorkerError(WdsloaderError):
    """A worker process that died, or failed in a way that is none of the data's: see its notes for the traceback."""


class NoLengthError(WdsloaderError, TypeError):
    """The number of batches is not known. A ``TypeError``, so that ``list(loader)`` still works."""


def _rebuild_fetch_error(url: str, reason: str, status: int | None) -> FetchError:  # noqa: PLR0917  # pickle's way
    return FetchError(url, reason, status=status)
