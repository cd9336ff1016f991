from __future__ import annotations

import pytest
import torch

from resnettrain import OutOfMemoryError, build_model
from resnettrain.config import DataConfig
from resnettrain.memory import fitting_batch, memory_in_words

GIB = 2**30


@pytest.mark.parametrize(
    ("batch_size", "resting", "wanted", "fits"),
    [
        # 16 GiB for 256 samples are 64 MiB each; 0.9 x 8 - 1 GiB hold 99 of them.
        (256, 1.0, 17.0, 96),
        # What would fit is never what did not.
        (64, 1.0, 2.0, 56),
        # A few big ones.
        (16, 1.0, 33.0, 3),
        (4, 7.5, 9.0, None),
    ],
)
def test_the_batch_that_would_fit_follows_from_what_a_sample_took(
    batch_size: int, resting: float, wanted: float, fits: int | None
) -> None:
    found = fitting_batch(
        batch_size, total_bytes=8 * GIB, resting_bytes=int(resting * GIB), wanted_bytes=int(wanted * GIB)
    )
    assert found == fits


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("tried hard\nand more"),
        RuntimeError("CUDA error: out of memory, tried hard\nand more"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate, tried hard"),
    ],
)
def test_the_error_of_torch_becomes_one_about_the_batch_size(error: RuntimeError) -> None:
    model = build_model("tiny", num_classes=2, seed=0)
    with (
        pytest.raises(OutOfMemoryError, match=r"data.batch_size: a step of 64 .*tried hard.*"),
        memory_in_words(DataConfig(batch_size=64), model=model),
    ):
        raise error


def test_an_error_of_another_kind_stays_what_it_is() -> None:
    with (
        pytest.raises(RuntimeError, match=r"^no such kernel$"),
        memory_in_words(DataConfig(), model=build_model("tiny", num_classes=2, seed=0)),
    ):
        raise RuntimeError("no such kernel")
