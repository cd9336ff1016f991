from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from resnettrain import ConfigError, read_metrics, resolve_config, train, verdict
from tests.helpers.picture_sets import PictureSet, tiny_config


@pytest.mark.slow
def test_one_batch_over_and_over_is_learnt_by_heart(train_set: PictureSet, tmp_path: Path) -> None:
    config = tiny_config(
        train_set, tmp_path / "run", data__one_batch=True, schedule__epochs=8, data__batch_size=8,
        checkpoint__every_epochs=8,
    )  # fmt: skip
    train(config)
    (judged,) = verdict(read_metrics(tmp_path / "run"), config=config)
    assert judged.text.startswith("Passed: the one batch is learnt by heart: loss 0.0")


def test_made_up_pictures_need_no_shards_and_leave_a_trace_of_some_updates(tmp_path: Path) -> None:
    overrides = ["data.pipeline=synthetic", "data.batch_size=4", "model.name=tiny", "model.image_size=32"]
    overrides += ["schedule.max_updates=6", "runtime.profile=2", "runtime.device=cpu", "runtime.threads=1"]
    config = replace(resolve_config(overrides=overrides), run_dir=tmp_path / "run")
    result = train(config)
    assert (result.outcome, result.samples) == ("capped", 24)
    trace = json.loads((tmp_path / "run" / "trace.json").read_text())
    assert any("conv" in str(event.get("name")) for event in trace["traceEvents"])
    with pytest.raises(ConfigError, match="are not resumed"):
        train(config, resume=tmp_path / "run")


def test_made_up_pictures_beside_shards_are_refused(train_set: PictureSet, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="name no shards"):
        train(tiny_config(train_set, tmp_path / "run", data__pipeline="synthetic"))
