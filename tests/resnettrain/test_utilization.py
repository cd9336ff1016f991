from __future__ import annotations

from pathlib import Path

import pytest

from resnettrain import TrainReport, read_metrics, resolve_config, train
from resnettrain.numerics import Numerics
from resnettrain.progress import without_waiting
from resnettrain.utilization import Utilization, peak_flops
from tests.helpers.picture_sets import PictureSet, tiny_config


def test_the_published_rate_of_one_h200_is_a_fifth_of_what_it_computes() -> None:
    """MLPerf v4.0: 7,950 images/s of ResNet-50 at 224 pixels, 24.3e9 operations each; eight ranks make eight of it."""
    config = resolve_config(flags={"log.peak_tflops": 989.0, "runtime.device": "cpu"})
    eight = Utilization(config, numerics=Numerics.of(config.runtime), num_classes=1000, world_size=8)
    assert eight.share(8 * 7950.0, image_size=224) == pytest.approx(0.195, abs=0.001)


@pytest.mark.parametrize(
    ("name", "precision", "tera"),
    [
        ("NVIDIA H200", "bf16", 989),
        ("NVIDIA H200 NVL", "bf16", 835),
        ("NVIDIA H100 80GB HBM3", "fp16", 989),
        ("NVIDIA H100 PCIe", "bf16", 756),
        ("NVIDIA A100-SXM4-80GB", "tf32", 156),
        ("NVIDIA A100-SXM4-80GB", "fp32", None),
        ("Something New", "bf16", None),
        ("", "fp32", None),
    ],
)
def test_the_peak_is_that_of_the_device_and_the_precision(name: str, precision: str, tera: float | None) -> None:
    found = peak_flops(name, precision=precision)
    assert (found and found / 1e12) == tera


def test_a_run_tells_its_share_where_the_peak_is_given_and_its_rate_without_waiting(
    train_set: PictureSet, tmp_path: Path
) -> None:
    reports: list[TrainReport] = []
    config = tiny_config(train_set, tmp_path / "run", schedule__max_updates=2, log__peak_tflops=1.0)
    result = train(config, progress=lambda event: reports.append(event) if isinstance(event, TrainReport) else None)
    lines = [line for line in read_metrics(tmp_path / "run") if line["kind"] == "train"]
    # 8.6e6 multiplications and additions of the tiny model at 32 pixels forward, three times that with backward.
    assert [line["mfu"] for line in lines] == pytest.approx([r.images_per_s * 1.07e-4 for r in reports], rel=0.05)
    assert [line["compute_images_per_s"] for line in lines] == [report.compute_images_per_s for report in reports]
    assert all(report.compute_images_per_s >= report.images_per_s for report in reports)
    assert result.compute_images_per_s >= result.images_per_s


@pytest.mark.parametrize(("share", "rate"), [(0.0, 100.0), (0.5, 200.0), (1.0, 0.0)])
def test_the_rate_without_waiting_is_that_of_the_rest_of_the_time(share: float, rate: float) -> None:
    assert without_waiting(100.0, wait_share=share) == rate
