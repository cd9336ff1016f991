"""A proxy on 127.0.0.1 before a real server: it passes requests on, and spoils as many replies as it is told to."""

from __future__ import annotations

import http.client
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.helpers.http_server import Misdeed, answering

__all__ = ["Proxy", "proxy_of"]


@dataclass(slots=True)
class Proxy:
    """The running proxy. ``misdeeds`` are used up one a GET of a path that ends so; ``gets``: paths asked for."""

    url: str
    port: int
    misdeeds: dict[str, list[Misdeed]] = field(default_factory=dict)
    gets: list[str] = field(default_factory=list)


@contextmanager
def proxy_of(port: int) -> Iterator[Proxy]:
    """Pass everything on to the server at that port until the block ends."""
    proxy = Proxy("", port)
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), type("_Handler", (_Passing,), {"proxy": proxy}))
    httpd.daemon_threads = True
    with answering(httpd) as proxy.url:
        yield proxy


class _Passing(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: Proxy
    lock = threading.Lock()

    def do_GET(self) -> None:
        with self.lock:
            path = self.path.partition("?")[0]
            self.proxy.gets.append(path)
            found = next(
                (deeds for suffix, deeds in self.proxy.misdeeds.items() if path.endswith(suffix) and deeds), None
            )
            misdeed = found.pop(0) if found else Misdeed()
        time.sleep(misdeed.wait_s)
        if misdeed.status != 200:
            self._answer(misdeed.status, {**misdeed.headers, "Content-Length": "0"}, b"", misdeed=Misdeed())
        else:
            self._pass_on(misdeed)

    def do_HEAD(self) -> None:
        self._pass_on(Misdeed())

    do_PUT = do_HEAD  # noqa: N815  # http.server's names
    do_POST = do_HEAD  # noqa: N815
    do_DELETE = do_HEAD  # noqa: N815

    def _pass_on(self, misdeed: Misdeed) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        connection = http.client.HTTPConnection("127.0.0.1", self.proxy.port, timeout=30)
        try:
            connection.request(self.command, self.path, body=content, headers=dict(self.headers.items()))
            reply = connection.getresponse()
            body = reply.read()
        finally:
            connection.close()
        dropped = {"transfer-encoding", "connection", "server", "date"}
        headers = {name: value for name, value in reply.getheaders() if name.lower() not in dropped}
        if self.command != "HEAD":
            headers = {name: value for name, value in headers.items() if name.lower() != "content-length"}
            headers["Content-Length"] = str(len(body))
        self._answer(reply.status, headers, body, misdeed=misdeed)

    def _answer(self, status: int, headers: dict[str, str], body: bytes, *, misdeed: Misdeed) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body[: misdeed.cut_after])
        if misdeed.cut_after is not None:
            self.wfile.flush()
            time.sleep(max(misdeed.stall_s, 0.1))
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Stay silent."""
