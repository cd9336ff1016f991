from __future__ import annotations

import gc
import weakref

from resnettrain.garbage import Collector


class Knot:
    def __init__(self) -> None:
        self.self = self


def test_cycles_are_collected_when_it_is_due_and_not_in_between() -> None:
    with Collector(every=10) as collector:
        collector.after_update(1)
        knot = weakref.ref(Knot())
        for updates in range(2, 10):
            collector.after_update(updates)
            assert knot() is not None
        collector.after_update(10)
        assert knot() is None


def test_afterwards_all_is_as_it_was_before() -> None:
    frozen = gc.get_freeze_count()
    with Collector(every=10) as collector:
        collector.after_update(1)
        assert not gc.isenabled()
        assert gc.get_freeze_count() > frozen
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


def test_every_nothing_leaves_python_to_itself() -> None:
    with Collector(every=0) as collector:
        collector.after_update(1)
        assert gc.isenabled()
