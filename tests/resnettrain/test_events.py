from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from resnettrain import ConfigError
from resnettrain.events import EventWriter

HAS_TENSORBOARD = importlib.util.find_spec("tensorboard") is not None


@pytest.mark.skipif(HAS_TENSORBOARD, reason="tensorboard is here")
def test_without_tensorboard_events_are_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"pip install tensorboard\.$"):
        EventWriter(tmp_path, start_samples=None)


@pytest.mark.skipif(not HAS_TENSORBOARD, reason="needs tensorboard")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_events_have_the_figures_of_a_record_at_its_samples(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    writer = EventWriter(tmp_path, start_samples=None)
    writer.write("train", {"samples": 64, "batch": 4, "updates": 4, "loss": 1.5, "weights": "ema", "lr": 0.1})
    writer.close()
    read = EventAccumulator(str(tmp_path / "tensorboard"))
    read.Reload()
    assert sorted(read.Tags()["scalars"]) == ["train/loss", "train/lr"]
    assert [(event.step, event.value) for event in read.Scalars("train/loss")] == [(64, 1.5)]
