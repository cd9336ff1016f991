from __future__ import annotations

import pickle

import pytest

from shardkit import PictureError, ShardkitError, ShardReadError, SourceError, WorkerDiedError, counted, printable
from shardkit import errors as module


def read_error() -> ShardReadError:
    return ShardReadError(
        "x.tar", "duplicate member name", rule="WDS004", member="a.jpg", offset=512, remedy="Rename one"
    )


def test_a_number_and_its_noun_agree() -> None:
    numbers = (0, 1, 2)
    assert [counted(number, "shard") for number in numbers] == ["0 shards", "1 shard", "2 shards"]
    assert [counted(n, "class has/classes have") for n in numbers] == [
        "0 classes have",
        "1 class has",
        "2 classes have",
    ]
    assert counted(1234, "sample", spec=",") == "1,234 samples"


def test_a_message_says_where_what_which_rule_and_what_to_do() -> None:
    assert str(read_error()) == "x.tar: 'a.jpg' at byte 512: duplicate member name (WDS004). Rename one"


def test_a_message_leaves_out_what_is_not_known() -> None:
    assert str(ShardReadError("x.tar", "empty file", rule="WDS008")) == "x.tar: empty file (WDS008)"


@pytest.mark.parametrize(
    "error",
    [read_error(), SourceError("a.jpg", "bad"), PictureError("cut", "WDS042"), WorkerDiedError("killed")],
    ids=lambda error: type(error).__name__,
)
def test_errors_survive_pickling(error: ShardkitError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)


def test_every_error_has_one_base() -> None:
    found = [value for name in module.__all__ if isinstance(value := getattr(module, name), type)]
    assert found
    assert all(issubclass(error, ShardkitError) for error in found)


@pytest.mark.parametrize(
    ("name", "visible"),
    [
        ("a b/é.jpg", "a b/é.jpg"),
        ("caf\udce9.jpg", r"caf\xe9.jpg"),
        ("a\x1b[31m\n.jpg", r"a\x1b[31m\n.jpg"),
        ("a\ud800b", r"a\ud800b"),
        ("a\u202eb", r"a\u202eb"),
    ],
)
def test_names_are_shown_as_visible_text(name: str, visible: str) -> None:
    assert printable(name) == visible
    printable(name).encode()


def test_shard_and_member_of_a_message_are_visible() -> None:
    message = str(ShardReadError("caf\udce9.tar", "cut", rule="WDS002", member="\x1b[31m"))
    assert message.isprintable()
    message.encode()
