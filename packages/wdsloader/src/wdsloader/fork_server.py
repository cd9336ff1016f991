"""Loaded by the fork server of multiprocessing alone: keeps it alive when a signal goes to the whole process group.

Were it to die, every worker would look dead to the main process, which is about to save its state.
"""

from __future__ import annotations

import signal
import sys

from wdsloader.processes import STOP_SIGNALS, ignore_signals

__all__: list[str] = []

# The fork server is started as `python -c ...`; imported anywhere else, this module does nothing.
if sys.argv[:1] == ["-c"]:
    ignore_signals()
    # They have been held back since before it was started.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
