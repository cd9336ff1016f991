from __future__ import annotations

import pytest

from wdsloader.errors import ConfigError
from wdsloader.places import as_path, require_allowed


@pytest.mark.parametrize(
    ("location", "path"),
    [("file:" + "///data/a%20b.tar", "/data/a b.tar"), ("s3://b/a.tar", "s3://b/a.tar"), ("x/a.tar", "x/a.tar")],
)
def test_a_file_url_is_a_path(location: str, path: str) -> None:
    assert as_path(location) == path


def test_a_command_needs_leave() -> None:
    require_allowed(["a.tar", "pipe:cat a.tar"], allow_commands=True)
    with pytest.raises(ConfigError, match=r"pipe:cat http://h/a\?sig=\*\*\*: a command is run only where"):
        require_allowed(["a.tar", "pipe:cat http://h/a?sig=SECRET"], allow_commands=False)
