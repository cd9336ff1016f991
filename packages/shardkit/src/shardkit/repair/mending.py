"""The plan of a repair: which members make up whole samples, in which order, and what becomes of all others.

Owns the decisions (regroup, unlink, doubles, what is dropped and why). Reads contents to judge them, by the rules that
validation uses; writes nothing. Holds a few hundred bytes a member and one sample's contents.
"""

from __future__ import annotations

import bisect
import posixpath
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from shardkit.errors import printable
from shardkit.keys import LABEL_EXTENSION, SampleKey, is_hidden, picture_extension, split_name
from shardkit.repair.judgement import Flaw, Judge, Piece, has_all
from shardkit.repair.salvage import Salvage
from shardkit.tar.walk import Member

__all__ = ["Action", "Change", "Doubles", "Dropped", "MendedSample", "Mending", "plan_mending"]

Action = Literal[
    "quarantined", "left out", "dropped", "renamed", "regrouped", "unlinked", "ended", "joined", "unpacked"
]
Doubles = Literal["drop", "rename"]
# A link to a link to a link: more are an attack.
_MAX_LINKS = 8
# What may have taken a part of a sample beside it.
_DAMAGE = ("WDS002", "WDS003")
# Parts of one key are joined over so many doubles of it; an attack has thousands, and those are set aside.
_MAX_VERSIONS = 100
# The first size that a plain header cannot say.
MAX_MEMBER_BYTES = 8**11


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that a repair does: to a member, at its byte in the (unpacked) shard, by which rule, and why."""

    action: Action
    rule: str
    message: str
    member: str | None = None
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class Dropped:
    """Bytes for the quarantine: a member's content, or with ``raw`` its headers too, or bytes that are no member."""

    name: str
    offset: int
    size: int
    change: Change
    raw: bool = False


@dataclass(slots=True)
class MendedSample:
    """A sample put together: its key, its pieces in order, and in how many places they stood."""

    key: str
    pieces: list[Piece]
    places: int = 1

    @property
    def offset(self) -> int:
        """The byte of its first header, which decides the order."""
        return self.pieces[0].header_offset

    @property
    def extensions(self) -> set[str]:
        """The extensions of its pieces."""
        return {piece.extension for piece in self.pieces}

    @property
    def picture(self) -> str | None:
        """The extension that holds its picture."""
        return picture_extension(self.extensions)


@dataclass(slots=True)
class Mending:
    """What a repair would do: the samples to write, the changes in the order of the file, and what is dropped."""

    samples: list[MendedSample] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)

    def drop(
        self,
        piece: Piece | Member,
        *,
        rule: str,
        reason: str,
        raw: bool = False,
        action: Action = "quarantined",
    ) -> None:
        """Send a member to the quarantine."""
        change = Change(action, rule, reason, piece.name, piece.header_offset)
        start = piece.header_offset if raw else piece.offset
        self.dropped.append(Dropped(piece.name, start, piece.offset + piece.size - start, change, raw=raw))
        self.changes.append(change)


def plan_mending(found: Salvage, *, judge: Judge, doubles: Doubles) -> Mending:
    """Decide what becomes of everything that was found; every member is in a sample, dropped, or told as a double.

    Args: doubles: what becomes of a whole sample whose key is taken and whose bytes differ: quarantine or a new key.
    """
    plan = Mending()
    for debris in found.debris:
        name = debris.member or f"bytes-from-{debris.offset}"
        change = Change("quarantined", debris.rule, debris.reason, debris.member, debris.offset)
        plan.dropped.append(Dropped(name, debris.offset, debris.size, change, raw=True))
        plan.changes.append(change)
    if found.members and not found.zero_blocks:
        plan.changes.append(Change("ended", "WDS005", "the end marker is missing"))
    elif found.zero_blocks == 1:
        plan.changes.append(Change("ended", "WDS013", "the end marker is one zero block, not two"))
    if found.members and found.members[-1][0] > 0:
        archives = len({number for number, _ in found.members})
        plan.changes.append(Change("joined", "WDS007", f"{archives} archives in one file become one"))
    by_key: dict[SampleKey, list[MendedSample]] = {}
    for key, versions in _versions(_candidates(found, plan)):
        by_key.setdefault(key, []).extend(versions)
    taken = _TakenKeys(by_key)
    for versions in by_key.values():
        _settle(plan, versions, judge=judge, doubles=doubles, taken=taken)
    plan.samples.sort(key=lambda sample: sample.offset)
    _settle_cut(plan, found)
    _settle_case(plan, doubles=doubles, taken=taken)
    plan.changes.sort(key=lambda change: -1 if change.offset is None else change.offset)
    plan.dropped.sort(key=lambda dropped: dropped.offset)
    return plan


def _candidates(found: Salvage, plan: Mending) -> Iterator[tuple[int, SampleKey, Piece]]:
    """Yield (archive, key, piece) of all that can be part of a sample; drop the others."""
    linked = _Links(found.members)
    for archive, member in found.members:
        target = member
        if "link" in member.kind:
            resolved = linked.resolve(archive, member)
            if resolved is None:
                reason = f"a {member.kind} to '{printable(member.linkname)}', which is not in the shard"
                plan.drop(member, rule="WDS010", reason=reason, raw=True)
                continue
            target = resolved
        elif member.kind == "folder":
            plan.drop(member, rule="WDS025", reason="the entry of a folder", raw=True, action="left out")
            continue
        elif member.kind != "file":
            plan.drop(member, rule="WDS011", reason=f"a {member.kind}", raw=True)
            continue
        if target.size >= MAX_MEMBER_BYTES:
            plan.drop(member, rule="WDS025", reason="8 GiB or more, which plain tar headers cannot say", raw=True)
            continue
        split = split_name(member.name)
        if split is None:
            hidden = is_hidden(member.name)
            reason = "a hidden member" if hidden else "belongs to no sample"
            plan.drop(member, rule="WDS023" if hidden else "WDS025", reason=reason, raw=target is not member)
            continue
        if target is not member:
            message = f"a {member.kind} to '{printable(member.linkname)}' becomes its bytes"
            plan.changes.append(Change("unlinked", "WDS010", message, member.name, member.header_offset))
        yield archive, split[0], Piece(member.name, split[1], member.header_offset, target.offset, target.size)


class _Links:
    """The files of a shard by name, for the links in it. Nothing outside the shard is ever looked at."""

    def __init__(self, members: Sequence[tuple[int, Member]]) -> None:
        self._named: dict[tuple[int, str], list[Member]] = {}
        # A shard without links pays nothing.
        if any("link" in member.kind for _, member in members):
            for archive, member in members:
                self._named.setdefault((archive, posixpath.normpath(member.name)), []).append(member)

    def resolve(self, archive: int, link: Member) -> Member | None:
        """Return the file that a link stands for, None where the shard does not have it."""
        member = link
        for _ in range(_MAX_LINKS):
            name = member.linkname
            if member.kind == "symbolic link":
                if name.startswith("/"):
                    return None
                name = posixpath.join(posixpath.dirname(member.name), name)
            targets = self._named.get((archive, posixpath.normpath(name)), [])
            # The one that unpacking would find: the last of that name before the link.
            before = [target for target in targets if target.header_offset < member.header_offset]
            target = before[-1] if before else next(iter(targets), None)
            if target is None or target.kind == "file":
                return target
            if "link" not in target.kind:
                return None
            member = target
        return None


def _versions(candidates: Iterable[tuple[int, SampleKey, Piece]]) -> Iterator[tuple[SampleKey, list[MendedSample]]]:
    """Put the pieces of each archive together by key, in several versions where names come twice.

    Pieces of different archives in one file are never joined: they were different shards.
    """
    archive, places = 0, list[tuple[SampleKey, list[Piece]]]()
    for number, key, piece in candidates:
        if number != archive:
            yield from _regrouped(places)
            archive, places = number, []
        if places and places[-1][0] == key:
            places[-1][1].append(piece)
        else:
            places.append((key, [piece]))
    yield from _regrouped(places)


def _regrouped(places: Sequence[tuple[SampleKey, list[Piece]]]) -> Iterator[tuple[SampleKey, list[MendedSample]]]:
    """Join the places where parts of one key stand, as long as no name comes twice."""
    by_key: dict[SampleKey, list[MendedSample]] = {}
    for key, pieces in places:
        versions = by_key.setdefault(key, [])
        for part in _parted(key, pieces):
            near = versions[:_MAX_VERSIONS]
            home = next((version for version in near if not version.extensions & part.extensions), None)
            if home is None:
                versions.append(part)
            else:
                home.pieces += part.pieces
                home.places += 1
    yield from by_key.items()


def _parted(key: SampleKey, pieces: Sequence[Piece]) -> list[MendedSample]:
    """Cut neighbours of one key where a name comes again: behind a whole sample a new one begins, else one is spare."""
    parts = [MendedSample(key, [pieces[0]])]
    spare: list[MendedSample] = []
    for piece in pieces[1:]:
        if piece.extension not in parts[-1].extensions:
            parts[-1].pieces.append(piece)
        elif has_all(parts[-1].extensions):
            parts.append(MendedSample(key, [piece]))
        else:
            spare.append(MendedSample(key, [piece]))
    return parts + spare


class _TakenKeys:
    """The keys of a shard in whatever case, and which number to try next for each."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._folded = {key.casefold() for key in keys}
        self._numbers: dict[str, int] = {}

    def free_key(self, key: str) -> str:
        """Return ``KEY_2``, ``KEY_3`` and so on, the first that is not taken; it is from then on."""
        name = key
        while name.casefold() in self._folded:
            self._numbers[key] = self._numbers.get(key, 1) + 1
            name = f"{key}_{self._numbers[key]}"
        self._folded.add(name.casefold())
        return name


def _settle(
    plan: Mending, versions: Sequence[MendedSample], *, judge: Judge, doubles: Doubles, taken: _TakenKeys
) -> None:
    """Keep the first good version of a key, and what is a good sample under a new key, if told; drop the others."""
    flaws = [_judged(plan, version, judge=judge) for version in versions]
    winner = next((version for version, found in zip(versions, flaws, strict=True) if not found), None)
    for version, found in zip(versions, flaws, strict=True):
        if version is winner:
            _keep(plan, version)
        elif winner is None:
            for piece in version.pieces:
                plan.drop(piece, rule=found[0].rule, reason=_about(found[0], piece))
        else:
            as_new = doubles == "rename" and not found
            _settle_double(plan, version, winner=winner, judge=judge, taken=taken if as_new else None)


def _judged(plan: Mending, version: MendedSample, *, judge: Judge) -> list[Flaw]:
    """Return what is wrong with a version; members that it can do without are dropped, if only they are wrong."""
    while True:
        flaws = judge.flaws(version.pieces)
        pictured = version.picture
        extras = {
            piece.header_offset: piece
            for piece in version.pieces
            if piece.extension not in (LABEL_EXTENSION, pictured) and has_all(version.extensions)
        }
        wrong = next((flaw for flaw in flaws if flaw.header_offset in extras), None)
        if wrong is None or wrong.header_offset is None:
            return flaws
        extra = extras[wrong.header_offset]
        version.pieces.remove(extra)
        plan.drop(extra, rule=wrong.rule, reason=wrong.reason)


def _keep(plan: Mending, version: MendedSample) -> None:
    plan.samples.append(version)
    if version.places > 1:
        message = f"the parts of '{printable(version.key)}' stood in {version.places} places"
        plan.changes.append(Change("regrouped", "WDS020", message, version.key, version.offset))


def _settle_double(
    plan: Mending, version: MendedSample, *, winner: MendedSample, judge: Judge, taken: _TakenKeys | None
) -> None:
    """Tell of what the winner has too, byte by byte; the rest gets a key that is not ``taken``, or is dropped."""
    kept = {piece.extension: piece for piece in winner.pieces}
    same = [
        piece for piece in version.pieces if piece.extension in kept and judge.are_equal(piece, kept[piece.extension])
    ]
    if taken is not None and len(same) < len(version.pieces):
        _rename(plan, version, rule="WDS004", taken=taken)
        _keep(plan, version)
        return
    for piece in version.pieces:
        twin = kept.get(piece.extension)
        if piece in same and twin is not None:
            message = f"the same bytes as the member of this name at byte {twin.header_offset}, which is kept"
            plan.changes.append(Change("dropped", "WDS004", message, piece.name, piece.header_offset))
            continue
        at = winner.offset if twin is None else twin.header_offset
        reason = (
            f"other bytes than the {'sample' if twin is None else 'member'} of this name at byte {at}, which is kept"
        )
        plan.drop(piece, rule="WDS004", reason=reason)


def _rename(plan: Mending, sample: MendedSample, *, rule: str, taken: _TakenKeys) -> None:
    """Give a sample the first free key: ``KEY_2``, ``KEY_3`` and so on; no other has it, in whatever case."""
    old = sample.key
    key = taken.free_key(old)
    message = f"'{printable(old)}' is taken by another sample: now '{printable(key)}'"
    plan.changes.append(Change("renamed", rule, message, old, sample.offset))
    sample.key = key
    sample.pieces = [replace(piece, name=key + piece.name[len(old) :]) for piece in sample.pieces]


def _settle_cut(plan: Mending, found: Salvage) -> None:
    """Drop samples at the edge of damage that lack what all others have: the damage may have taken it."""
    edges = [debris.offset for debris in found.debris if debris.rule in _DAMAGE]
    if not found.zero_blocks:
        edges.append(found.num_bytes)
    at_edge: set[int] = set()
    offsets = [sample.offset for sample in plan.samples]
    for edge in edges:
        behind = bisect.bisect(offsets, edge)
        at_edge.update(range(max(behind - 1, 0), min(behind + 1, len(offsets))))
    others = [_fields(sample) for number, sample in enumerate(plan.samples) if number not in at_edge]
    usual = set.intersection(*others) if others else set()
    kept = []
    for number, sample in enumerate(plan.samples):
        missing = usual - _fields(sample) if number in at_edge else set()
        if not missing:
            kept.append(sample)
            continue
        reason = f"its sample lacks {', '.join(sorted(missing))}, which all others have: lost in the damage beside it"
        for piece in sample.pieces:
            plan.drop(piece, rule="WDS002", reason=printable(reason))
    plan.samples = kept


def _fields(sample: MendedSample) -> set[str]:
    """Return the extensions, one word for any kind of picture."""
    return {"a picture" if extension == sample.picture else extension for extension in sample.extensions}


def _settle_case(plan: Mending, *, doubles: Doubles, taken: _TakenKeys) -> None:
    """Drop or rename samples whose keys differ from that of an earlier one in case alone."""
    first: dict[str, MendedSample] = {}
    kept = []
    for sample in plan.samples:
        other = first.setdefault(sample.key.casefold(), sample)
        if other is not sample and doubles == "drop":
            for piece in sample.pieces:
                plan.drop(piece, rule="WDS028", reason=f"differs from '{printable(other.key)}' in case alone")
            continue
        if other is not sample:
            _rename(plan, sample, rule="WDS028", taken=taken)
        kept.append(sample)
    plan.samples = kept


def _about(flaw: Flaw, piece: Piece) -> str:
    """Say why a piece is dropped: for its own fault, or for that of another piece of its sample."""
    return flaw.reason if flaw.header_offset in (None, piece.header_offset) else f"its sample: {flaw.reason}"
