"""Names of manifests and classes; when a manifest may be written is in test_catalog."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardkit import ManifestError, PatternError, common_prefix, read_classes


@pytest.mark.parametrize(
    ("shards", "prefix"),
    [
        (["d/imagenet-train-000000.tar", "d/imagenet-train-000011.tar"], "imagenet-train"),
        (["a-0.tar"], "a"),
        (["00000.tar", "00001.tar"], "shards"),
        (["00000.tar"], "shards"),
        (["https://host/v/val_00.tar?x=1", "https://host/v/val_01.tar?x=2"], "val"),
        (["é-1.tar", "é-2.tar"], "shards"),
        (["train.tar", "val.tar"], "shards"),
    ],
)
def test_the_prefix_is_what_the_names_have_in_common(shards: list[str], prefix: str) -> None:
    assert common_prefix(shards) == prefix


class TestClasses:
    def test_names_come_one_a_line(self, tmp_path: Path) -> None:
        (tmp_path / "names").write_bytes("\ufefftench\r\nécureuil roux\n".encode())
        assert read_classes(str(tmp_path / "names")) == ("tench", "écureuil roux")

    def test_a_number_is_a_number_of_classes_and_no_names(self) -> None:
        assert read_classes("3") == 3
        with pytest.raises(PatternError, match=r"0: no such file\. Give a file of class names"):
            read_classes("0")

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            (b"", "no class names"),
            (b"a\n\nb\n", "line 2: no name"),
            (b"a\nb\na\n", "line 3: 'a' is there already, in line 1"),
            (b"caf\xe9\n", "not UTF-8"),
        ],
    )
    def test_what_is_no_list_of_names_is_refused(self, tmp_path: Path, content: bytes, words: str) -> None:
        (tmp_path / "names").write_bytes(content)
        with pytest.raises(ManifestError, match=words):
            read_classes(str(tmp_path / "names"))
