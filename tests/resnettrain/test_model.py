from __future__ import annotations

import pytest
import torch

from resnettrain import ConfigError, build_model, model_names
from resnettrain.model import count_parameters, parameter_groups

RESNETS = [name for name in model_names() if "resne" in name]


def test_every_torchvision_classifier_and_tiny_can_be_named() -> None:
    assert {"tiny", "resnet50", "vit_b_16", "convnext_tiny", "googlenet"} <= set(model_names())


def test_an_unknown_name_is_an_error_that_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"there is no 'resnet5'. Nearest: resnet50"):
        build_model("resnet5", num_classes=10, seed=0)


def test_weights_follow_from_the_seed_and_leave_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    one, same, other = (build_model("tiny", num_classes=3, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), same.parameters(), strict=True))
    assert not torch.equal(one.get_parameter("fc.weight"), other.get_parameter("fc.weight"))


@pytest.mark.parametrize("name", ["googlenet", "inception_v3"])
def test_models_with_auxiliary_heads_answer_with_one_tensor_while_training(name: str) -> None:
    with torch.device("meta"):
        model = build_model(name, num_classes=3, seed=0)
        assert model(torch.zeros(2, 3, 96, 96)).shape == (2, 3)


@pytest.mark.parametrize("name", RESNETS)
def test_exactly_the_tensors_of_at_most_one_dimension_are_not_decayed(name: str) -> None:
    with torch.device("meta"):
        model = build_model(name, num_classes=10, seed=0)
    decayed, kept = parameter_groups(model, weight_decay=0.1, no_decay_1d=True)
    assert (decayed["weight_decay"], kept["weight_decay"]) == (0.1, 0.0)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    one_dimensional = {name for name, parameter in model.named_parameters() if parameter.ndim <= 1}
    assert {names[id(parameter)] for parameter in kept["params"]} == one_dimensional
    assert len(decayed["params"]) + len(kept["params"]) == len(names)


def test_the_norms_of_resnet50_shortcuts_are_not_decayed() -> None:
    with torch.device("meta"):
        model = build_model("resnet50", num_classes=1000, seed=0)
    _, kept = parameter_groups(model, weight_decay=0.1, no_decay_1d=True)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    shortcut = [names[id(p)] for p in kept["params"] if "downsample.1" in names[id(p)]]
    assert len(shortcut) == 8
    assert count_parameters(model) == 25_557_032


def test_one_group_decays_everything_as_the_source_does() -> None:
    model = build_model("tiny", num_classes=3, seed=0)
    (group,) = parameter_groups(model, weight_decay=5e-4, no_decay_1d=False)
    assert len(group["params"]) == len(list(model.parameters()))
