"""Rules on names and on what makes up a sample. WDS02x."""

from __future__ import annotations

from collections.abc import Iterator

from shardkit.errors import printable
from shardkit.keys import LABEL_EXTENSION, picture_extension, split_name
from shardkit.rules.rule import Hit, rule
from shardkit.scan import SampleScan, ShardScan

__all__: list[str] = []

_PICKLED = frozenset({"pickle", "pkl", "pt", "pth", "pyd"})


@rule(
    "WDS020",
    "error",
    effect="Every sample is split in two: training loses its labels or its pictures.",
    remedy="Sort the members by name and pack the shard again",
)
def parts_apart(scan: ShardScan) -> Iterator[Hit]:
    """The parts of a sample are not side by side."""
    apart = [sample for sample in scan.samples.values() if sample.num_places > 1]
    if apart:
        second = next(part for part in apart[0].parts if part.header_offset != apart[0].parts[0].header_offset)
        message = f"parts of one sample are not side by side: {len(apart)} of {len(scan.samples)} keys"
        yield Hit(f"{message}, first {printable(second.name)}", second.name, second.header_offset)


@rule(
    "WDS021", "error", effect="The sample is dropped, or stops the run.", remedy="Pack the picture, or drop the sample"
)
def picture_missing(scan: ShardScan) -> Iterator[Hit]:
    """A sample has no picture."""
    explained = _explained_keys(scan)
    for sample in scan.samples.values():
        if picture_extension(sample.extensions) is None and sample.key not in explained:
            yield Hit(f"lacks jpg{_dotted(sample)}", sample.key, sample.parts[0].header_offset)


@rule("WDS022", "error", effect="The sample is dropped, or stops the run.", remedy="Pack the label, or drop the sample")
def label_missing(scan: ShardScan) -> Iterator[Hit]:
    """A sample has no label."""
    explained = _explained_keys(scan)
    for sample in scan.samples.values():
        if LABEL_EXTENSION not in sample.extensions and sample.key not in explained:
            yield Hit(f"lacks cls{_dotted(sample)}", sample.key, sample.parts[0].header_offset)


@rule("WDS023", "note", effect="Nothing: they are ignored.", remedy="Pack without them (COPYFILE_DISABLE=1 on a Mac)")
def hidden_members(scan: ShardScan) -> Iterator[Hit]:
    """Members whose names begin with a dot."""
    if scan.hidden:
        twins = sum(member.name.rpartition("/")[2].startswith("._") for member in scan.hidden)
        first = scan.hidden[0]
        yield Hit(f"{len(scan.hidden)} hidden members ignored ({twins} AppleDouble)", first.name, first.header_offset)


@rule(
    "WDS024",
    "warning",
    effect="A tool that unpacks the shard may write outside its folder.",
    remedy="Pack it under a relative name without '..'",
)
def unsafe_name(scan: ShardScan) -> Iterator[Hit]:
    """A name is absolute or climbs out of its folder."""
    for sample in scan.samples.values():
        for part in sample.parts:
            if part.name.startswith("/") or ".." in part.name.split("/"):
                yield Hit("an absolute name, or one with '..'", part.name, part.header_offset)


@rule(
    "WDS026",
    "warning",
    effect="A reader that unpickles it runs whatever code is in it.",
    remedy="Pack without it, or keep the data as numbers or JSON",
)
def pickled_member(scan: ShardScan) -> Iterator[Hit]:
    """A member that readers would unpickle."""
    for sample in scan.samples.values():
        for part in sample.parts:
            if part.extension.rpartition(".")[2] in _PICKLED:
                yield Hit("a pickle: a reader that unpickles it runs its code", part.name, part.header_offset)


@rule("WDS025", "note", effect="Nothing: they are ignored.", remedy="Pack without them")
def files_beside(scan: ShardScan) -> Iterator[Hit]:
    """Files that belong to no sample."""
    if scan.beside:
        names = ", ".join(printable(member.name) for member in scan.beside[:5])
        yield Hit(f"{len(scan.beside)} other members: {names}", scan.beside[0].name, scan.beside[0].header_offset)


def _explained_keys(scan: ShardScan) -> set[str]:
    """Return the keys that lack a part because it is a link, or because the shard is cut there: reported as that."""
    names = [member.name for member in scan.special if "link" in member.kind]
    names += [error.member for error in scan.damage if error.member is not None]
    return {split[0] for split in map(split_name, names) if split is not None}


def _dotted(sample: SampleScan) -> str:
    """Explain a missing part by dots in the base name, where that is why."""
    dotted = sorted(extension for extension in sample.extensions if "." in extension)
    return f"; fields seen {printable(', '.join(dotted))}: dots in the base name" if dotted else ""
