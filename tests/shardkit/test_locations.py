from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkit.locations import bare_url, beside, is_command, is_url, is_web, mask_url, mask_urls, scheme_of


@pytest.mark.parametrize(
    ("location", "scheme"),
    [("http://h/a", "http"), ("S3://b/a", "s3"), ("a.tar", ""), ("C:/a.tar", ""), ("pipe:curl http://h/a", "")],
)
def test_a_scheme_stands_at_the_start(location: str, scheme: str) -> None:
    assert scheme_of(location) == scheme
    assert is_url(location) is bool(scheme)
    assert is_web(location) is (scheme == "http")


def test_a_command_begins_with_pipe() -> None:
    assert is_command("pipe:cat a.tar")
    assert not is_command("./pipe:cat a.tar")


@pytest.mark.parametrize(
    ("url", "bare"),
    [("https://u:SECRET@h:8/a.jpg?sig=SECRET#SECRET", "https://h:8/a.jpg"), ("https://[::SECRET/a.jpg", "https://***")],
)
def test_a_url_that_is_passed_on_holds_no_secret(url: str, bare: str) -> None:
    assert bare_url(url) == bare


@pytest.mark.parametrize(
    ("location", "shown"),
    [
        ("https://u:SECRET@h:8/a.tar?sig=SECRET&x=SECRET#SECRET", "https://***@h:8/a.tar?sig=***&x=***"),
        ("https://h/a.tar?SECRET", "https://h/a.tar?***"),
        ("s3://SECRET:SECRET@bucket/a.tar", "s3://***@bucket/a.tar"),
        ("pipe:curl -s 'https://h/a.tar?sig=SECRET' | cat", "pipe:curl -s 'https://h/a.tar?sig=***' | cat"),
        ("http://[half/SECRET", "http://***"),
        ("shards/a.tar?b=c", "shards/a.tar?b=c"),
    ],
)
def test_no_secret_is_shown(location: str, shown: str) -> None:
    assert mask_url(location) == shown


def test_every_url_in_a_text_is_masked() -> None:
    text = "see s3://k:SECRET@b/a, https://h/b?sig=SECRET. And c://d"
    assert mask_urls(text) == "see s3://***@b/a, https://h/b?sig=***. And c://d"


_WORDS = st.text("abcXYZ019._-~%+", min_size=1, max_size=8)


@given(
    scheme=st.sampled_from(["http", "HTTPS", "s3", "abfs"]),
    user=_WORDS,
    path=_WORDS,
    names=st.lists(_WORDS, max_size=3),
    before=st.text(max_size=9),
    after=st.sampled_from(["", ".", ": gone", ", and", "' is", ") \x1b[0m", "\n"]),
)
def test_no_secret_survives_wherever_a_url_stands(
    scheme: str, user: str, path: str, names: list[str], before: str, after: str
) -> None:
    query = "&".join(f"{name}=SECRET{name}" for name in names)
    url = f"{scheme}://{user}:SECRET@host/{path}" + (f"?{query}" if names else "")
    assert "SECRET" not in mask_url(url)
    assert "SECRET" not in mask_urls(f"{before} {url}{after}")
    assert mask_url(mask_url(url)) == mask_url(url)


@pytest.mark.parametrize(
    ("manifest", "shard"),
    [
        ("http://h/d/t.manifest.json?sig=1", "http://h/d/t-0.tar"),
        ("s3://bucket/d/t.manifest.json", "s3://bucket/d/t-0.tar"),
        ("hf://datasets/me/set@main/t.manifest.json", "hf://datasets/me/set@main/t-0.tar"),
    ],
)
def test_a_shard_lies_where_its_manifest_lies(manifest: str, shard: str) -> None:
    assert beside(manifest, "t-0.tar") == shard


@pytest.mark.parametrize(
    ("name", "quoted"), [("a b#?.tar", "a%20b%23%3F.tar"), ("x:y.tar", "x%3Ay.tar"), ("\udce9.tar", "%E9.tar")]
)
def test_a_shard_of_any_name_has_a_url(name: str, quoted: str) -> None:
    assert beside("http://h/d/t.manifest.json", name) == f"http://h/d/{quoted}"
