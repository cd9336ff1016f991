from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from resnettrain import ConfigError, build_model, flops_per_image, model_names
from resnettrain.model import BlurredConv2d, count_parameters, parameter_groups, require_fitting_pictures

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


def test_blurred_convolutions_are_those_that_skip_pixels_and_see_no_colours() -> None:
    model = build_model("resnet50", num_classes=10, seed=0, antialias=True)
    convolutions = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.Conv2d)]
    blurred = {name for name, module in convolutions if isinstance(module, BlurredConv2d)}
    assert blurred == {name for name, module in convolutions if max(module.stride) > 1} - {"conv1"}
    assert len(blurred) == 6


def test_a_blurred_convolution_is_a_blur_and_then_the_convolution() -> None:
    conv = nn.Conv2d(16, 5, 3, stride=2, padding=1)
    images = torch.rand(2, 16, 9, 9)
    kernel = torch.tensor([[1.0, 2, 1], [2, 4, 2], [1, 2, 1]]) / 16
    channels = [functional.conv2d(images[:, i : i + 1], kernel[None, None], padding=1) for i in range(16)]
    torch.testing.assert_close(BlurredConv2d.over(conv)(images), conv(torch.cat(channels, dim=1)))


def test_weights_fit_with_and_without_the_blur() -> None:
    plain, blurred = (build_model("tiny", num_classes=3, seed=0, antialias=antialias) for antialias in (False, True))
    assert plain.state_dict().keys() == blurred.state_dict().keys()
    blurred.load_state_dict(plain.state_dict())
    plain.load_state_dict(blurred.state_dict())
    images = torch.rand(2, 3, 32, 32)
    assert not torch.equal(plain.eval()(images), blurred.eval()(images))
    assert count_parameters(plain) == count_parameters(blurred)


@pytest.mark.parametrize("name", ["tiny", "resnet50"])
def test_branches_that_begin_at_nothing_leave_the_shortcut_alone(name: str) -> None:
    model = build_model(name, num_classes=3, seed=0, zero_init_residual=True)
    last = "bn3" if name == "resnet50" else "bn2"
    zeroed = {key for key, weight in model.named_parameters() if key.endswith("weight") and not weight.any()}
    assert zeroed == {key for key, _ in model.named_parameters() if key.endswith(f"{last}.weight")}


def test_what_has_no_branches_cannot_begin_them_at_nothing() -> None:
    with pytest.raises(ConfigError, match=r"^model.zero_init_residual: 'vgg11' is no ResNet"):
        build_model("vgg11", num_classes=3, seed=0, zero_init_residual=True)


def test_the_cost_of_a_picture_is_that_of_its_products() -> None:
    with torch.device("meta"):
        model = build_model("resnet50", num_classes=1000, seed=0)
    # 4.089e9 products forward; twice that backward, but for the gradient of the pictures themselves: 0.118e9.
    assert flops_per_image(model, image_size=224) == pytest.approx(2 * (3 * 4.089e9 - 0.118e9), rel=1e-3)
    assert next(model.parameters()).grad is None


@pytest.mark.parametrize(
    ("name", "batch_size", "image_size", "cause"),
    [
        ("resnet18", 1, 32, "more than 1 value per channel"),
        ("inception_v3", 4, 32, "Kernel size"),
        ("vit_b_16", 4, 160, "Wrong image height"),
    ],
)
def test_pictures_that_a_model_cannot_be_trained_on_are_refused_in_words(
    name: str, batch_size: int, image_size: int, cause: str
) -> None:
    with pytest.raises(ConfigError, match=rf"model.image_size: '{name}' does not take {batch_size} .*{cause}"):
        require_fitting_pictures(name, batch_size=batch_size, image_size=image_size, training=True)


def test_a_picture_alone_is_evaluated_although_it_cannot_be_trained_on() -> None:
    require_fitting_pictures("resnet18", batch_size=1, image_size=32, training=False)
