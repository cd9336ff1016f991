from __future__ import annotations

from pathlib import Path

import pytest

from shardkit import PackConfig
from wds import pack_view


@pytest.mark.parametrize(
    "told", [(), ("--on-exists", "resume"), ("--on-exists=overwrite",), ("--on-exists", "overwrite")]
)
def test_a_packing_that_ends_early_says_once_how_to_go_on(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    told: tuple[str, ...],
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = PackConfig(folder=tmp_path, prefix="t")
    config.plan_path.touch()
    monkeypatch.setattr("sys.argv", ["wds", "reshard", "a b.tar", *told, "--seed", "1"])
    caplog.set_level("INFO")
    with pytest.raises(RuntimeError), pack_view.packing(config, total=1, quiet=True):
        raise RuntimeError
    assert caplog.messages[-1].endswith("To go on: wds reshard 'a b.tar' --seed 1 --on-exists resume")
