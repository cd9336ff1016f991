"""What the packing commands show: the layout before, progress meanwhile, the result, and how to go on."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from wds.console import Progress, human_bytes, print_json, print_line, print_note, print_warning
from wds.text import counted

if TYPE_CHECKING:
    from pathlib import Path

    from shardkit import Manifest, PackConfig, ShardPlan, ShardRecord, Source

__all__ = ["layout", "layout_of_part", "packing", "planned", "result"]

# So many skipped sources are named; the manifest and --json have all.
_NAMED = 5


@contextmanager
def packing(
    config: PackConfig, *, total: int, resume: Sequence[str] = ("--on-exists", "resume"), quiet: bool
) -> Iterator[Callable[[ShardRecord], None]]:
    """Show progress for one block; where it ends early and can go on, say by which command.

    Args: total: shards to make. resume: the words that make this command go on.
    """
    from shardkit import PackError, UnfinishedPackingError

    progress = Progress("shards", total=total, quiet=quiet)
    try:
        yield lambda _: progress.advance()
    except UnfinishedPackingError as error:
        raise UnfinishedPackingError(f"{error}. To go on: {_again(resume)}") from error
    except PackError:
        raise
    except BaseException:
        progress.close()
        if config.plan_path.exists():
            print_note(f"Finished shards stay in {config.folder}. To go on: {_again(resume)}")
        raise
    finally:
        progress.close()


def result(manifest: Manifest, config: PackConfig, *, ignored: Sequence[str], as_json: bool) -> None:
    """Say what was made, and on stderr what is odd about it. Args: ignored: files of the source that were left out."""
    numbers = len(manifest.classes) > 10 and all(name.isdigit() for name in manifest.classes)
    if numbers and "as text" in manifest.class_order:
        print_warning(f"class names are numbers, sorted as text: {', '.join(manifest.classes[:4])}, ..")
    if ignored:
        more = "; .. (--json lists all)" if len(ignored) > _NAMED else ""
        print_warning(
            f"{counted(len(ignored), 'file of the source was/files of the source were')} left out: no pictures by "
            f"their names, or in no class: {'; '.join(ignored[:_NAMED])}{more}"
        )
    if manifest.skipped:
        more = "; .." if len(manifest.skipped) > _NAMED else ""
        print_warning(f"skipped {counted(len(manifest.skipped), 'file')}: {'; '.join(manifest.skipped[:_NAMED])}{more}")
    if manifest.kept:
        reasons = sorted(manifest.kept.items(), key=lambda item: -item[1])
        told = "; ".join(f"{reason} ({count})" for reason, count in reasons[:_NAMED])
        more = "; .." if len(reasons) > _NAMED else ""
        print_warning(
            f"{counted(sum(manifest.kept.values()), 'picture stays as it is/pictures stay as they are')}: {told}{more}"
        )
    if as_json:
        print_json({**_as_document(manifest, config), "left_out": list(ignored)})
        return
    to_last = f" to {manifest.shards[-1].name}" if len(manifest.shards) > 1 else ""
    print_line(f"{counted(len(manifest.shards), 'shard')}, {config.folder / manifest.shards[0].name}{to_last}")
    classes = (
        f"{counted(manifest.num_classes, 'class/classes')} {manifest.class_order}"
        if manifest.num_classes
        else "classes not known"
    )
    print_line(
        f"{counted(manifest.num_samples, 'sample')}, {classes}, {human_bytes(manifest.num_bytes)}, digest "
        f"{manifest.digest}"
    )
    if config.recode is None and manifest.options.get("source") != "fake-imagenet":
        print_note(f"Bytes were packed as they are, no picture was decoded: wds validate {config.folder} does that")
    print_note(f"Look at one: wds inspect {config.folder / manifest.shards[0].name}")


def layout(source: Source, plan: Sequence[ShardPlan], *, config: PackConfig, as_json: bool) -> None:
    """Print the exact layout, and what is in its way."""
    from shardkit import existing_output, require_outside

    require_outside(source, config)
    shards = _shards(source, plan, config=config)
    in_the_way = [str(path) for path in existing_output(config)]
    if as_json:
        print_json({"folder": str(config.folder), "shards": shards, "existing": in_the_way})
        return
    _print_shards(shards, config=config)
    classes = counted(source.num_classes, "class/classes") if source.num_classes else "classes not known"
    print_line(f"{config.manifest_path}  {counted(len(source), 'sample')} in {counted(len(plan), 'shard')}, {classes}")
    if in_the_way:
        print_note(
            f"{counted(len(in_the_way), 'file of this prefix is/files of this prefix are')} there already; "
            f"--on-exists {config.on_exists}"
        )


def layout_of_part(source: Source, part: Sequence[ShardPlan], *, config: PackConfig, as_json: bool) -> None:
    """Print the shards of one part of a plan."""
    shards = _shards(source, part, config=config)
    if as_json:
        print_json({"folder": str(config.folder), "shards": shards})
        return
    _print_shards(shards, config=config)


def planned(path: Path, plan: Sequence[ShardPlan], *, as_json: bool) -> None:
    """Say where the plan lies and what to do with it."""
    if as_json:
        print_json({"plan": str(path), "shards": len(plan)})
        return
    print_line(f"{path}  {counted(len(plan), 'shard')}, {counted(sum(len(shard.samples) for shard in plan), 'sample')}")
    print_note(f"Make them: wds run-plan {shlex.quote(str(path))}, or parts of them: --slice 1/4")


def _as_document(manifest: Manifest, config: PackConfig) -> dict[str, object]:
    return {
        "manifest": str(config.manifest_path),
        "shards": [str(config.folder / shard.name) for shard in manifest.shards],
        "samples": manifest.num_samples,
        "bytes": manifest.num_bytes,
        "classes": manifest.num_classes or 0,
        "digest": manifest.digest,
        "skipped": list(manifest.skipped),
        "kept": dict(manifest.kept),
    }


def _shards(source: Source, plan: Sequence[ShardPlan], *, config: PackConfig) -> list[dict[str, Any]]:
    """Return what is known of shards before they are made; nobody knows how long changed pictures become."""
    from shardkit import planned_bytes

    changed = config.recode is not None or config.transform is not None
    sizes = [None if changed else planned_bytes(source, shard.samples) for shard in plan]
    return [
        {"name": shard.name, "samples": len(shard.samples), "bytes": num_bytes}
        for shard, num_bytes in zip(plan, sizes, strict=True)
    ]


def _print_shards(shards: Sequence[dict[str, Any]], *, config: PackConfig) -> None:
    for shard in shards:
        samples = counted(shard["samples"], "sample")
        known = "" if shard["bytes"] is None else f", {human_bytes(shard['bytes'])}"
        print_line(f"{config.folder / shard['name']}  {samples}{known}")


def _again(more: Sequence[str]) -> str:
    """Return the command that runs now, with an option more, in place of what it says of that one.

    Args: more: the option and its value, or nothing.
    """
    words = sys.argv[1:]
    if more:
        option = more[0]
        pairs = zip(("", *words), words, strict=False)
        words = [word for before, word in pairs if option not in (before, word, word.partition("=")[0])]
    return shlex.join(["wds", *words, *more])
