from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
import torch

from resnettrain import load_trained
from tests.helpers.cli import invoke
from tests.helpers.picture_sets import PictureSet
from tests.helpers.pictures import cut_jpeg
from tests.helpers.shards import jpeg_bytes
from tests.wds.conftest import FinishedRun


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    folder = tmp_path / "pictures" / "deep"
    folder.mkdir(parents=True)
    (folder / "a.jpg").write_bytes(jpeg_bytes(1))
    (folder / "b.JPEG").write_bytes(jpeg_bytes(2))
    (folder / "notes.txt").write_text("no picture")
    return tmp_path / "pictures"


def test_pictures_of_a_folder_get_their_likeliest_classes_by_name(finished: FinishedRun, pictures: Path) -> None:
    ended = invoke("predict", pictures, "-c", finished.folder, "--top-k", 2)
    assert ended.code == 0
    lines = ended.stdout.splitlines()
    assert [line.partition(": ")[0] for line in lines] == [f"{pictures}/deep/a.jpg", f"{pictures}/deep/b.JPEG"]
    assert all(line.count("fake000") == 2 and line.count("%") == 2 for line in lines)


def test_predictions_of_shards_are_those_of_the_evaluation(finished: FinishedRun, val_set: PictureSet) -> None:
    ended = invoke("predict", *val_set.shards, "-c", finished.folder, "--json", "--top-k", 1, "--batch-size", 8)
    answers = [json.loads(line) for line in ended.stdout.splitlines()]
    shares = [answer["classes"][0]["share"] for answer in answers]
    assert len(answers) == 37
    assert all(0 < share <= 1 for share in shares)
    evaluated = json.loads(invoke("eval", finished.folder, "--per-class", "--json").stdout)
    predicted = [sum(column) for column in zip(*evaluated["classes"]["confusion"], strict=True)]
    labels = [answer["classes"][0]["label"] for answer in answers]
    assert [labels.count(number) for number in range(4)] == predicted
    assert evaluated["classes"]["names"] == ["fake0000", "fake0001", "fake0002", "fake0003"]


def test_each_class_is_told_by_name_with_what_it_was_mostly_taken_for(finished: FinishedRun) -> None:
    classes = json.loads(invoke("eval", finished.folder, "--per-class", "--json").stdout)["classes"]
    lines = invoke("eval", finished.folder, "--per-class").stdout.splitlines()[1:]
    assert [line.partition(":")[0] for line in lines] == [f"class {number} fake000{number}" for number in range(4)]
    for number, (line, row) in enumerate(zip(lines, classes["confusion"], strict=True)):
        wrong = [0 if column == number else count for column, count in enumerate(row)]
        most = max(wrong)
        assert line.endswith(f"  {most} taken for {wrong.index(most)} fake000{wrong.index(most)}") == (most > 0)


def test_bad_pictures_are_told_counted_and_cost_the_exit_code(finished: FinishedRun, pictures: Path) -> None:
    (pictures / "bad.jpg").write_bytes(cut_jpeg())
    ended = invoke("predict", pictures, "-c", finished.folder)
    assert ended.code == 1
    assert f"{pictures}/bad.jpg: " in ended.stderr
    assert "2 pictures were looked at, 1 could not be read" in ended.stderr
    assert len(ended.stdout.splitlines()) == 2
    skipped = invoke("predict", pictures, "-c", finished.folder, "--on-error", "skip", "--json")
    assert skipped.code == 0
    assert ["error" in json.loads(line) for line in skipped.stdout.splitlines()] == [True, False, False]


def test_what_is_not_there_is_wrong_use(finished: FinishedRun, tmp_path: Path) -> None:
    for word in (tmp_path / "none.jpg", tmp_path / "*.jpg"):
        assert invoke("predict", word, "-c", finished.folder).code == 2
    (tmp_path / "empty").mkdir()
    assert invoke("predict", tmp_path / "empty", "-c", finished.folder).code == 2


# -------------------------------------------------------------------------------------------------------------- export


def test_torch_export_answers_as_the_checkpoint_and_carries_names(finished: FinishedRun, tmp_path: Path) -> None:
    path = tmp_path / "model.pt2"
    ended = invoke("export", finished.folder, "--format", "torch-export", "-o", path)
    assert ended.code == 0, ended.stderr
    files = {"resnettrain.json": ""}
    program = torch.export.load(path, extra_files=files)
    images = torch.randn(5, 3, 32, 32)
    with torch.inference_mode():
        assert torch.allclose(program.module()(images), load_trained(finished.folder).model(images), atol=1e-5)
    facts = json.loads(files["resnettrain.json"])
    assert facts["classes"] == ["fake0000", "fake0001", "fake0002", "fake0003"]
    assert (facts["input"]["image_size"], facts["input"]["mean"]) == (32, [0.485, 0.456, 0.406])
    again = invoke("export", finished.folder, "--format", "torch-export", "-o", path)
    assert again.code == 2
    assert "--on-exists overwrite" in again.stderr


def test_safetensors_hold_the_weights_names_and_preprocessing(finished: FinishedRun, tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors")
    path = tmp_path / "model.safetensors"
    assert invoke("export", finished.folder, "-o", path).code == 0
    with safetensors.safe_open(path, framework="pt") as file:
        assert json.loads(file.metadata()["resnettrain"])["classes"][0] == "fake0000"
        assert torch.equal(file.get_tensor("fc.bias"), load_trained(finished.folder).model.state_dict()["fc.bias"])


@pytest.mark.slow
def test_onnx_answers_as_the_checkpoint(finished: FinishedRun, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    path = tmp_path / "model.onnx"
    ended = invoke("export", finished.folder, "--format", "onnx", "-o", path)
    assert ended.code == 0, ended.stderr
    session = onnxruntime.InferenceSession(path)
    images = torch.randn(5, 3, 32, 32)
    found = torch.from_numpy(session.run(["logits"], {"images": images.numpy()})[0])
    with torch.inference_mode():
        assert torch.allclose(found, load_trained(finished.folder).model(images), atol=1e-5)
    assert "fake0000" in session.get_modelmeta().custom_metadata_map["resnettrain"]


@pytest.mark.skipif(importlib.util.find_spec("onnx") is not None, reason="onnx is here")
def test_onnx_without_its_package_is_refused_in_words(finished: FinishedRun, tmp_path: Path) -> None:
    ended = invoke("export", finished.folder, "--format", "onnx", "-o", tmp_path / "model.onnx")
    assert ended.code == 2
    assert "ONNX needs onnx, onnxruntime and onnxscript, and onnx is not installed. Install them, or" in ended.stderr
    assert "extra 'onnx'" in ended.stderr
    assert not (tmp_path / "model.onnx").exists()


def test_a_dry_run_writes_nothing(finished: FinishedRun, tmp_path: Path) -> None:
    ended = invoke("export", finished.folder, "-o", tmp_path / "x.safetensors", "--dry-run")
    assert (ended.code, "would write" in ended.stdout, list(tmp_path.iterdir())) == (0, True, [])


def test_an_empty_folder_after_shards_is_told(finished: FinishedRun, val_set: PictureSet, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    ended = invoke("predict", val_set.shards[0], tmp_path / "empty", "-c", finished.folder)
    assert (ended.code, f"{tmp_path}/empty: no picture and no shard" in ended.stderr) == (2, True)


def test_a_format_that_is_none_is_refused_in_plain_words(tmp_path: Path) -> None:
    ended = invoke("export", tmp_path, "--format", "torch.export")
    assert ended.code == 2
    assert ended.stderr.startswith("Error: Invalid value for '--format' / '-f': 'torch.export' is not one of 'safetens")


@pytest.mark.parametrize("args", [("predict", "a.jpg", "-c", "nothing"), ("export", "nothing")])
def test_a_checkpoint_that_is_not_there_is_wrong_use(args: tuple[str, ...]) -> None:
    ended = invoke(*args)
    assert (ended.code, "'nothing' does not exist" in ended.stderr) == (2, True)
