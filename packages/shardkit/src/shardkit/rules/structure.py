"""Rules on the bytes of a shard: headers, lengths, end marker, kinds of members. WDS00x and WDS01x."""

from __future__ import annotations

from collections.abc import Iterator

from shardkit.errors import printable
from shardkit.rules.rule import Check, Hit, rule
from shardkit.scan import ShardScan

__all__: list[str] = []


def _damage(rule_id: str) -> Check:
    """Return a check that hands on the damage which the walk recorded under this rule."""

    def check(scan: ShardScan) -> Iterator[Hit]:
        for error in scan.damage:
            if error.rule == rule_id:
                advice = f". {error.remedy}" if rule_id == "WDS001" else ""
                yield Hit(error.reason + advice, error.member, error.offset)

    return check


rule(
    "WDS001",
    "error",
    effect="The run stops when it comes to this shard.",
    remedy="See what wrote the file, and fetch or pack it again",
)(_damage("WDS001"))
rule(
    "WDS002",
    "error",
    effect="The samples behind the cut are gone; a careless reader trains on the rest.",
    remedy="Fetch or pack the shard again",
)(_damage("WDS002"))
rule(
    "WDS003",
    "error",
    effect="All samples behind the damaged header are lost to most readers.",
    remedy="Fetch or pack the shard again",
)(_damage("WDS003"))


@rule(
    "WDS004",
    "error",
    effect="Which of the two is used differs between readers; webdataset ends the shard.",
    remedy="Rename one of them or pack the shard again",
)
def duplicate_member(scan: ShardScan) -> Iterator[Hit]:
    """A sample holds a member of one name twice."""
    for sample in scan.samples.values():
        first: dict[str, int] = {}
        for part in sample.parts:
            if part.extension in first:
                message = f"duplicate member name, first at byte {first[part.extension]}"
                yield Hit(message, part.name, part.header_offset)
            first.setdefault(part.extension, part.header_offset)


@rule(
    "WDS005",
    "error",
    effect="A shard cut between two members looks whole: its other samples vanish without a word.",
    remedy="Compare the count with what was packed; fetch or pack the shard again",
)
def end_marker_missing(scan: ShardScan) -> Iterator[Hit]:
    """The end-of-archive marker is not there."""
    if scan.ending is not None and not scan.ending.zero_blocks:
        recorded = scan.expected.record
        if recorded is None or recorded.num_samples != len(scan.samples):
            yield Hit(f"{len(scan.samples)} samples, end-of-archive marker missing: the file may be cut")


@rule(
    "WDS006",
    "warning",
    effect="Readers that stop at the end marker never see them; others fail on them.",
    remedy="Cut the file off at that byte, or pack the shard again",
)
def data_after_end(scan: ShardScan) -> Iterator[Hit]:
    """Bytes that are not zeros follow the end marker."""
    if scan.ending is not None and scan.ending.trailing_bytes:
        message = f"{scan.ending.trailing_bytes} bytes after the end marker that are not zeros"
        yield Hit(message, offset=scan.ending.trailing_offset)


@rule(
    "WDS007",
    "error",
    effect="Readers stop at the first end marker: the samples behind it are never seen.",
    remedy="Split the file at that byte, or pack it again",
)
def another_archive(scan: ShardScan) -> Iterator[Hit]:
    """Further archives follow in the same file, as `cat a.tar b.tar` makes them."""
    for offset, num_samples in scan.following:
        message = f"{len(scan.samples)} samples, then another archive at byte {offset} with {num_samples} more"
        yield Hit(message, offset=offset)


rule(
    "WDS008", "error", effect="The run stops at this shard, or a worker has no data.", remedy="Fetch or pack it again"
)(_damage("WDS008"))


@rule("WDS009", "warning", effect="A reader that gets only this shard has nothing to do.", remedy="Leave it out")
def no_samples(scan: ShardScan) -> Iterator[Hit]:
    """A whole tar without a sample."""
    if not scan.samples and not scan.damage:
        yield Hit("0 samples")


@rule(
    "WDS010",
    "error",
    effect="The sample has no picture or no label, and is dropped without a word.",
    remedy="Pack with the files' bytes (tar --dereference --hard-dereference, or wds make-shards)",
)
def link(scan: ShardScan) -> Iterator[Hit]:
    """A link stands where a file's bytes should be."""
    for member in scan.special:
        if "link" in member.kind:
            yield Hit(f"a {member.kind} to '{printable(member.linkname)}'", member.name, member.header_offset)


@rule("WDS011", "warning", effect="Readers pass over it, or stop.", remedy="Leave it out when packing")
def special_member(scan: ShardScan) -> Iterator[Hit]:
    """A device, fifo, sparse file or member of an unknown kind."""
    for member in scan.special:
        if member.kind in ("device", "fifo", "sparse file", "unknown"):
            yield Hit(f"a {member.kind}", member.name, member.header_offset)


@rule(
    "WDS012",
    "note",
    effect="Samples cannot be read at an offset: exact order and resume need a plain tar.",
    remedy="Unpack it with gunzip",
)
def gzip_shard(scan: ShardScan) -> Iterator[Hit]:
    """The shard is compressed as a whole."""
    if scan.compressed:
        yield Hit("gzip: random access will be slow")


@rule("WDS013", "note", effect="Some strict readers complain.", remedy="Nothing to do, or pack the shard again")
def short_end_marker(scan: ShardScan) -> Iterator[Hit]:
    """The end marker has one zero block instead of two."""
    if scan.ending is not None and scan.ending.zero_blocks == 1:
        yield Hit("the end marker is one zero block, not two")
