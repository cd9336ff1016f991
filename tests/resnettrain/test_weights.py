from __future__ import annotations

import io
import logging
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from resnettrain import CheckpointError, ConfigError, UnsafeCheckpointError, build_model, load_trained, train
from resnettrain.weights import read_weights, start_from
from tests.helpers.picture_sets import PictureSet, tiny_config


def stored(content: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


def tiny(num_classes: int = 10) -> torch.nn.Module:
    return build_model("tiny", num_classes=num_classes, seed=1)


def taken(content: Mapping[str, Any], *, num_classes: int = 10) -> tuple[str, torch.nn.Module]:
    model = build_model("tiny", num_classes=num_classes, seed=2)
    path = Path("w.pth")
    return str(start_from(read_weights(stored(content), path=path), model=model, path=path)), model


@pytest.mark.parametrize("wrap", [lambda w: w, lambda w: {"model": w, "epoch": 3}, lambda w: {"state_dict": w}])
@pytest.mark.parametrize("prefix", ["", "module."])
def test_weights_are_found_where_programs_keep_them(wrap: Any, prefix: str) -> None:
    source = tiny()
    said, model = taken(wrap({prefix + name: value for name, value in source.state_dict().items()}))
    assert said == f"{len(source.state_dict())} tensors taken"
    assert all(torch.equal(a, b) for a, b in zip(source.parameters(), model.parameters(), strict=True))


def test_another_number_of_classes_gets_a_new_head_and_is_told() -> None:
    fresh = build_model("tiny", num_classes=4, seed=2)
    said, model = taken(tiny().state_dict(), num_classes=4)
    assert said.endswith("tensors taken; new: fc.weight, fc.bias")
    assert torch.equal(model.state_dict()["fc.weight"], fresh.state_dict()["fc.weight"])
    assert torch.equal(model.state_dict()["conv1.weight"], tiny().state_dict()["conv1.weight"])


def test_weights_of_another_model_are_refused_and_nothing_is_changed() -> None:
    model = tiny()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    weights = build_model("resnet18", num_classes=10, seed=0).state_dict()
    with pytest.raises(CheckpointError, match=r"weights of another model: \d+ not in the model \(layer1\.1\.conv1"):
        start_from(weights, model=model, path=Path("w.pth"))
    cut = {name: value for name, value in before.items() if name != "conv1.weight"}
    with pytest.raises(CheckpointError, match=r"1 not in the file \(conv1.weight\)"):
        start_from(cut, model=model, path=Path("w.pth"))
    with pytest.raises(CheckpointError, match=r"1 of another shape \(conv1.weight\)"):
        start_from({**before, "conv1.weight": torch.zeros(3)}, model=model, path=Path("w.pth"))
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


@pytest.mark.parametrize("data", [b"", b"not weights", stored({}), stored([1]), stored({"a": 1}), stored({})[:50]])
def test_what_holds_no_weights_is_refused(data: bytes) -> None:
    with pytest.raises(CheckpointError):
        read_weights(data, path=Path("w.pth"))


def test_a_program_is_not_run() -> None:
    with pytest.raises(UnsafeCheckpointError):
        read_weights(pickle.dumps({"x": logging.StreamHandler}), path=Path("w.pth"))


def test_safetensors_are_read() -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    path = Path("w.safetensors")
    assert read_weights(safetensors.save({"x": torch.ones(2)}), path=path)["x"].tolist() == [1.0, 1.0]
    with pytest.raises(CheckpointError, match="damaged"):
        read_weights(b"x", path=path)


@pytest.mark.slow
def test_a_run_starts_from_the_checkpoint_of_another_and_resumes_without_it(
    train_set: PictureSet, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = train(tiny_config(train_set, tmp_path / "a", schedule__max_updates=1))
    assert first.checkpoint is not None
    start = tmp_path / "start.pt"
    first.checkpoint.rename(start)
    caplog.set_level(logging.INFO, logger="resnettrain")
    # At a learning rate that moves nothing, the weights are those of the start.
    config = tiny_config(
        train_set, tmp_path / "b", schedule__max_updates=1, model__init=start, optim__lr=1e-30, optim__weight_decay=0.0
    )
    second = train(config)
    assert second.checkpoint is not None
    one, two = (load_trained(path).model for path in (start, second.checkpoint))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    assert f"{start}: {len(one.state_dict())} tensors taken" in caplog.text
    start.unlink()
    assert (
        train(
            tiny_config(train_set, tmp_path / "b", model__init=start, schedule__max_updates=2), resume=tmp_path / "b"
        ).updates
        == 2
    )


def test_a_start_that_is_not_there_is_refused(train_set: PictureSet, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        train(tiny_config(train_set, tmp_path / "a", model__init=tmp_path / "none.pt"))
