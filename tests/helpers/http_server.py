"""A real web server on 127.0.0.1 that serves a folder, and misbehaves exactly as often as a test tells it to."""

from __future__ import annotations

import socket
import struct
import threading
import time
import zlib
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

__all__ = ["Misdeed", "Request", "Server", "answering", "serve"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Misdeed:
    """One wrong reply: another status or body, one cut (or reset) after some bytes, a silence before or behind it."""

    status: int = 200
    body: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)
    cut_after: int | None = None
    stall_s: float = 0.0
    wait_s: float = 0.0
    reset: bool = False


@dataclass(frozen=True, slots=True)
class Request:
    """What arrived: path with query, credentials, the range of bytes asked for, and the port it came from."""

    path: str
    authorization: str | None
    range: str | None = None
    peer: int = 0


@dataclass(slots=True)
class Server:
    """The running server. ``misdeeds`` are used up one a request; later requests of the path are served well.

    ``ranges``: it names the version of a file (ETag) and serves parts of it. ``bytes_per_s``: of each reply.
    ``one_fails_in``: of so many requests one is cut short, or answered with 503, in turn. ``arrivals``: when each
    request came, in monotonic seconds.
    """

    url: str
    ranges: bool = False
    bytes_per_s: float | None = None
    one_fails_in: int | None = None
    misdeeds: dict[str, list[Misdeed]] = field(default_factory=lambda: defaultdict(list))
    requests: list[Request] = field(default_factory=list)
    arrivals: list[float] = field(default_factory=list)

    def count(self, path: str) -> int:
        """Return the number of requests for a path, whatever their query."""
        return sum(urlsplit(request.path).path == path for request in self.requests)

    @property
    def connections(self) -> int:
        """The number of connections that requests came over."""
        return len({request.peer for request in self.requests})

    def misdeed_of(self, path: str) -> Misdeed | None:
        """Return what is to go wrong with the request that came last."""
        if self.misdeeds[path]:
            return self.misdeeds[path].pop(0)
        number = len(self.requests)
        if self.one_fails_in is None or number % self.one_fails_in:
            return None
        cut = Misdeed(cut_after=700, reset=True)
        return cut if number // self.one_fails_in % 2 else Misdeed(status=503, body=b"busy")


@contextmanager
def answering(httpd: ThreadingHTTPServer) -> Iterator[str]:
    """Have a thread answer requests until the block ends; yield the server's URL."""
    thread = threading.Thread(target=httpd.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{httpd.server_address[1]}"
    finally:
        httpd.shutdown()
        httpd.server_close()
        thread.join()


@contextmanager
def serve(folder: Path) -> Iterator[Server]:
    """Serve the folder until the block ends."""
    httpd = _Quiet(("127.0.0.1", 0), _Handler)
    server = Server(f"http://127.0.0.1:{httpd.server_address[1]}")
    _Handler.folders[httpd.server_address[1]] = (folder, server)
    with answering(httpd):
        yield server


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True
    # Many workers connect at once.
    request_queue_size = 64

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of clients that went away."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    folders: dict[int, tuple[Path, Server]] = {}  # noqa: RUF012  # shared by intent: handlers are made by the server
    lock = threading.Lock()

    def do_GET(self) -> None:
        folder, server = self.folders[self.server.server_address[1]]  # type: ignore[index]  # an (address, port) pair
        path = urlsplit(self.path).path
        with self.lock:
            asked = self.headers.get("Range")
            server.requests.append(Request(self.path, self.headers.get("Authorization"), asked, self.client_address[1]))
            server.arrivals.append(time.monotonic())
            misdeed = server.misdeed_of(path)
        time.sleep(0 if misdeed is None else misdeed.wait_s)
        file = folder / path.lstrip("/")
        if misdeed is None and not file.is_file():
            misdeed = Misdeed(status=404, body=b"not here")
        misdeed = misdeed or Misdeed()
        body = misdeed.body if misdeed.body is not None else file.read_bytes() if file.is_file() else b""
        status, headers = misdeed.status, {"Content-Type": "application/x-tar"}
        if server.ranges and status == 200:
            headers["ETag"] = f'"{zlib.crc32(body):x}"'
            if asked is not None and self.headers.get("If-Range", headers["ETag"]) == headers["ETag"]:
                start, _, end = asked.removeprefix("bytes=").partition("-")
                first, last = int(start), min(int(end or len(body)), len(body) - 1)
                status, headers["Content-Range"] = 206, f"bytes {first}-{last}/{len(body)}"
                body = body[first : last + 1]
        self.send_response(status)
        headers = {"Content-Length": str(len(body))} | headers | misdeed.headers
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self._send(body[: misdeed.cut_after], bytes_per_s=server.bytes_per_s)
        if misdeed.stall_s:
            self.wfile.flush()
            time.sleep(misdeed.stall_s)
        self.close_connection = misdeed.cut_after is not None
        if misdeed.reset:
            self.wfile.flush()
            # Long enough for what was sent to be read: a reset throws away what is under way.
            time.sleep(0.1)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def _send(self, body: bytes, *, bytes_per_s: float | None) -> None:
        piece = len(body) if bytes_per_s is None else max(1, int(bytes_per_s / 20))
        try:
            for start in range(0, len(body), piece or 1):
                self.wfile.write(body[start : start + piece])
                if bytes_per_s is not None:
                    time.sleep(0.05)
        except OSError:
            # Whoever asked has seen enough, or is dead.
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Stay silent."""
