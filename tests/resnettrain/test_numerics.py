from __future__ import annotations

import pytest
import torch

from resnettrain import ConfigError, RuntimeConfig
from resnettrain.numerics import Numerics, global_switches, require_decoder


def test_the_cpu_is_deterministic_in_fp32_unless_told_otherwise() -> None:
    numerics = Numerics.of(RuntimeConfig(device="cpu"))
    assert (numerics.precision, numerics.channels_last, numerics.deterministic) == ("fp32", False, True)
    told = Numerics.of(RuntimeConfig(device="cpu", precision="bf16", channels_last=True, deterministic=False))
    assert (told.precision, told.channels_last, told.deterministic) == ("bf16", True, False)


@pytest.mark.cuda
def test_cuda_gets_bf16_and_channels_last() -> None:
    numerics = Numerics.of(RuntimeConfig())
    assert (numerics.device.type, numerics.precision, numerics.channels_last) == ("cuda", "bf16", True)


@pytest.mark.parametrize("device", ["gpu", "cuda:99", "mps"])
def test_a_device_that_is_not_here_is_refused(device: str) -> None:
    with pytest.raises(ConfigError, match=r"runtime\.device: "):
        Numerics.of(RuntimeConfig(device=device))


@pytest.mark.parametrize(("precision", "allowed"), [("fp32", False), ("tf32", True), ("bf16", True)])
def test_float32_is_what_it_says_and_tf32_is_for_those_who_ask(precision: str, allowed: bool) -> None:
    before = (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32)
    runtime = RuntimeConfig(device="cpu", precision=precision)  # type: ignore[arg-type]
    with global_switches(Numerics.of(runtime), threads=None):
        assert (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32) == (allowed, allowed)
    assert (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32) == before


def test_the_switches_are_put_back() -> None:
    before = (torch.are_deterministic_algorithms_enabled(), torch.get_num_threads())
    with global_switches(Numerics.of(RuntimeConfig(device="cpu")), threads=2):
        assert (torch.are_deterministic_algorithms_enabled(), torch.get_num_threads()) == (True, 2)
    assert (torch.are_deterministic_algorithms_enabled(), torch.get_num_threads()) == before


def test_decoding_on_a_device_is_for_cuda() -> None:
    require_decoder("cpu", device=torch.device("cpu"))
    require_decoder("gpu", device=torch.device("cuda:1"))
    with pytest.raises(ConfigError, match=r"data\.decode: 'gpu' .* this run is on 'cpu'\. Set data\.decode=cpu"):
        require_decoder("gpu", device=torch.device("cpu"))
