from __future__ import annotations

import signal

import pytest

from resnettrain.stop import StopRequest


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_raises_the_flag_and_nothing_else(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with StopRequest() as stop:
        heard = [stop.signal]
        signal.raise_signal(number)
        heard.append(stop.signal)
    assert heard == [None, number]
    assert signal.getsignal(number) is before


def test_a_second_press_at_once_is_the_same_request_and_a_later_one_means_now() -> None:
    seconds = 10.0
    stop = StopRequest(clock=lambda: seconds)
    stop.ask(signal.SIGTERM)
    seconds = 11.0
    stop.ask(signal.SIGINT)
    assert stop.signal == signal.SIGTERM
    seconds = 13.0
    with pytest.raises(KeyboardInterrupt):
        stop.ask(signal.SIGINT)
