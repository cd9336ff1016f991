"""What tests of the loader share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture
def one_thread() -> Iterator[None]:
    """One thread for torch: where cores are busy, threads that wait for each other take long for small pictures."""
    import torch  # most tests here do without

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
