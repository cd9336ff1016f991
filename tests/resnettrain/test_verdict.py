from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from resnettrain import TrainConfig, resolve_config, verdict


def config(*overrides: str) -> TrainConfig:
    return resolve_config(overrides=["model.num_classes=10", "data.batch_size=16", *overrides])


def run(
    losses: Sequence[float | None] = (2.3, 2.0, 1.5, 1.2, 1.0, 0.9, 0.8, 0.7),
    *,
    lrs: Sequence[float] | None = None,
    top1: float = 0.8,
    val: float | None = 0.75,
    wait_share: float = 0.02,
    rates: Sequence[float] | None = None,
    updates: int = 100,
) -> list[dict[str, Any]]:
    """Return the records of a run that reports every 1,600 samples, which are `updates` updates."""
    lrs = lrs or [0.1] * len(losses)
    rates = rates or [100.0] * len(losses)
    records: list[dict[str, Any]] = [
        {"kind": "train", "samples": 1600 * (number + 1), "updates": updates * (number + 1),
         "loss": loss, "top1": top1, "lr": lr, "images_per_s": rate,
         "wait_share": wait_share}
        for number, (loss, lr, rate) in enumerate(zip(losses, lrs, rates, strict=True))
    ]  # fmt: skip
    if val is not None:
        records.append({"kind": "val", "top1": val})
    return records


def words(records: list[dict[str, Any]], question: str, *, settings: TrainConfig | None = None) -> tuple[bool, str]:
    found = [judged for judged in verdict(records, config=settings or config()) if judged.question == question]
    return any(judged.is_problem for judged in found), " ".join(f"{judged.text} {judged.advice}" for judged in found)


@pytest.mark.parametrize(
    ("wait_share", "is_problem", "said", "advised"),
    [
        (0.02, False, "Compute-bound: 2% of the time", "runtime.compile=default"),
        (0.15, False, "Nearly compute-bound: 15%", "more cores, and with them --workers"),
        (0.6, True, "Data-bound: the device stood idle for 60% of the time", "more cores, and with them --workers"),
    ],
)
def test_the_share_of_waiting_says_what_a_run_is_bound_by(
    wait_share: float, is_problem: bool, said: str, advised: str
) -> None:
    problem, text = words(run(wait_share=wait_share), "speed")
    assert (problem, said in text, advised in text) == (is_problem, True, True)


def test_the_workers_that_were_asked_for_are_named() -> None:
    assert "--workers above 3," in words(run(wait_share=0.6), "speed", settings=config("data.num_workers=3"))[1]


def test_the_share_of_the_whole_run_counts_where_it_has_ended() -> None:
    records = [*run(wait_share=0.9), {"kind": "end", "wait_share": 0.01}]
    assert not words(records, "speed")[0]


def test_a_run_that_slows_down_is_told() -> None:
    rates = [20.0, *[100.0] * 11, *[50.0] * 4]
    problem, text = words(run([1.0] * 16, rates=rates), "speed")
    assert problem
    assert "100 images/s at first, 50 at the end" in text


def test_remote_shards_are_advised_a_cache() -> None:
    settings = config('data.urls=["https://a.test/0.tar"]')
    assert "--cache-dir" in words(run(wait_share=0.6), "speed", settings=settings)[1]
    assert "--cache-dir" not in words(run(wait_share=0.6), "speed")[1]


STEADY = (2.3, 2.0, 1.5, 1.2, 1.0)


@pytest.mark.parametrize(
    ("losses", "lrs", "said"),
    [
        ((*STEADY, 4.0, 1.0), None, "near its peak, 0.1: it is too high. Lower --lr to a third"),
        ((*STEADY, 4.0, 1.0), [0.1] * 5 + [0.01, 0.01], "rather single batches than the schedule. Set optim.clip_norm"),
        ((*STEADY, 4.0, 1.0), [0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.1], "in the warm-up, at a learning rate of 0.06"),
        ((2.3, 2.0, None), None, "not finite at 4,800 samples"),
        ((2.3, 2.4, 2.5, 2.6, 2.7, 2.8, 2.9), None, "Diverged: loss 2.3 at first, 2.9 at the end"),
    ],
)
def test_an_unstable_run_is_told_with_its_reason(
    losses: Sequence[float | None], lrs: Sequence[float] | None, said: str
) -> None:
    problem, text = words(run(losses, lrs=lrs), "stability")
    assert problem
    assert said in text


def test_a_steady_run_is_stable() -> None:
    problem, text = words(run(), "stability")
    assert not problem
    assert text.startswith("Stable: loss 2.3000 at first, 0.7000 at the end.")


def test_the_loss_at_the_end_is_the_one_that_is_shown_elsewhere() -> None:
    records = run((2.3, 1.9, 1.0, 0.9, 0.5))
    assert "0.5000 at the end" in words(records, "stability")[1]
    ended = {"kind": "end", "loss": 0.4, "wait_share": 0.0}
    assert "0.4000 at the end" in words([*records, ended], "stability")[1]


@pytest.mark.parametrize(
    ("loss", "top1", "is_problem", "said"),
    [
        (0.05, 1.0, False, "Passed: the one batch is learnt by heart: loss 0.0500, top-1 1.0000, after 200 updates"),
        (0.05, 0.98, True, "Not passed"),
        (0.11, 1.0, True, "asked are a loss below 0.1"),
    ],
)
def test_one_batch_is_judged_by_being_known_by_heart_alone(
    loss: float, top1: float, is_problem: bool, said: str
) -> None:
    records = run((2.3, loss), top1=top1, val=None)
    settings = config("data.one_batch=true")
    assert {judged.question for judged in verdict(records, config=settings)} == {"one batch"}
    problem, text = words(records, "one batch", settings=settings)
    assert (problem, said in text) == (is_problem, True)


def test_what_keeps_the_loss_of_one_batch_up_is_named() -> None:
    settings = config("data.one_batch=true", "loss.label_smoothing=0.1", "augment.mixup=0.2")
    text = words(run((2.3, 0.9), val=None), "one batch", settings=settings)[1]
    assert "Leave out loss.label_smoothing, augment.mixup, which keep the loss up." in text


@pytest.mark.parametrize(
    ("top1", "val", "said"),
    [
        (0.11, 0.1, "It guesses: top-1 0.110 where chance is 0.100"),
        (0.11, None, "It guesses"),
        (0.9, 0.1, "but validation guesses: 0.100"),
        (0.4, 0.8, "far below validation's 0.800"),
        (0.95, 0.5, "it learns by heart"),
    ],
)
def test_suspicious_labels_are_told(top1: float, val: float | None, said: str) -> None:
    problem, text = words(run(top1=top1, val=val), "labels")
    assert problem
    assert said in text


def test_mixed_pictures_may_be_answered_worse_than_whole_ones() -> None:
    assert not words(run(top1=0.4, val=0.8), "labels", settings=config("augment.mixup=0.2"))[0]


def test_a_run_of_a_few_updates_is_not_blamed_for_what_it_has_not_learnt() -> None:
    assert words(run([2.3] * 3, top1=0.1, val=0.1, updates=33), "labels") == (False, "")
    # The batch of the settings is that of one rank, and no number of samples says how many there were.
    assert words(run([2.3] * 3, top1=0.1, val=0.1, updates=34), "labels", settings=config("data.batch_size=1024"))[0]


def test_classes_that_are_never_predicted_are_named() -> None:
    confusion = [[5, 0, 0], [0, 5, 0], [2, 3, 0]]
    found = verdict(run(), config=config(), confusion=confusion)
    assert "1 of 3 classes are never predicted: 2." in found[-1].text
    assert not any("never" in judged.text for judged in verdict(run(), config=config(), confusion=[[1, 0], [0, 1]]))


def test_nothing_is_said_of_a_run_without_a_report() -> None:
    assert verdict([{"kind": "end", "wait_share": 0.0}], config=config()) == []


def validated(*losses: float) -> list[dict[str, Any]]:
    return [*run(), *({"kind": "val", "top1": 0.8, "loss": loss} for loss in losses)]


def test_a_first_validation_beyond_all_losses_of_training_that_settled_is_explained_and_no_problem() -> None:
    problem, text = words(validated(105.3, 1.4, 0.08), "stability")
    assert (problem, "first validation's loss, 105.3," in text, "have settled" in text) == (False, True, True)


@pytest.mark.parametrize(("losses", "settings"), [
    ((6.8, 1.4), config()), ((105.3,), config()), ((105.3, 99.0), config()), ((105.3, 1.4), config("loss.kind=bce")),
])  # fmt: skip
def test_it_is_not_where_nothing_settled_or_there_is_nothing_to_explain(
    losses: tuple[float, ...], settings: TrainConfig
) -> None:
    assert "first validation" not in words(validated(*losses), "stability", settings=settings)[1]
