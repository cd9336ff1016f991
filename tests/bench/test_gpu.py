"""The script for a machine with a GPU runs, on the CPU; what it measures decides no test."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("resnettrain")
pytest.importorskip("torch")

from bench import gpu


@pytest.mark.slow
def test_loader_model_and_both_are_measured(capsys: pytest.CaptureFixture[str]) -> None:
    gpu.main(["--smoke", "--pictures", "32", "--rounds", "1", "--workers", "0", "--size", "32"])
    printed = capsys.readouterr().out
    rows = [row for row in printed.splitlines() if re.match(r"\| \d", row)]
    assert [row.split("|")[1:3] for row in rows] == [[" 32 ", " eager "], [" 32 ", " eager, decode on the device "]]
    assert all(re.search(r"\| \d+\.\d% \| 1 \|$", row) for row in rows)


def test_without_a_gpu_it_says_what_to_do() -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(SystemExit, match="no CUDA device here; --smoke"):
        gpu.main([])
