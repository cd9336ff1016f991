from __future__ import annotations

import signal
from pathlib import Path

import pytest

from resnettrain import Rank
from resnettrain.distributed import Ranks, open_ranks
from resnettrain.stop import TIME_IS_UP, Agreement, StopRequest
from tests.helpers.ranks import run_ranks


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
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


def test_one_rank_alone_is_answered_at_once() -> None:
    agreement = Agreement(Ranks(), every=4)
    assert [agreement.poll(asked) for asked in (None, TIME_IS_UP, signal.SIGTERM)] == [None, TIME_IS_UP, 15]


def answers(place: Rank, every: int) -> list[int | None]:
    """Ask for SIGTERM at the third step of rank 1, and for less on the other."""
    with open_ranks(place) as ranks:
        agreement = Agreement(ranks, every=every)
        found = [agreement.poll((TIME_IS_UP, signal.SIGTERM)[place.rank] if step > 2 else None) for step in range(9)]
        agreement.close()
    return found


@pytest.mark.parametrize(("every", "step"), [(1, 4), (2, 5)])
def test_all_ranks_get_the_one_answer_at_the_one_step(tmp_path: Path, every: int, step: int) -> None:
    first, second = run_ranks(answers, every, world_size=2, folder=tmp_path)
    assert first == second
    assert next(number for number, answer in enumerate(first) if answer is not None) == step
    assert first[step] == signal.SIGTERM
