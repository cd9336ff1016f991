"""What the locations of a dataset mean to a loader: local paths, what may be used. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit
from urllib.request import url2pathname

from shardkit import is_command, mask_url, scheme_of
from wdsloader.errors import ConfigError

__all__ = ["as_path", "require_allowed"]


def as_path(location: str) -> str:
    """Return a ``file://`` URL as the path it names; any other location as it is."""
    return url2pathname(urlsplit(location).path) if scheme_of(location) == "file" else location


def require_allowed(locations: Iterable[str], *, allow_commands: bool) -> None:
    """Refuse commands unless they are allowed. Raises: ConfigError."""
    commands = [location for location in locations if is_command(location)]
    if commands and not allow_commands:
        reason = "a command is run only where commands are allowed. Allow them (--allow-commands) if you trust it"
        raise ConfigError(f"{mask_url(commands[0])}: {reason}")
