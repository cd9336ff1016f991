from __future__ import annotations

import pickle

import pytest

from wdsloader.errors import (
    ConfigError,
    DatasetError,
    FetchError,
    NoLengthError,
    SampleError,
    WdsloaderError,
    WorkerError,
)


@pytest.mark.parametrize(
    "error",
    [
        ConfigError("a"),
        DatasetError("b"),
        NoLengthError("c"),
        WorkerError("d"),
        FetchError("http://host/a.tar", "status 404", status=404),
        SampleError("a.tar", "the picture does not decode", key="0001", offset=512),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_survives_its_way_through_a_process(error: WdsloaderError) -> None:
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert back.__dict__ == error.__dict__


def test_a_sample_error_says_shard_key_offset_and_cause() -> None:
    error = SampleError("a.tar", "the picture does not decode", key="0001", offset=512)
    assert error.found == "a.tar: '0001' at byte 512: the picture does not decode"


def test_a_sample_error_says_what_to_do_on_the_command_line_and_in_python() -> None:
    error = SampleError("a.tar", "the picture does not decode", key="0001", offset=512)
    advice = str(error).removeprefix(f"{error.found}. ")
    assert all(words in advice for words in ("wds repair", 'on_error="skip"', "--on-error skip --max-skipped N"))
    assert str(SampleError("a.tar", "the index is stale. Delete it", kind="stale index")).endswith("Delete it")


def test_a_fetch_error_is_an_oserror_that_names_the_url() -> None:
    error = FetchError("http://host/a.tar", "status 404: no such file", status=404)
    assert isinstance(error, OSError)
    assert str(error) == "http://host/a.tar: status 404: no such file"
