"""A real browser without a screen, where one is installed: what a page looks like, whom it calls, and what is in it."""

from __future__ import annotations

import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

__all__ = ["CHROMIUM", "Elements", "browse"]

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"),
    *("--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--proxy-bypass-list=<-loopback>",
)


class Elements(HTMLParser):
    """The elements of a page, and the addresses in them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "data", "action")]


def browse(page: Path, *options: str, proxy: str, cwd: Path) -> str:
    """Open a page, all of whose requests go to a proxy; return what the browser prints (``--dump-dom``: the page)."""
    assert CHROMIUM is not None
    command = [
        CHROMIUM,
        *_OPTIONS,
        f"--user-data-dir={cwd}/profile",
        f"--proxy-server={proxy}",
        *options,
        page.as_uri(),
    ]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, check=True).stdout
