"""Crop-ready shards of original bytes: restart markers go into every JPEG that can have them, and no pixel changes."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import numpy as np
import pytest

from shardkit import decode_rgb, read_manifest
from tests.helpers.cli import invoke, processes_of_session, run_script, started_wds, wait_until
from tests.helpers.folders import image_folder
from tests.helpers.jpegs import photo, scan_start, whole_jpegs
from tests.helpers.pictures import encode
from tests.helpers.repairing import samples_of
from wdsloader import ConfigError, restart_marker_version

try:
    HAS_KERNEL = bool(restart_marker_version())
except ConfigError:
    HAS_KERNEL = False
with_kernel = pytest.mark.skipif(not HAS_KERNEL, reason="built without the kernel")
MANIFEST = "imagenet-train.manifest.json"
# PNG, WebP, two pictures in one file, CMYK (twice), arithmetic coding, junk (twice), odd sampling: see whole_jpegs.
KEPT = 9


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file of a folder, hidden ones too, with its bytes."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def pictures_in(folder: Path) -> dict[str, bytes]:
    """Return the picture of every sample by its key, without the number that packing puts before the name."""
    samples = {key: s for path in sorted(folder.glob("*.tar")) for key, s in samples_of(path).items()}
    return {key.partition("_")[2]: sample["jpg"] for key, sample in samples.items()}


@pytest.fixture(scope="module")
def every_kind(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of two classes with a picture of every kind."""
    folder = tmp_path_factory.mktemp("kinds")
    for name in ("a", "b"):
        (folder / name).mkdir()
    for number, data in enumerate(whole_jpegs().values()):
        (folder / "ab"[number % 2] / f"kind{number}.jpg").write_bytes(data)
    return folder


@with_kernel
def test_no_pixel_changes_and_what_cannot_carry_markers_stays_as_it_is_and_is_told(
    every_kind: Path, tmp_path: Path
) -> None:
    args = ("--from-folder", every_kind, "--out", tmp_path / "out", "--count", 3, "--jobs", 1)
    ended = invoke("make-shards", *args, "--crop-ready")
    assert (ended.code, f"{KEPT} pictures stay as they are: " in ended.stderr) == (0, True), ended.stderr
    assert "no JPEG but PNG (1)" in ended.stderr
    before = {path.stem: path.read_bytes() for path in every_kind.glob("*/*")}
    after = pictures_in(tmp_path / "out")
    assert after.keys() == before.keys()
    same = [name for name in before if after[name] == before[name]]
    for name in before.keys() - set(same):
        assert np.array_equal(np.asarray(decode_rgb(after[name])), np.asarray(decode_rgb(before[name]))), name
        assert b"\xff\xdd\x00\x04" in after[name][: scan_start(after[name])], name
    manifest = read_manifest(tmp_path / "out" / MANIFEST)
    assert manifest.options["transform"] == "restart-markers"
    assert sum(manifest.kept.values()) == KEPT
    # Some had their markers before.
    assert len(same) >= KEPT


@with_kernel
def test_bytes_are_the_same_for_two_processes_and_for_parts_of_a_plan(every_kind: Path, tmp_path: Path) -> None:
    args = ("--from-folder", every_kind, "--count", 4, "--crop-ready")
    for jobs in (1, 2):
        assert invoke("make-shards", *args, "--out", tmp_path / str(jobs), "--jobs", jobs).code == 0
    assert invoke("make-shards", *args, "--out", tmp_path / "plan", "--plan-only").code == 0
    plan = tmp_path / "plan" / "imagenet-train.plan.json"
    assert json.loads(plan.read_text())["encoder"] == restart_marker_version()
    parts = [invoke("run-plan", plan, "--slice", part, "--jobs", 1) for part in ("2/2", "1/2")]
    assert [part.code for part in parts] == [0, 0]
    # What the first part kept as it was is counted by whoever comes last.
    assert f"{KEPT} pictures stay as they are" in parts[1].stderr
    assert contents(tmp_path / "1") == contents(tmp_path / "2") == contents(tmp_path / "plan")


@with_kernel
@pytest.mark.parametrize("command", ["make-shards", "reshard"])
def test_a_finished_set_and_half_of_one_are_gone_on_with(every_kind: Path, tmp_path: Path, command: str) -> None:
    folder, shards, out = every_kind, tmp_path / "shards", tmp_path / "out"
    assert invoke("make-shards", "--from-folder", folder, "--out", shards, "--jobs", 1, "--count", 2).code == 0
    source = ("--from-folder", folder) if command == "make-shards" else (shards, "--prefix", "imagenet-train")
    args = (command, *source, "--count", 4, "--crop-ready", "--jobs", 1, "--out")
    assert invoke(*args, tmp_path / "whole").code == 0
    assert invoke(*args, out, "--plan-only").code == 0
    assert invoke("run-plan", out / "imagenet-train.plan.json", "--slice", "1/2", "--jobs", 1).code == 0
    assert len(list(out.glob("*.tar"))) == 2
    assert "something else" not in invoke(*args, out).stderr
    for _ in range(2):
        ended = invoke(*args, out, "--on-exists", "resume")
        assert (ended.code, f"{KEPT} pictures stay" in ended.stderr) == (0, True)
        assert contents(out) == contents(tmp_path / "whole")
    # Without markers it is another set.
    assert invoke(*args[:-4], "--jobs", 1, "--out", out, "--on-exists", "resume").code == 2


@with_kernel
@pytest.mark.slow
@pytest.mark.parametrize("command", ["make-shards", "reshard"])
def test_killed_and_resumed_it_ends_like_an_undisturbed_run(tmp_path: Path, command: str) -> None:
    folder, shards, out = image_folder(tmp_path / "in", per_class=20), tmp_path / "shards", tmp_path / "out"
    for number, path in enumerate(sorted(folder.glob("*/*"))):
        path.write_bytes(encode(photo(320, 240, seed=number), "JPEG"))
    assert invoke("make-shards", "--from-folder", folder, "--out", shards, "--jobs", 1, "--count", 2).code == 0
    source = ("--from-folder", folder) if command == "make-shards" else (shards, "--prefix", "imagenet-train")
    args = (command, *source, "--count", 12, "--crop-ready", "--jobs", 2, "--on-exists", "resume", "--out")
    assert invoke(*args, tmp_path / "whole").code == 0
    for num_shards in (1, 6):
        with started_wds(*args, out, cwd=tmp_path) as process:
            assert wait_until(lambda least=num_shards: len(list(out.glob("*.tar"))) >= least)  # type: ignore[misc]  # bound at once
            process.kill()
            assert wait_until(lambda ended=process: not processes_of_session(ended.pid))  # type: ignore[misc]  # bound at once
    assert invoke(*args, out).code == 0
    assert contents(out) == contents(tmp_path / "whole")


@with_kernel
def test_scaled_and_kept_pictures_are_both_crop_ready(tmp_path: Path) -> None:
    folder = tmp_path / "in" / "a"
    folder.mkdir(parents=True)
    small = encode(photo(60, 50), "JPEG")
    (folder / "small.jpg").write_bytes(small)
    (folder / "large.jpg").write_bytes(encode(photo(120, 90), "JPEG"))
    args = ("--from-folder", folder.parent, "--out", tmp_path / "out", "--max-size", 64, "--crop-ready", "--jobs", 1)
    assert invoke("make-shards", *args).code == 0
    pictures = pictures_in(tmp_path / "out")
    assert decode_rgb(pictures["large"]).size == (64, 48)
    assert np.array_equal(np.asarray(decode_rgb(pictures["small"])), np.asarray(decode_rgb(small)))
    assert all(b"\xff\xdd\x00\x04" in data for data in pictures.values())


@with_kernel
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"transform": "sharpen"}, "'sharpen', which is not known here"),
        ({"encoder": "kernel 0.1 (libjpeg 6b)"}, "changed since the plan was written: the version of what writes"),
    ],
)
def test_a_plan_that_would_give_other_bytes_here_is_refused(
    tmp_path: Path, change: dict[str, str], reason: str
) -> None:
    folder, out = image_folder(tmp_path / "in", per_class=1), tmp_path / "out"
    assert invoke("make-shards", "--from-folder", folder, "--out", out, "--crop-ready", "--plan-only").code == 0
    plan = out / "imagenet-train.plan.json"
    plan.write_text(json.dumps(json.loads(plan.read_text()) | change))
    ended = invoke("run-plan", plan)
    assert (ended.code, ended.stderr.count("\n"), reason in ended.stderr) == (2, 1, True), ended.stderr
    assert [path.name for path in out.iterdir()] == [plan.name]


WITHOUT_KERNEL = textwrap.dedent("""
    import json, sys
    # As in a build without a C compiler: the import fails.
    sys.modules["wdsloader._crop"] = None
    from tests.helpers.cli import invoke

    ended = [invoke(*args) for args in json.loads(sys.argv[1])]
    print(json.dumps([(one.code, one.stderr) for one in ended]))
""")


def test_without_the_kernel_originals_are_refused_with_the_reason_and_reencoding_works(tmp_path: Path) -> None:
    folder, shards, plans = image_folder(tmp_path / "in"), tmp_path / "shards", tmp_path / "plans"
    assert invoke("make-shards", "--from-folder", folder, "--out", shards, "--jobs", 1).code == 0
    assert invoke("make-shards", "--from-folder", folder, "--out", plans, "--plan-only").code == 0
    plan = plans / "imagenet-train.plan.json"
    plan.write_text(json.dumps(json.loads(plan.read_text()) | {"transform": "restart-markers"}))
    out = ("--out", str(tmp_path / "out"), "--crop-ready", "--jobs", "1")
    commands = [
        ["make-shards", "--from-folder", str(folder), *out],
        ["make-shards", "--from-folder", str(folder), *out, "--max-size", "10"],
        ["make-shards", "--from-folder", str(folder), *out, "--plan-only"],
        ["reshard", str(shards), *out],
        ["run-plan", str(plan)],
        ["reshard", str(shards), *out, "--quality", "90"],
    ]
    script = run_script(WITHOUT_KERNEL, cwd=Path.cwd(), args=[json.dumps(commands)])
    *refused, done = json.loads(script.stdout)
    assert [code for code, _ in refused] == [2] * 5, script
    for _, stderr in refused:
        assert "crop kernel, which this build is without" in stderr
        assert stderr.count("\n") == 1
    assert done[0] == 0, done
    assert [path.name for path in plans.iterdir()] == [plan.name]
