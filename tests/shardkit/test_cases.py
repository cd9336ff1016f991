"""The collected cases of damaged shards, where the collection lies beside this checkout; skipped elsewhere.

The same inputs are built, one by one, in the tests of the modules: this is a second opinion on inputs made by others.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.shards import check, rules_in

BUILDER = Path(__file__).parents[3] / "shared" / "cases" / "make_cases.py"

# File -> (samples, whole ones, the rules that it breaks), labels held against 1000 classes.
EXPECTED = {
    "BASE/base.tar": (10, 10, []),
    "TAR-01/cut-in-jpg.tar": (5, 5, ["WDS002"]),
    "TAR-02/cut-at-boundary.tar": (5, 5, ["WDS005"]),
    "TAR-04/no-eof.tar": (10, 10, ["WDS005"]),
    "TAR-04/one-zero-block.tar": (10, 10, ["WDS013"]),
    "TAR-05/trailing.tar": (10, 10, ["WDS006"]),
    "TAR-06/chatter-first.tar": (0, 0, ["WDS001"]),
    "TAR-07/a-then-b.tar": (10, 10, ["WDS007"]),
    "TAR-08/gz-named.tar": (10, 10, ["WDS012"]),
    "TAR-08/right.tar.gz": (10, 10, ["WDS012"]),
    "TAR-08/right.tgz": (10, 10, ["WDS012"]),
    "TAR-10/cut.tar.gz": (5, 5, ["WDS002", "WDS012"]),
    "TAR-11/gnu-long.tar": (2, 2, []),
    "TAR-11/pax-long.tar": (2, 2, []),
    "TAR-11/pax-mtime.tar": (3, 3, []),
    "TAR-12/latin1-name.tar": (2, 2, ["WDS027"]),
    "TAR-13/links-and-dirs.tar": (8, 5, ["WDS010", "WDS011"]),
    "TAR-17/zero-bytes.tar": (0, 0, ["WDS008"]),
    "TAR-17/empty-but-valid.tar": (0, 0, ["WDS009"]),
    "TAR-17/only-1024-zeros.tar": (0, 0, ["WDS009"]),
    "TAR-17/good.tar": (10, 10, []),
    "TAR-18/login-page.tar": (0, 0, ["WDS001"]),
    "TAR-18/s3-error.tar": (0, 0, ["WDS001"]),
    "TAR-18/lfs-pointer.tar": (0, 0, ["WDS001"]),
    "KEY-01/all-jpg-then-all-cls.tar": (5, 0, ["WDS020"]),
    "KEY-01/interleaved.tar": (2, 0, ["WDS020"]),
    "KEY-03/same-name-twice.tar": (5, 4, ["WDS004"]),
    "KEY-04/x-000000.tar": (1, 1, []),
    "KEY-04/y-000000.tar": (1, 0, ["WDS022"]),
    "KEY-04/y-000001.tar": (1, 0, ["WDS021"]),
    "KEY-05/dots-in-base.tar": (3, 1, ["WDS021", "WDS022"]),
    "KEY-06/dots-in-folder.tar": (2, 2, ["WDS024"]),
    "KEY-07/same-base-two-folders.tar": (4, 4, ["WDS029"]),
    "KEY-09/ext-case.tar": (4, 4, []),
    "KEY-10/mac-made.tar": (3, 3, ["WDS023"]),
    "KEY-11/with-side-files.tar": (3, 3, ["WDS025"]),
    "KEY-12/missing-parts.tar": (10, 8, ["WDS021", "WDS022"]),
    "KEY-13/zero-byte-parts.tar": (10, 7, ["WDS032", "WDS043"]),
    "CLS-02/one-based.tar": (4, 4, ["WDS031"]),
    "CLS-02/negative.tar": (4, 4, ["WDS031"]),
    "IMG-01/cmyk-red.tar": (3, 3, ["WDS044"]),
    "IMG-02/png-as-jpg.tar": (3, 3, ["WDS041"]),
    "IMG-02/rgba-png-as-jpg.tar": (3, 3, ["WDS041"]),
    "IMG-02/webp-as-jpg.tar": (3, 3, ["WDS041"]),
    "IMG-03/gray.tar": (3, 3, []),
    "IMG-03/palette-alpha-png.tar": (3, 3, ["WDS041"]),
    "IMG-03/one-bit-png.tar": (3, 3, ["WDS041"]),
    "IMG-03/sixteen-bit-png.tar": (3, 3, ["WDS041", "WDS046"]),
    "IMG-04/exif-short.tar": (3, 3, ["WDS047"]),
    "IMG-04/exif-points-outside.tar": (3, 3, ["WDS047"]),
    "IMG-04/many-bad-exif.tar": (200, 200, ["WDS047"]),
    "IMG-06/cut-jpeg.tar": (3, 2, ["WDS040"]),
    "IMG-07/junk-after-eoi.tar": (3, 3, []),
    "IMG-07/junk-before-marker.tar": (3, 3, []),
    "IMG-08/turned.tar": (3, 3, ["WDS045"]),
    "IMG-09/bomb.tar": (3, 2, ["WDS042"]),
    "SEC-02/traversal.tar": (4, 4, ["WDS024"]),
    "SEC-03/pickled-part.tar": (3, 3, ["WDS026"]),
}


@pytest.mark.skipif(not BUILDER.exists(), reason="the collection of cases is not beside this checkout")
def test_every_case_gets_its_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where a pickle that is run would leave its mark
    subprocess.run([sys.executable, str(BUILDER), str(tmp_path)], check=True, capture_output=True, timeout=120)
    found = {}
    for name in EXPECTED:
        report = check(tmp_path / name, num_classes=1000)
        found[name] = (report.summary.samples, report.summary.whole, rules_in(report))
    assert found == EXPECTED
    assert not list(tmp_path.rglob("CANARY*"))
