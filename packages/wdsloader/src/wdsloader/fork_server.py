"""Loaded by the fork server of multiprocessing alone: keeps it alive when a signal goes to the whole process group.

Were it to die, every worker would look dead to the main process, which is about to save its state.
"""

from __future__ import annotations

import signal
import sys

__all__: list[str] = []

# The fork server is started as `python -c ...`; imported anywhere else, this module does nothing.
if sys.argv[:1] == ["-c"]:
    _SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    # They have been held back since before it was started (processes.py).
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
