"""What an epoch was to deliver and what it did: expected, delivered, replaced, by cause and by shard. Pure.

Counts rows of one rank, in the main process, where all its workers' parts come together: so an account is the same for
any number of workers. The accounts of several ranks are added up by :func:`merge_accounts`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shardkit import counted
from wdsloader.errors import ConfigError, SampleError, SkipLimitError

__all__ = ["FILTERED", "LOST_SHARD", "EpochAccount", "Fault", "Tally", "causes_in_words", "merge_accounts"]

# Kinds that are counted apart from damaged samples.
FILTERED, LOST_SHARD = "filtered", "shard missing or damaged"
# So many faults are kept with all their particulars; beyond that the counts go on.
_KEPT_FAULTS = 1000
_NAMED_CAUSES = 3
# Kinds of faults as nouns that can be counted; the others read well behind any number.
_NOUNS = {
    "undecodable picture": "undecodable picture",
    "unreadable": "unreadable sample",
    "no picture": "sample without a picture/samples without a picture",
    "no label": "sample without a label/samples without a label",
    "shard missing or damaged": "of a missing or damaged shard/of missing or damaged shards",
    "stale index": "sample with a stale index/samples with a stale index",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A sample that was not delivered. ``position``: its place in the epoch; the rest as in ``SampleError``."""

    position: int
    shard: str
    key: str | None
    offset: int | None
    cause: str
    rule: str | None
    kind: str

    @classmethod
    def of(cls, error: SampleError, *, position: int) -> Fault:
        """Return the fault that an error is at a position."""
        return cls(
            position=position,
            shard=error.shard,
            key=error.key,
            offset=error.offset,
            cause=error.cause,
            rule=error.rule,
            kind=error.kind,
        )

    @property
    def label(self) -> str:
        """The kind of fault, with its rule where it has one."""
        return f"{self.kind} ({self.rule})" if self.rule else self.kind

    def __str__(self) -> str:
        return SampleError(self.shard, self.cause, key=self.key, offset=self.offset).found


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochAccount:
    """The books of one epoch on one rank, or on several.

    ``start``: the position they begin at, 0 unless the epoch was resumed in its middle. ``expected`` is ``delivered`` +
    ``replaced`` + ``filtered``. ``dropped``: samples of the tail that make no whole batch. ``by_cause`` and
    ``by_shard`` count what was replaced. ``lost_shards``: missing or damaged as a whole. ``faults``: the first 1,000,
    by position. ``complete``: whether the epoch came to its end.
    """

    epoch: int
    start: int
    expected: int
    delivered: int
    replaced: int
    filtered: int
    dropped: int
    complete: bool
    by_cause: Mapping[str, int]
    by_shard: Mapping[str, int]
    lost_shards: tuple[str, ...]
    faults: tuple[Fault, ...]

    def __str__(self) -> str:
        return self.in_words()

    def in_words(self, name: str | None = None) -> str:
        """Return the account in one line for people. Args: name: what was counted; None: "epoch 1" for ``epoch=0``."""
        since = f" from position {self.start}" if self.start else ""
        begin = f"{name or f'epoch {self.epoch + 1}'}{since}"
        text = f"{begin}: {counted(self.expected, 'sample')} expected, {self.delivered} delivered"
        if self.replaced:
            shards = counted(len(self.by_shard), "shard")
            text += f", {self.replaced} skipped ({causes_in_words(self.by_cause)}; in {shards})"
        if self.lost_shards:
            text += f", {counted(len(self.lost_shards), 'shard')} missing or damaged (first {self.lost_shards[0]})"
        if self.filtered:
            text += f", {self.filtered} filtered out"
        return text + (f", {self.dropped} of the tail dropped" if self.dropped else "")

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain values, the faults left out."""
        return {
            "epoch": self.epoch,
            "start": self.start,
            "expected": self.expected,
            "delivered": self.delivered,
            "replaced": self.replaced,
            "filtered": self.filtered,
            "dropped": self.dropped,
            "complete": self.complete,
            "by_cause": dict(self.by_cause),
            "by_shard": dict(self.by_shard),
            "lost_shards": list(self.lost_shards),
        }


@dataclass(slots=True, kw_only=True)
class Tally:
    """The open account of one epoch.

    ``limit``: as ``max_skipped``. ``epoch_samples``: of this rank, None: unknown. ``unknown_shards``: lost ones that
    nobody knows the samples of, so that none of these is expected; each counts as one for the limit.
    """

    epoch: int
    start: int
    limit: int | float
    epoch_samples: int | None
    unknown_shards: set[str] = field(default_factory=set)
    dropped: int = 0
    complete: bool = False
    _lost_shards: set[str] = field(default_factory=set)
    _expected: int = 0
    _delivered: int = 0
    _filtered: int = 0
    _by_cause: Counter[str] = field(default_factory=Counter)
    _by_shard: Counter[str] = field(default_factory=Counter)
    _faults: list[Fault] = field(default_factory=list)

    def add(self, faults: Sequence[Fault], *, delivered: int, lost: Sequence[str] = ()) -> None:
        """Count a batch. ``lost``: more unknown shards.

        Raises: SkipLimitError: more were skipped than the limit allows.
        """
        self._expected += delivered + len(faults)
        self._delivered += delivered
        for fault in faults:
            if fault.kind == FILTERED:
                self._filtered += 1
                continue
            self._by_cause[fault.label] += 1
            self._by_shard[fault.shard] += 1
            if fault.kind == LOST_SHARD:
                self._lost_shards.add(fault.shard)
            if len(self._faults) < _KEPT_FAULTS:
                self._faults.append(fault)
        self.unknown_shards.update(lost)
        self.require_within()

    @property
    def replaced(self) -> int:
        """How many samples were skipped so far."""
        return self._by_shard.total()

    def account(self) -> EpochAccount:
        """Return the account as it stands."""
        return EpochAccount(
            epoch=self.epoch,
            start=self.start,
            expected=self._expected,
            delivered=self._delivered,
            replaced=self.replaced,
            filtered=self._filtered,
            dropped=self.dropped,
            complete=self.complete,
            by_cause=dict(sorted(self._by_cause.items())),
            by_shard=dict(sorted(self._by_shard.items())),
            lost_shards=tuple(sorted(self._lost_shards | self.unknown_shards)),
            faults=tuple(self._faults),
        )

    def require_within(self) -> None:
        """Raise SkipLimitError where more were skipped than the limit allows."""
        if isinstance(self.limit, int):
            allowed, words = self.limit, f"max_skipped={self.limit}"
        else:
            # Of an epoch of unknown length: of what there has been, but not of the first few alone.
            samples = self.epoch_samples if self.epoch_samples is not None else max(self._expected, 1000)
            allowed = int(self.limit * samples)
            words = f"max_skipped={self.limit:g} of {counted(samples, 'sample')} is {allowed}"
        if self.replaced + len(self.unknown_shards) <= allowed:
            return
        lost = [f"{shard}: missing or damaged" for shard in sorted(self.unknown_shards)]
        first = "; ".join([*map(str, self._faults), *lost][:_NAMED_CAUSES])
        shards = f" and {counted(len(lost), 'shard')} of unknown length" if lost else ""
        raise SkipLimitError(
            f"{counted(self.replaced, 'sample')}{shards} of epoch {self.epoch + 1} could not be delivered, {words}. "
            f"First: {first}. Mend the shards (`wds validate` names what is wrong) or raise the limit"
        )


def causes_in_words(by_cause: Mapping[str, int]) -> str:
    """Return how many samples were skipped for which cause: ``2 undecodable pictures (WDS040)``."""
    words = []
    for cause, count in by_cause.items():
        kind, bracket, rule = cause.partition(" (")
        words.append((counted(count, _NOUNS[kind]) if kind in _NOUNS else f"{count} {kind}") + bracket + rule)
    return ", ".join(words)


def merge_accounts(accounts: Iterable[EpochAccount]) -> EpochAccount:
    """Return the account of all ranks together, from one of each.

    Raises: ConfigError: none at all, or of different epochs.
    """
    ranks = list(accounts)
    if len({(account.epoch, account.start) for account in ranks}) != 1:
        raise ConfigError("accounts to be merged must be of one epoch, one from each rank")
    by_cause: Counter[str] = Counter()
    by_shard: Counter[str] = Counter()
    for account in ranks:
        by_cause.update(account.by_cause)
        by_shard.update(account.by_shard)
    faults = sorted((fault for account in ranks for fault in account.faults), key=lambda fault: fault.position)
    return EpochAccount(
        epoch=ranks[0].epoch,
        start=ranks[0].start,
        expected=sum(account.expected for account in ranks),
        delivered=sum(account.delivered for account in ranks),
        replaced=sum(account.replaced for account in ranks),
        filtered=sum(account.filtered for account in ranks),
        dropped=sum(account.dropped for account in ranks),
        complete=all(account.complete for account in ranks),
        by_cause=dict(sorted(by_cause.items())),
        by_shard=dict(sorted(by_shard.items())),
        lost_shards=tuple(sorted({shard for account in ranks for shard in account.lost_shards})),
        faults=tuple(faults[:_KEPT_FAULTS]),
    )
