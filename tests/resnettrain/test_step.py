from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from resnettrain import ConfigError, NonFiniteLossError, build_model, resolve_config
from resnettrain.feed import DeviceBatch
from resnettrain.numerics import Numerics
from resnettrain.state import TrainState
from resnettrain.step import TrainStep, make_step
from tests.helpers.syncs import Syncs

CLASSES = 4
EVERYTHING: dict[str, Any] = {
    "optim.clip_norm": 1.0,
    "augment.policy": "trivial",
    "augment.mixup": 0.2,
    "augment.cutmix": 1.0,
    "augment.erasing": 0.5,
    "ema.decay": 0.9,
    "runtime.micro_batches": 2,
}


class NoNorm(nn.Module):
    """A network without statistics over a batch, so that batches can be cut up."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, stride=2)
        self.norm: nn.Module = nn.Identity()
        self.head = nn.Linear(8, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.norm(self.conv(images)).relu().mean(dim=(2, 3)))
        return logits


class WithNorm(NoNorm):
    """The same with batch normalization."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(8)


def a_batch(size: int = 8, *, seed: int = 0, side: int = 32) -> DeviceBatch:
    generator = torch.Generator().manual_seed(seed)
    return DeviceBatch(
        images=torch.randint(0, 256, (size, side, side, 3), dtype=torch.uint8, generator=generator),
        labels=torch.randint(0, CLASSES, (size,), generator=generator),
        weights=torch.ones(size),
        keys=tuple(f"key{number}" for number in range(size)),
        size=size,
        state=None,
    )


def a_step(
    model: nn.Module | None = None,
    *,
    batch_size: int = 8,
    mean: Callable[[Tensor], Tensor] | None = None,
    **flags: Any,
) -> TrainStep:
    config = resolve_config(
        flags={
            "data.batch_size": batch_size,
            "model.name": "tiny",
            "runtime.device": "cpu",
            "loss.label_smoothing": 0.0,
            **{key.replace("__", "."): value for key, value in flags.items()},
        }
    )
    model = model or build_model("tiny", num_classes=CLASSES, seed=0)
    step = make_step(config, model, numerics=Numerics.of(config.runtime), mean=mean)
    step.train()
    return step


def run(step: TrainStep, batch: DeviceBatch, *, times: int = 1, lr: float = 0.1) -> None:
    state = TrainState()
    for _ in range(times):
        step.run(batch, lr=lr, state=state)
        state.samples += batch.size
        state.updates += 1


def weights(model: nn.Module) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in model.parameters()]


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("kind", ["sgd", "lamb"])
def test_no_step_reads_a_value_from_the_device_and_a_report_does(precision: str, kind: str) -> None:
    step = a_step(WithNorm(), **EVERYTHING, runtime__precision=precision, optim__kind=kind)
    batch = a_batch()
    run(step, batch)
    with Syncs() as syncs:
        run(step, batch, times=3)
    assert syncs.found == []
    with Syncs() as syncs:
        step.guard.check()
        step.window.means()
    assert syncs.found


@pytest.mark.slow
def test_one_batch_is_learnt_by_heart() -> None:
    step = a_step(optim__weight_decay=0.0)
    run(step, a_batch(side=16), times=60, lr=0.02)
    assert step.window.state()[-1, 0] < 0.01
    assert step.window.state()[-1, 1] == 1.0


@pytest.mark.parametrize("parts", [2, 4, 8])
def test_micro_batches_make_the_update_of_the_whole_batch(parts: int) -> None:
    torch.manual_seed(0)
    whole = a_step(NoNorm())
    torch.manual_seed(0)
    cut = a_step(NoNorm(), runtime__micro_batches=parts)
    batch = a_batch()
    run(whole, batch, times=3)
    run(cut, batch, times=3)
    for one, other in zip(weights(whole.model), weights(cut.model), strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=0)
    torch.testing.assert_close(whole.window.state(), cut.window.state(), atol=1e-6, rtol=0)


def test_masked_rows_count_in_no_micro_batch() -> None:
    torch.manual_seed(0)
    small, cut = a_step(NoNorm(), batch_size=6), a_step(NoNorm(), runtime__micro_batches=2)
    cut.model.load_state_dict(small.model.state_dict())
    batch = a_batch()
    kept = torch.tensor([0, 2, 3, 4, 6, 7])
    masked = torch.zeros(8)
    masked[kept] = 1.0
    run(small, replace(batch, images=batch.images[kept], labels=batch.labels[kept], weights=masked[kept], size=6))
    run(cut, replace(batch, weights=masked))
    for one, other in zip(weights(small.model), weights(cut.model), strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=0)


def test_of_ranks_that_have_lost_different_numbers_of_samples_each_that_is_left_counts_the_same() -> None:
    whole = a_step(NoNorm(), batch_size=12)
    # Eight rows of one rank and four of the other: six are the mean.
    ranks = [
        a_step(NoNorm(), mean=lambda figure: torch.full_like(figure, 6.0), data__on_error="skip") for _ in range(2)
    ]
    for step in ranks:
        step.model.load_state_dict(whole.model.state_dict())
    batch = a_batch(16)
    run(whole, replace(batch, images=batch.images[:12], labels=batch.labels[:12], weights=torch.ones(12), size=12))
    for step, rows, kept in zip(ranks, (slice(8), slice(8, 16)), (8, 4), strict=True):
        masked = (torch.arange(8) < kept).float()
        run(step, replace(batch, images=batch.images[rows], labels=batch.labels[rows], weights=masked, size=8))
    both = zip(weights(whole.model), weights(ranks[0].model), weights(ranks[1].model), strict=True)
    for of_all, first, second in both:
        torch.testing.assert_close((first + second) / 2, of_all, atol=1e-6, rtol=0)


def test_bfloat16_learns_and_its_weights_stay_float32() -> None:
    step = a_step(runtime__precision="bf16")
    run(step, a_batch(), times=5, lr=0.02)
    losses = step.window.state()[:, 0]
    assert losses[-1] < losses[0]
    assert {parameter.dtype for parameter in step.model.parameters()} == {torch.float32}


class TestFp16:
    """The scale starts too high on purpose: the first updates overflow, are skipped, and halve it."""

    def overflowing(self, **flags: Any) -> TrainStep:
        step = a_step(NoNorm(), runtime__precision="fp16", ema__decay=0.5, ema__warmup=False, **flags)
        assert step.scaler is not None
        step.scaler.load_state_dict({**step.scaler.state_dict(), "scale": 2.0**30})
        return step

    def test_an_overflow_skips_the_update_halves_the_scale_and_is_no_failure(self) -> None:
        step, batch = self.overflowing(), a_batch()
        before = weights(step.model)
        run(step, batch)
        assert all(map(torch.equal, before, weights(step.model)))
        assert step.ema is not None
        assert all(map(torch.equal, before, weights(step.ema.module)))
        assert step.scaler is not None
        assert step.scaler.get_scale() == 2.0**29
        run(step, batch, times=20)
        assert not all(map(torch.equal, before, weights(step.model)))
        step.guard.check()

    @pytest.mark.parametrize("clip", [None, 1e-3])
    def test_an_update_is_that_of_float32_whatever_the_scale(self, clip: float | None) -> None:
        torch.manual_seed(0)
        flags: dict[str, Any] = {"optim__momentum": 0.0, "optim__nesterov": False, "optim__weight_decay": 0.0}
        plain = a_step(NoNorm(), runtime__precision="fp32", optim__clip_norm=clip, **flags)
        halved = a_step(NoNorm(), runtime__precision="fp16", optim__clip_norm=clip, **flags)
        halved.model.load_state_dict(plain.model.state_dict())
        before, batch = weights(plain.model), a_batch()
        for step in (plain, halved):
            run(step, batch, lr=1.0)
        for old, one, other in zip(before, weights(plain.model), weights(halved.model), strict=True):
            change = one - old
            assert change.abs().max() > 0
            torch.testing.assert_close(other - old, change, rtol=0.05, atol=float(change.abs().max()) * 0.05)

    def test_a_loss_that_is_not_finite_stops_the_run_also_here(self) -> None:
        step, batch = a_step(NoNorm(), runtime__precision="fp16"), a_batch()
        run(step, batch)
        before = weights(step.model)
        with torch.no_grad():
            step.model.get_parameter("head.bias")[0] = float("nan")
        run(step, batch)
        assert all(map(torch.equal, before[:-1], weights(step.model)[:-1]))
        # Nor is any later update made, though there the scaler has nothing to find.
        with torch.no_grad():
            step.model.get_parameter("head.bias").copy_(before[-1])
        run(step, batch)
        assert all(map(torch.equal, before, weights(step.model)))
        with pytest.raises(NonFiniteLossError, match=r"the loss is nan.*key0, key1"):
            step.guard.check()

    def test_a_scale_that_fell_to_nothing_is_a_failure(self) -> None:
        step, batch = self.overflowing(), a_batch()
        assert step.scaler is not None
        step.scaler.load_state_dict({**step.scaler.state_dict(), "scale": 2.0**-30})
        run(step, batch)
        with pytest.raises(NonFiniteLossError, match="overflow fp16 at every scale"):
            step.guard.check()


def test_gradients_are_no_longer_than_the_norm_that_is_allowed() -> None:
    step = a_step(NoNorm(), optim__clip_norm=1e-3, optim__momentum=0.0, optim__nesterov=False, optim__weight_decay=0.0)
    before = weights(step.model)
    run(step, a_batch(), lr=1.0)
    moved = torch.stack([(new - old).norm() for new, old in zip(weights(step.model), before, strict=True)]).norm()
    assert moved.item() == pytest.approx(1e-3, rel=1e-3)


class Exploding(torch.autograd.Function):
    """A forward pass that is fine and gradients that are not."""

    @staticmethod
    def forward(_context: Any, images: Tensor) -> Tensor:
        return images.clone()

    @staticmethod
    def backward(_context: Any, *gradients: Tensor) -> Tensor:
        return gradients[0] * float("inf")


def test_gradients_that_are_not_finite_stop_the_run_before_the_update_and_name_the_batch() -> None:
    model = NoNorm()
    step = a_step(model)
    before = weights(model)
    hook = model.conv.register_forward_hook(lambda _module, _inputs, output: Exploding.apply(output))
    run(step, a_batch())
    hook.remove()
    assert all(map(torch.equal, before, weights(model)))
    with pytest.raises(NonFiniteLossError, match=r"gradients are not finite, though the loss is .*key0, key1"):
        step.guard.check()


@pytest.mark.usefixtures("lone_rank")
def test_micro_batches_exchange_their_gradients_once_an_update() -> None:
    step = a_step(NoNorm(), runtime__micro_batches=4)
    distributed = nn.parallel.DistributedDataParallel(step.forward)
    exchanged: list[int] = []

    def count(_state: object, bucket: Any) -> torch.futures.Future[Tensor]:
        exchanged.append(bucket.index())
        done: torch.futures.Future[Tensor] = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    # torch compares the annotations themselves, which here are their text.
    bucket_type = torch.distributed.GradBucket  # type: ignore[attr-defined]  # not named in its list of names
    count.__annotations__ = {"bucket": bucket_type, "return": torch.futures.Future[Tensor]}
    distributed.register_comm_hook(None, count)
    step.forward = distributed
    alone = a_step(NoNorm(), runtime__micro_batches=4)
    alone.model.load_state_dict(step.model.state_dict())
    for each in (step, alone):
        run(each, a_batch(), times=3)
    assert len(exchanged) == 3
    assert all(map(torch.equal, weights(step.model), weights(alone.model)))
    assert step.model.state_dict().keys() == alone.model.state_dict().keys()


def test_mixed_pictures_are_learnt_with_their_shares() -> None:
    seen: list[Tensor] = []

    class Watched(NoNorm):
        def forward(self, images: Tensor) -> Tensor:
            seen.append(images.detach().clone())
            return super().forward(images)

    step, batch = a_step(Watched(), augment__mixup=1.0), a_batch()
    with torch.no_grad():
        plain, targets = step.augment(batch.images, batch.labels, samples=0)
        logits = step.model(plain)
    assert targets.others is not None
    assert 0 < targets.share < 1
    shares = targets.share * functional.one_hot(batch.labels, CLASSES)
    shares = shares + (1 - targets.share) * functional.one_hot(batch.labels.roll(1), CLASSES)
    run(step, batch)
    assert torch.equal(seen[1], plain)
    torch.testing.assert_close(step.window.state()[0, 0].float(), functional.cross_entropy(logits, shares))


def test_an_average_is_of_the_bare_model_also_where_that_is_wrapped() -> None:
    step = a_step(ema__decay=0.9, ema__warmup=False)

    class Wrapper(nn.Module):
        def __init__(self, module: nn.Module) -> None:
            super().__init__()
            self.module = module

        def forward(self, images: Tensor) -> Tensor:
            logits: Tensor = self.module(images)
            return logits

    step.forward = Wrapper(step.model)
    run(step, a_batch())
    assert step.ema is not None
    assert step.ema.module.state_dict().keys() == build_model("tiny", num_classes=CLASSES, seed=0).state_dict().keys()
    assert not torch.equal(step.ema.module.get_parameter("fc.weight"), step.model.get_parameter("fc.weight"))


def test_an_average_of_every_second_update_follows_the_second_and_the_fourth() -> None:
    step = a_step(NoNorm(), ema__decay=0.9, ema__every=2)
    assert step.ema is not None
    state, moved = TrainState(), []
    for _ in range(4):
        before = weights(step.ema.module)
        step.run(a_batch(), lr=0.1, state=state)
        state.updates += 1
        moved.append(not all(map(torch.equal, before, weights(step.ema.module))))
    assert moved == [False, True, False, True]


def test_more_sizes_than_are_compiled_are_refused() -> None:
    grows: dict[str, Any] = {"resolution__start_size": 32, "resolution__ramp_end": 15, "resolution__multiple": 8}
    with pytest.raises(ConfigError, match=r"^runtime.compile: 16 sizes"):
        a_step(runtime__compile="default", **grows)


def test_graphs_that_would_overwrite_gradients_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"^runtime.compile: 'reduce-overhead'"):
        a_step(runtime__compile="reduce-overhead", runtime__micro_batches=2)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def resident_pages() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1])


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads /proc")
def test_three_hundred_steps_hold_no_more_memory_or_files_than_fifty() -> None:
    step, batch = a_step(WithNorm(), **EVERYTHING), a_batch()
    run(step, batch, times=50)
    step.guard.check()
    pages, files = resident_pages(), open_files()
    run(step, batch, times=250)
    step.guard.check()
    assert open_files() == files
    assert resident_pages() < pages * 1.05


@pytest.mark.slow
def test_a_compiled_step_learns_as_the_eager_one_and_leaves_names_and_evaluation_alone() -> None:
    torch.manual_seed(0)
    eager, compiled = a_step(NoNorm()), a_step(NoNorm(), runtime__compile="default")
    compiled.model.load_state_dict(eager.model.state_dict())
    for step in (eager, compiled):
        run(step, a_batch(), times=2)
    assert eager.model.state_dict().keys() == compiled.model.state_dict().keys()
    for one, other in zip(weights(eager.model), weights(compiled.model), strict=True):
        torch.testing.assert_close(one, other)
    assert type(compiled.model) is NoNorm
    assert compiled.forward is not compiled.model
