"""Rules on the bytes of a shard: headers, lengths, end marker, kinds of members, gzip. WDS00x and WDS01x."""

from __future__ import annotations

from collections.abc import Iterator

from shardkit.check.rules.rule import Check, Hit, declare, more_of, rule
from shardkit.check.scan import ShardScan
from shardkit.errors import counted, printable

__all__: list[str] = []


def _damage(rule_id: str) -> Check:
    """Return a check that hands on the damage which the walk recorded under this rule."""

    def check(scan: ShardScan) -> Iterator[Hit]:
        kept = [error for error in scan.damage if error.rule == rule_id]
        for error in kept:
            advice = f". {error.remedy}" if rule_id == "WDS001" else ""
            yield Hit(error.reason + advice, error.member, error.offset)
        more = scan.damage_counts[rule_id] - len(kept)
        if more > 0:
            yield Hit(f"{more} more such places, from byte {kept[-1].offset} on")

    return check


declare(
    "WDS001",
    "error",
    title="The file is no tar.",
    effect="The run stops when it comes to this shard.",
    remedy="See what wrote the file, and fetch or pack it again",
    explanation="The first 512 bytes are no tar header. What the file is instead is told by its content: a sign-in or "
    "error page, a Git LFS pointer, a picture, an archive of another kind, or log text in front of a tar.",
    check=_damage("WDS001"),
)
declare(
    "WDS002",
    "error",
    title="The shard is cut.",
    effect="The samples behind the cut are gone; a careless reader trains on the rest.",
    remedy="Fetch or pack the shard again; wds repair keeps the whole samples",
    explanation="The bytes end within a member, within a header, or before gzip's own end, or gzip's checksum is "
    "wrong. Downloads that broke off and writers that were killed leave such files.",
    check=_damage("WDS002"),
)
declare(
    "WDS003",
    "error",
    title="A header is damaged.",
    effect="All samples behind the damaged header are lost to most readers.",
    remedy="Fetch or pack the shard again; wds repair keeps the whole samples",
    explanation="A header's checksum is wrong, a number in it is none or negative, or its size leads beyond the end "
    "of the file although more headers follow. Checking goes on at the next whole header.",
    check=_damage("WDS003"),
)


@rule(
    "WDS004",
    "error",
    effect="Which of the two is used differs between readers; webdataset ends the shard.",
    remedy="Rename one of them or pack the shard again",
    explanation="Two members of one sample have the same name, upper and lower case of the extension apart. Appending "
    "to a tar a second time, or packing two folders into one, makes such shards.",
)
def duplicate_member(scan: ShardScan) -> Iterator[Hit]:
    """A sample holds a member of one name twice."""
    if not scan.num_apart and all(len(set(shape)) == len(shape) for shape in scan.shapes):
        return
    for sample in scan.samples.values():
        if len(sample.extensions) == len(sample.parts):
            continue
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
    remedy="Compare the count with what was packed; fetch or pack the shard again, or pass --no-marker-needed",
    explanation="A tar ends with two blocks of zeros, which are not there. Nothing inside the file tells a shard that "
    "was cut between two members from one whose writer left the marker out. A manifest with the same number of "
    "samples, or --no-marker-needed, clears it.",
)
def end_marker_missing(scan: ShardScan) -> Iterator[Hit]:
    """The end-of-archive marker is not there."""
    if scan.ending is not None and not scan.ending.zero_blocks and scan.expected.end_marker:
        recorded = scan.expected.record
        if recorded is None or recorded.num_samples != len(scan.samples):
            yield Hit(f"{counted(len(scan.samples), 'sample')}, end-of-archive marker missing: the file may be cut")


@rule(
    "WDS006",
    "warning",
    effect="Readers that stop at the end marker never see them; others fail on them.",
    remedy="Cut the file off at that byte, or pack the shard again",
    explanation="Bytes other than zeros follow the end marker, and they are no archive: log text of a command, mostly.",
)
def data_after_end(scan: ShardScan) -> Iterator[Hit]:
    """Bytes that are not zeros follow the end marker."""
    if scan.ending is not None and scan.ending.trailing_bytes:
        number = scan.ending.trailing_bytes
        noun = "byte after the end marker that is not zero/bytes after the end marker that are not zeros"
        yield Hit(counted(number, noun), offset=scan.ending.trailing_offset)


@rule(
    "WDS007",
    "error",
    effect="Readers stop at the first end marker: the samples behind it are never seen.",
    remedy="Split the file at that byte, or pack it again",
    explanation="Behind the end marker another tar begins, as `cat a.tar b.tar` makes it. Its samples are counted, "
    "not checked.",
)
def another_archive(scan: ShardScan) -> Iterator[Hit]:
    """Further archives follow in the same file, as `cat a.tar b.tar` makes them."""
    for offset, num_samples in scan.following:
        message = (
            f"{counted(len(scan.samples), 'sample')}, then another archive at byte {offset} with {num_samples} more"
        )
        yield Hit(message, offset=offset)
    if scan.following.num_seen > len(scan.following):
        yield Hit(f"{scan.following.num_seen - len(scan.following)} more archives follow")


declare(
    "WDS008",
    "error",
    title="The file is empty.",
    effect="The run stops at this shard, or a worker has no data.",
    remedy="Fetch or pack it again",
    explanation="The file has no bytes at all. A whole tar without members has at least 1024: that is WDS009.",
    check=_damage("WDS008"),
)


@rule(
    "WDS009",
    "warning",
    effect="A reader that gets only this shard has nothing to do.",
    remedy="Leave it out",
    explanation="The tar is whole and holds no sample: packing more shards than there are pictures makes such files.",
)
def no_samples(scan: ShardScan) -> Iterator[Hit]:
    """A whole tar without a sample."""
    if not scan.samples and not scan.damage_counts:
        yield Hit("0 samples")


@rule(
    "WDS010",
    "error",
    effect="The sample has no picture or no label, and is dropped without a word.",
    remedy="Pack with the files' bytes (tar --dereference --hard-dereference, or wds make-shards)",
    explanation="Plain tar stores a file that it saw before as a hard link, and a symbolic link as that. Readers of "
    "shards follow neither. No link is followed here.",
)
def link(scan: ShardScan) -> Iterator[Hit]:
    """A link stands where a file's bytes should be."""
    for member in scan.links:
        yield Hit(f"a {member.kind} to '{printable(member.linkname)}'", member.name, member.header_offset)
    yield from more_of(scan.links)


@rule(
    "WDS011",
    "warning",
    effect="Readers pass over it, or stop.",
    remedy="Leave it out when packing",
    explanation="The member is no file: a device, a fifo, a sparse file, or of a kind that this reader does not know. "
    "None is opened or made here.",
)
def special_member(scan: ShardScan) -> Iterator[Hit]:
    """A device, fifo, sparse file or member of an unknown kind."""
    for member in scan.devices:
        yield Hit(f"a {member.kind}", member.name, member.header_offset)
    yield from more_of(scan.devices)


@rule(
    "WDS012",
    "note",
    effect="Samples cannot be read at an offset: exact order and resume need a plain tar.",
    remedy="Unpack it with gunzip",
    explanation="The file is gzip, whatever its name. Reading forward works; reading one sample needs all before it.",
)
def gzip_shard(scan: ShardScan) -> Iterator[Hit]:
    """The shard is compressed as a whole."""
    if scan.compressed:
        yield Hit("gzip: random access will be slow")


@rule(
    "WDS013",
    "note",
    effect="Some strict readers complain.",
    remedy="Nothing to do, or pack the shard again",
    explanation="The end marker should be two blocks of zeros; some writers make one.",
)
def short_end_marker(scan: ShardScan) -> Iterator[Hit]:
    """The end marker has one zero block instead of two."""
    if scan.ending is not None and scan.ending.zero_blocks == 1:
        yield Hit("the end marker is one zero block, not two")


declare(
    "WDS014",
    "error",
    title="The gzip file unpacks to far more than pictures do.",
    effect="Unpacking it fills the disk or the memory, or takes for ever.",
    remedy="See who made the file; if it is right as it is, raise --max-unpack-ratio",
    explanation="A gzip file or stream unpacked to more than 256 MiB and to more than --max-unpack-ratio times its "
    "packed bytes (100; shards of pictures have 1.0 to 1.1). It was read no further, so what follows was not checked.",
    check=_damage("WDS014"),
)


declare(
    "WDS016",
    "error",
    title="The shard is too large to be checked.",
    effect="Tools that list a shard's samples in memory fail on it, as indexing it may.",
    remedy="Split it into shards of fewer samples",
    explanation="The names and places of its members would fill more than 3 GiB of memory: more than three million "
    "members, or very long names. It was read no further, so what follows was not checked.",
    check=_damage("WDS016"),
)


declare(
    "WDS017",
    "error",
    title="The shard does not end.",
    effect="Readers that go on to the last byte never come back.",
    remedy="Name a file, or a stream that ends",
    explanation="More than 256 MiB that are no archive follow the end marker or a damaged header, in a device, a pipe "
    "or a stream whose length nobody knows: `/dev/zero` goes on for ever. It was read no further. A file may be padded "
    "to any length.",
    check=_damage("WDS017"),
)


@rule(
    "WDS015",
    "note",
    effect="A reader that knows one member only stops at its end and never sees the rest.",
    remedy="Pack it as one gzip member, or unpack it with gunzip",
    explanation="gzip files can be joined, as bgzip and `cat a.gz b.gz` do; Python, gunzip and most others read on, "
    "some browsers and libraries do not.",
)
def several_gzip_members(scan: ShardScan) -> Iterator[Hit]:
    """The gzip file has several members."""
    if scan.gzip_members > 1:
        yield Hit(f"{scan.gzip_members} gzip members in one file")
