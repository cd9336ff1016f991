"""A command's output as a stream of bytes (``pipe:cat a.tar``); how the command ends is part of what it gives.

The text goes to ``/bin/sh``, as webdataset hands it over, so it is run only where the caller was told to.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections import deque
from typing import IO

from shardkit.errors import RemoteError, printable
from shardkit.locations import COMMAND_PREFIX, mask_urls

__all__ = ["CommandStream"]

# The last lines of stderr that a message repeats, and how much of each.
_LAST_LINES = 3
_LINE_CHARACTERS = 200
# A command that has closed its output ends soon, or hangs.
_ENDS_WITHIN_S = 60.0


class CommandStream:
    """What a command writes to its standard output; ``failure`` says if it did not end with status 0.

    Raises: RemoteError: there is no command, or no shell.
    """

    num_bytes: int | None = None
    version: str | None = None
    first = 0
    stop: int | None = None
    kind = ""

    def __init__(self, location: str) -> None:
        command = location.removeprefix(COMMAND_PREFIX)
        if not command.strip():
            raise RemoteError(location, "there is no command behind it. Write it like 'pipe:cat a.tar'")
        self._location = location
        self.error: RemoteError | None = None
        self._position = 0
        self._ended = False
        try:
            # A session of its own: all parts of a pipeline can be ended together.
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise RemoteError(location, f"the command cannot be started: {error}") from error
        assert self._process.stdout is not None and self._process.stderr is not None  # noqa: S101, PT018  # PIPE above
        self._output: IO[bytes] = self._process.stdout
        self._lines: deque[bytes] = deque(maxlen=_LAST_LINES)
        # Read all the time, or a command that complains a lot would wait for us as we wait for it.
        self._listener = threading.Thread(target=self._listen, args=(self._process.stderr,), daemon=True)
        self._listener.start()

    @property
    def failure(self) -> str | None:
        """How the command ended, in words; None where it ended well, or has not ended."""
        return None if self.error is None else self.error.reason

    def read(self, size: int, /) -> bytes:
        if self._ended:
            return b""
        piece = self._output.read(size) or b""
        self._position += len(piece)
        if not piece and size:
            self._ended = True
            failure = self._how_it_ended()
            self.error = None if failure is None else RemoteError(self._location, failure)
        return piece

    def close(self) -> None:
        """End the command, if it has not ended, and all that it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._output.close()
        # A part of the command that left its session may keep stderr open: it is not waited for.
        self._listener.join(timeout=1.0)

    def _how_it_ended(self) -> str | None:
        try:
            status = self._process.wait(timeout=_ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            return f"the command closed its output after {self._position} bytes but does not end"
        if not status:
            return None
        self._listener.join(timeout=1.0)
        said = b" / ".join(self._lines).decode("utf-8", "replace")
        ending = f"status {status}" if status > 0 else f"signal {-status}"
        words = f"the command ended with {ending} after {self._position} bytes"
        return f"{words}; it said '{mask_urls(printable(said))}'" if said else words

    def _listen(self, stderr: IO[bytes]) -> None:
        with stderr:
            rest = b""
            while piece := stderr.read(1 << 16):
                *lines, rest = (rest + piece).split(b"\n")
                # A line without an end must not fill the memory.
                rest = rest[-_LINE_CHARACTERS:]
                self._lines.extend(line.strip()[:_LINE_CHARACTERS] for line in lines if line.strip())
            if rest.strip():
                self._lines.append(rest.strip())
