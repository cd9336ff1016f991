"""Repair one shard, and look at what became of its samples and of the rest."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

from shardkit import RepairConfig, RepairReport, iter_samples, repair_shards
from tests.helpers.shards import check

__all__ = ["account", "actions", "expected", "is_clean", "quarantined", "repair", "repair_bytes", "samples_of"]


def repair(path: Path, out: Path, **settings_: Any) -> RepairReport:
    """Repair one shard into a folder."""
    return next(iter(repair_shards([str(path)], RepairConfig(folder=out, **settings_))))


def repair_bytes(data: bytes, tmp_path: Path, **settings_: Any) -> RepairReport:
    (tmp_path / "s.tar").write_bytes(data)
    return repair(tmp_path / "s.tar", tmp_path / "out", **settings_)


def samples_of(path: Path | str | None) -> dict[str, dict[str, bytes]]:
    """Return the samples of a shard in order: key -> extension -> content."""
    assert path is not None
    with open(path, "rb") as file:
        return {str(sample.key): dict(sample.members) for sample in iter_samples(file, shard=str(path))}


def expected(members: list[tuple[str, bytes]]) -> dict[str, dict[str, bytes]]:
    found: dict[str, dict[str, bytes]] = {}
    for name, content in members:
        key, _, extension = name.partition(".")
        found.setdefault(key, {})[extension] = content
    return found


def quarantined(report: RepairReport) -> dict[str, bytes]:
    """Return the members of the quarantine by name, its report left out."""
    if report.quarantine is None:
        return {}
    with tarfile.open(report.quarantine) as tar:
        contents = {info.name: tar.extractfile(info).read() for info in tar}  # type: ignore[union-attr]  # all files
    del contents["report.json"]
    return contents


def account(report: RepairReport) -> list[dict[str, Any]]:
    """Return the quarantine's report: an entry a member."""
    assert report.quarantine is not None
    with tarfile.open(report.quarantine) as tar:
        document = json.load(tar.extractfile("report.json"))  # type: ignore[arg-type]  # it is a file
    assert (document["format"], document["version"]) == ("shardkit-quarantine", 1)
    members: list[dict[str, Any]] = document["members"]
    return members


def actions(report: RepairReport) -> list[tuple[str, str, str | None]]:
    return [(change.action, change.rule, change.member) for change in report.changes]


def is_clean(path: str | None, *, num_classes: int | None = None) -> bool:
    assert path is not None
    return not [f for f in check(path, num_classes=num_classes).findings if f.severity != "note"]
