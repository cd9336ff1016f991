"""What the hub of Hugging Face, Google's and Azure's stores answer to a reader, of one folder, on 127.0.0.1.

No more of their protocols than it takes to look at a file and to read a part of it: their own clients ask.
"""

from __future__ import annotations

import json
import re
import zlib
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from tests.helpers.http_server import answering

__all__ = ["Stores", "stores_of"]

_HUB = "/api/datasets/me/data"
_CONTENT = re.compile(r"/(?:datasets/me/data/resolve/[^/]+|me/data)/([^/]+)|/(?:download/)?storage/v1/b/data/o/([^/]+)")
_DATE = "Mon, 02 Nov 2026 10:00:00 GMT"


@dataclass(slots=True)
class Stores:
    """The running server. ``failures``: file name -> statuses, one a reply, 0: cut short; then it is served well.

    ``parts``: the parts of files that were sent, as they were asked for; ``asked``: the path of every request.
    """

    url: str
    folder: Path
    failures: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    parts: list[tuple[str, str]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)


@contextmanager
def stores_of(folder: Path) -> Iterator[Stores]:
    """Serve the folder as the dataset ``me/data``, as the bucket ``data`` and as the container ``data`` of ``me``."""
    stores = Stores("", folder)
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), type("_Handler", (_Answering,), {"stores": stores}))
    httpd.daemon_threads = True
    with answering(httpd) as stores.url:
        yield stores


class _Answering(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    stores: Stores

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        self.stores.asked.append(asked.path)
        sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if asked.path in (_HUB, f"{_HUB}/revision/main"):
            self._say({"id": "me/data", "sha": "c0ffee", "siblings": []})
        elif asked.path == f"{_HUB}/paths-info/main":
            paths = parse_qs(sent.decode())["paths"]
            self._say([self._on_hub(path) for path in paths if (self.stores.folder / path).exists()])
        elif content := _CONTENT.fullmatch(unquote(asked.path)):
            self._serve(content[1] or content[2], of_google=content[2] is not None and "alt=media" not in asked.query)
        elif "comp=list" in asked.query:
            none = b'<?xml version="1.0"?><EnumerationResults><Blobs/></EnumerationResults>'
            self._reply(200, none, {"Content-Type": "application/xml"})
        else:
            self._say({"kind": "storage#objects", "error": "not here"}, status=404)

    do_HEAD = do_POST = do_GET  # noqa: N815  # http.server's names

    def _on_hub(self, path: str) -> dict[str, object]:
        data = (self.stores.folder / path).read_bytes()
        commit = {"id": "c0ffee", "title": "add", "date": "2026-11-02T10:00:00.000Z"}
        state = f"{zlib.crc32(data):040x}"
        return {"type": "file", "path": path, "size": len(data), "oid": state, "lastCommit": commit}

    def _serve(self, name: str, *, of_google: bool) -> None:
        """Send a file, or the part asked for, or as Google has it, what is known of it."""
        file = self.stores.folder / name
        if not file.is_file():
            self._say({"error": {"code": 404, "message": "not here"}}, status=404)
            return
        data = file.read_bytes()
        state = f"{zlib.crc32(data):x}"
        if of_google:
            known = {"kind": "storage#object", "name": name, "bucket": "data", "size": str(len(data))}
            times = {"updated": "2026-11-02T10:00:00.000Z", "timeCreated": "2026-11-02T10:00:00.000Z"}
            self._say({**known, **times, "generation": "1", "md5Hash": state, "etag": state})
            return
        failure = self.stores.failures[name].pop(0) if self.command == "GET" and self.stores.failures[name] else None
        if failure:
            self._say({"error": {"code": failure, "message": "busy"}}, status=failure)
            return
        part = self.headers.get("x-ms-range") or self.headers.get("Range")
        headers = {
            "ETag": f'"{state}"',
            "Last-Modified": _DATE,
            "x-ms-blob-type": "BlockBlob",
            "x-ms-version": "2025-01",
        }
        whole = len(data)
        if part is not None:
            start, _, end = part.removeprefix("bytes=").partition("-")
            data = data[int(start) : int(end or whole - 1) + 1]
            headers["Content-Range"] = f"bytes {start}-{int(start) + len(data) - 1}/{whole}"
            self.stores.parts.append((name, part))
        self._reply(200 if part is None else 206, data, headers, cut=failure == 0)

    def _say(self, document: object, *, status: int = 200) -> None:
        self._reply(status, json.dumps(document).encode(), {"Content-Type": "application/json"})

    def _reply(self, status: int, body: bytes, headers: dict[str, str], *, cut: bool = False) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[: len(body) // 2] if cut else body)
        self.close_connection = cut

    def log_message(self, format: str, *args: object) -> None:
        """Stay silent."""
