"""What holds for every test: tests that need CUDA are skipped without it, hypothesis knows no deadlines."""

from __future__ import annotations

import functools
import signal

import hypothesis
import pytest

# Deadlines fail by chance on a machine that does other work as well; pytest-timeout stops what hangs.
hypothesis.settings.register_profile("wds", deadline=None, print_blob=True)
# A thousand examples of every law that sets no number of its own: pytest --hypothesis-profile=thorough
hypothesis.settings.register_profile("thorough", deadline=None, print_blob=True, max_examples=1000)
hypothesis.settings.load_profile("wds")

# A shell starts what it runs in the background deaf to Ctrl-C, and the processes that tests start inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@functools.cache
def _has_cuda() -> bool:
    torch = pytest.importorskip("torch")
    return bool(torch.cuda.is_available())


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("cuda") is not None and not _has_cuda():
        pytest.skip("needs a CUDA device")
