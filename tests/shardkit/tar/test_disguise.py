from __future__ import annotations

import gzip

import pytest

from shardkit.tar.disguise import describe_foreign
from tests.helpers.shards import sample_members, tar_bytes


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        (b"<!DOCTYPE html><html><title>Sign in</title>", "an HTML page beginning with '<!DOCTYPE html>"),
        (b"\n  <HTML><body>", "an HTML page"),
        (b'<?xml version="1.0"?>\n<Error><Code>NoSuchKey</Code>', "an S3 error document, NoSuchKey"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00", "a Git LFS pointer"),
        (b"PK\x03\x04" + bytes(600), "a zip archive"),
        (b"\xfd7zXZ\0" + bytes(600), "an xz file"),
        (b"\x28\xb5\x2f\xfd" + bytes(600), "a zstd file"),
        (b"BZh9" + bytes(600), "a bzip2 file"),
        (b"\xff\xd8\xff\xe0" + bytes(600), "a JPEG picture"),
        (b"\x89PNG\r\n\x1a\n" + bytes(600), "a PNG picture"),
        (b'{"format": "shardkit-index"}', 'text beginning with \'{"format": '),
        (bytes(511) + b"\1", "the cause"),
    ],
)
def test_a_foreign_file_is_named(head: bytes, reason: str) -> None:
    found, remedy = describe_foreign(head, "the cause")
    assert found.startswith("not a tar: ")
    assert reason in found
    assert remedy


def test_text_in_front_of_a_tar_is_told_with_the_way_to_cut_it_off() -> None:
    chatter = b"download: 's3://bucket/a.tar' -> '-'\n"
    reason, remedy = describe_foreign(chatter + tar_bytes(sample_members(1)), "")
    assert f"{len(chatter)} bytes are in front of the first header" in reason
    assert "download: " in reason
    assert "wrote text to stdout" in remedy
    assert f"tail -c +{len(chatter) + 1}" in remedy


@pytest.mark.parametrize(
    "head", [b"<?xml?><Error><Code>\x1b[31mred\n</Code>", b"a text with \x1b[31m colours " * 9, b"caf\xe9 " * 40]
)
def test_nothing_of_the_file_reaches_the_terminal_unescaped(head: bytes) -> None:
    reason, _ = describe_foreign(head, "")
    assert reason.isprintable()
    reason.encode()


def test_packed_text_is_no_tar_either() -> None:
    assert describe_foreign(gzip.compress(b"x"), "the cause")[0].startswith("not a tar: ")
