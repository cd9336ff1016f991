"""What a shard's location is - a path, a URL, a command - and how it is shown: never with its secrets. Pure."""

from __future__ import annotations

import re
from urllib.parse import quote, urljoin, urlsplit, urlunsplit

__all__ = [
    "COMMAND_PREFIX",
    "bare_url",
    "beside",
    "is_command",
    "is_url",
    "is_web",
    "local_path",
    "mask_url",
    "mask_urls",
    "scheme_of",
]

# As webdataset has it: what follows is a command whose output is the shard.
COMMAND_PREFIX = "pipe:"
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)
# What follows a URL in a sentence does not belong to it. Right before it may be the end of a colour code, which then
# counts as part of the scheme, of bounded length so that no text takes long.
_URL_IN_TEXT = re.compile(r"[a-z][a-z0-9+.-]{0,30}://[^\s'\"]+?(?=[:.,;)\]]*(?:[\s'\"]|$))", re.IGNORECASE)


def is_url(location: str) -> bool:
    """Tell whether the location names its scheme (``http://..``), so is no local path."""
    return _SCHEME.match(location) is not None


def is_web(location: str) -> bool:
    """Tell whether the location is an http(s) URL."""
    return scheme_of(location) in ("http", "https")


def is_command(location: str) -> bool:
    """Tell whether the location is a command (``pipe:cat a.tar``) rather than a place."""
    return location.startswith(COMMAND_PREFIX)


def local_path(location: str) -> str | None:
    """Return the path that a location names, a ``file://`` URL too; None for what is elsewhere, or no place.

    Signs that begin a query or a fragment elsewhere are a file's name here. Raises: OSError: a URL of another host.
    """
    if scheme_of(location) == "file":
        # Imported on use: HTTP and e-mail come with it, a tenth of the time in which a process starts.
        from urllib.request import url2pathname

        host, slash, path = location.partition("://")[2].partition("/")
        if host.lower() not in ("", "localhost"):
            raise FileNotFoundError(f"{mask_url(location)}: no path of this machine: file:// is followed by a host")
        return url2pathname(slash + path)
    return None if location == "-" or is_url(location) or is_command(location) else location


def scheme_of(location: str) -> str:
    """Return the scheme of a URL in lower case, "" for what is none."""
    match = _SCHEME.match(location)
    return match[1].lower() if match else ""


def beside(location: str, name: str) -> str:
    """Return the URL of the file of that name that lies where this one does; only the web's URLs have queries."""
    return f"{location.rpartition('/')[0]}/{name}" if not is_web(location) else urljoin(location, _quoted(name))


def bare_url(url: str) -> str:
    """Return the URL without user, password, query and fragment, which files that are passed on must not hold."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return _hidden(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def mask_url(url: str) -> str:
    """Return the URL fit for a message: no user, no password, no value of the query, no fragment.

    A path stays as it is; in a command every URL is masked.
    """
    if is_command(url):
        return COMMAND_PREFIX + mask_urls(url.removeprefix(COMMAND_PREFIX))
    if not is_url(url):
        return url
    try:
        parts = urlsplit(url)
    except ValueError:
        return _hidden(url)
    host = parts.netloc.rpartition("@")[2]
    query = re.sub(r"=[^&;]*", "=***", parts.query) if "=" in parts.query else "***" * bool(parts.query)
    return urlunsplit((parts.scheme, f"***@{host}" if "@" in parts.netloc else host, parts.path, query, ""))


def mask_urls(text: str) -> str:
    """Return the text with every URL in it masked."""
    return _URL_IN_TEXT.sub(lambda match: mask_url(match[0]), text) if "://" in text else text


def _quoted(name: str) -> str:
    # With its bytes that are not UTF-8, and with its colon, in front of which else a scheme would stand.
    return quote(name.encode("utf-8", "surrogateescape"))


def _hidden(url: str) -> str:
    """Return what is shown of a text that is no URL after all, such as one with half an IPv6 address: no secret."""
    return f"{url.partition('://')[0]}://***"
