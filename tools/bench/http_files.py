"""Serve a folder over http with ranges, as a store does: `python -m bench.http_files FOLDER` prints its port."""

from __future__ import annotations

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

__all__ = ["main"]


class _Files(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    folder: Path

    def do_GET(self) -> None:
        file = self.folder / Path(self.path).name
        if not file.is_file():
            self.send_error(404)
            return
        body, asked = file.read_bytes(), self.headers.get("Range")
        num_bytes = len(body)
        self.send_response(206 if asked else 200)
        if asked:
            start, _, end = asked.removeprefix("bytes=").partition("-")
            first, last = int(start), min(int(end or num_bytes), num_bytes - 1)
            self.send_header("Content-Range", f"bytes {first}-{last}/{num_bytes}")
            body = body[first : last + 1]
        self.send_header("ETag", f'"{num_bytes:x}"')
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        try:
            self.wfile.write(body)
        except OSError:
            self.close_connection = True  # whoever asked has seen enough

    def log_message(self, format: str, *args: object) -> None:
        """Stay silent."""


def main() -> None:
    """Serve until the process is ended."""
    _Files.folder = Path(sys.argv[1])
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Files)
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
