"""What the figures of a run say, in words: is it slow and why, is it unstable and why, are the labels suspicious.

Pure: the records of metrics.jsonl in, findings out. Every finding says what to change; a run without fault has one
finding a question, and a note where a figure looks worse than it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

from resnettrain.config import TrainConfig

__all__ = ["Judgement", "Question", "verdict"]

Question = Literal["ending", "speed", "stability", "labels", "one batch"]
Record = Mapping[str, Any]

# Of the time waiting for data. Above the first the device stands idle for want of pictures; below the second no change
# of the data makes a run faster by more than a tenth.
_DATA_BOUND, _COMPUTE_BOUND = 0.3, 0.1
# The last quarter of a run against the first: less than this is no longer chance, with the loader's caches cold.
_SLOWED = 0.7
# A report is the mean of many steps; half as much again over the five before is no noise of batches.
_SPIKE, _BEFORE = 1.5, 5
# Beside a uniform guess, whose loss is log(classes).
_CHANCE = 1.5
# So many updates have to be made before a run can be blamed for what it has not learnt.
_FEWEST_UPDATES = 100
# Before that, all that shows is how long the start took.
_FEWEST_REPORTS = 3
_WORSE_THAN_BEGUN = 1.05
# Times the highest loss of training: a first validation beyond it is not explained by weights that guess.
_UNSETTLED = 3.0
_GAP = 0.3
# Of one batch that is learnt by heart: a tenth of a nat is a right answer with 90 %.
_BY_HEART = 0.1
_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """One finding. `is_problem`: something should be changed, and `advice` says what; else that may be empty."""

    question: Question
    is_problem: bool
    text: str
    advice: str = ""


def verdict(
    records: Sequence[Record], *, config: TrainConfig, confusion: Sequence[Sequence[int]] | None = None
) -> list[Judgement]:
    """Return what a run's records say: why it failed, then speed, stability, labels, of three reports and more.

    Args: config: the run's own. confusion: (K, K), how many samples of the row's class were taken for the column's.
    """
    train = [record for record in records if record["kind"] == "train"]
    failed = _failure(records)
    if config.data.one_batch:
        # What else could be found is of training, and this is none.
        return [*failed, *_one_batch(train, records, config=config)]
    if len(train) < _FEWEST_REPORTS:
        return failed
    judged = [
        *failed,
        *_speed(train, records, config=config),
        *_stability(train, records, config=config),
        *_settling(train, records, config=config),
        *_labels(train, records, config=config),
    ]
    if confusion is not None:
        judged += _never_predicted(confusion)
    return judged


def _failure(records: Sequence[Record]) -> list[Judgement]:
    end = records[-1] if records else {}
    if end.get("outcome") != "failed":
        return []
    return [
        Judgement(question="ending", is_problem=True, text=f"It failed: {end.get('error') or 'it is not known why'}")
    ]


def _one_batch(train: Sequence[Record], records: Sequence[Record], *, config: TrainConfig) -> list[Judgement]:
    """Say whether the one batch is known by heart: every label right, and its loss below a tenth."""
    if not train or train[-1]["loss"] is None or train[-1]["top1"] is None:
        return []
    loss, top1 = _last(train, records, name="loss"), _last(train, records, name="top1")
    found = f"loss {loss:.4f}, top-1 {top1:.4f}, after {train[-1]['updates']:,} updates"
    if loss < _BY_HEART and round(top1, 4) == 1:
        text = (
            f"Passed: the one batch is learnt by heart: {found}; asked are a loss below {_BY_HEART} and a top-1 of 1."
        )
        return [Judgement(question="one batch", is_problem=False, text=text)]
    hindering = {
        "loss.label_smoothing": config.loss.label_smoothing > 0,
        "augment.mixup": config.augment.mixup > 0,
        "augment.cutmix": config.augment.cutmix > 0,
        "augment.erasing": config.augment.erasing > 0,
        "augment.policy": config.augment.policy != "none",
    }
    kept = [name for name, hinders in hindering.items() if hinders]
    way = f"Leave out {', '.join(kept)}, which keep the loss up. " if kept else ""
    return [Judgement(
        question="one batch",
        is_problem=True,
        text=f"Not passed: the one batch is not learnt by heart: {found}; asked are a loss below {_BY_HEART} and a "
        "top-1 of 1.",
        advice=f"{way}Give more --epochs, or another --lr. Where neither helps, look for one picture with two labels "
        "(`wds peek`).",
    )]  # fmt: skip


# --------------------------------------------------------------------------------------------------------------- speed


def _speed(train: Sequence[Record], records: Sequence[Record], *, config: TrainConfig) -> list[Judgement]:
    share = _wait_share(train, records)
    found = [_bound(share, config)]
    rates = [record["images_per_s"] for record in train if record["images_per_s"]]
    quarter = len(rates) // 4
    # The first report has the start of the workers in it.
    if quarter >= 3 and median(rates[-quarter:]) < _SLOWED * median(rates[1 : quarter + 1]):
        begun, ended = median(rates[1 : quarter + 1]), median(rates[-quarter:])
        cause = "the loader became slower" if share >= _COMPUTE_BOUND else "the device, or who shares it, did"
        found.append(
            Judgement(
                question="speed",
                is_problem=True,
                text=f"It slowed down: {begun:.0f} images/s at first, {ended:.0f} at the end; {cause}.",
                advice="Look for other processes, a disk that fills, heat, or progressive resizing that you asked for.",
            )
        )
    return found


def _bound(share: float, config: TrainConfig) -> Judgement:
    if share >= _DATA_BOUND:
        return Judgement(
            question="speed",
            is_problem=True,
            text=f"Data-bound: the device stood idle for {share:.0%} of the time, waiting for pictures.",
            advice=_faster_data(config),
        )
    if share >= _COMPUTE_BOUND:
        return Judgement(
            question="speed",
            is_problem=False,
            text=f"Nearly compute-bound: {share:.0%} of the time went to waiting for pictures.",
            advice=_faster_data(config),
        )
    return Judgement(
        question="speed",
        is_problem=False,
        text=f"Compute-bound: {share:.0%} of the time went to waiting for pictures; the loader keeps up.",
        advice=_faster_compute(config),
    )


def _faster_data(config: TrainConfig) -> str:
    workers, ways = config.data.num_workers, []
    if workers is not None:
        ways.append(f"--workers above {workers}, up to the cores of the machine")
    if config.data.pipeline == "source":
        ways.append("another recipe than the source's pipeline")
    elif workers is None:
        ways.append("more cores, and with them --workers")
    ways.append("shards packed with `wds make-shards --crop-ready`")
    if config.data.cache_dir is None and any("://" in url for url in config.data.urls):
        ways.append("--cache-dir on a local disk")
    return f"Try {', '.join(ways)}. `wds bench` says what the loader alone gives."


def _faster_compute(config: TrainConfig) -> str:
    ways = []
    if config.runtime.compile == "off":
        ways.append("runtime.compile=default")
    if config.runtime.precision in ("fp32", "tf32"):
        ways.append("runtime.precision=bf16")
    if config.resolution.start_size is None:
        ways.append("progressive resizing (resolution.start_size)")
    return f"To be faster on the same device: {', '.join(ways)}." if ways else ""


def _wait_share(train: Sequence[Record], records: Sequence[Record]) -> float:
    """Return the share of the training time spent waiting, of the whole run where it has ended."""
    ended = [record["wait_share"] for record in records if record["kind"] == "end"]
    if ended and ended[-1] is not None:
        return float(ended[-1])
    # The first report has the start of the workers in it, which a run makes up for.
    shares = [record["wait_share"] for record in train[1:] or train if record["wait_share"] is not None]
    return math.fsum(shares) / len(shares) if shares else 0.0


# ----------------------------------------------------------------------------------------------------------- stability


def _stability(train: Sequence[Record], records: Sequence[Record], *, config: TrainConfig) -> list[Judgement]:
    bad = next((record for record in train if record["loss"] is None), None)
    if bad is not None:
        return [
            _unstable(
                f"Unstable: the loss was not finite at {bad['samples']:,} samples.", bad, train=train, config=config
            )
        ]
    spikes = [record for number, record in enumerate(train) if _is_spike(train, number)]
    first, last = train[0]["loss"], _last(train, records, name="loss")
    # One report may be off; what is printed is the last one, which everything else shows too.
    settled = median(record["loss"] for record in train[-3:])
    if len(train) > _BEFORE and settled > _WORSE_THAN_BEGUN * first:
        where = (spikes or [max(train, key=lambda record: record["loss"])])[0]
        text = f"Diverged: loss {first:.4g} at first, {last:.4g} at the end."
        return [_unstable(text, where, train=train, config=config)]
    if spikes:
        places = ", ".join(f"{record['samples']:,}" for record in spikes[:_NAMED])
        more = f" and {len(spikes) - _NAMED} more" if len(spikes) > _NAMED else ""
        text = f"The loss jumped {_times(len(spikes))}, at {places}{more} samples."
        return [_unstable(text, spikes[0], train=train, config=config)]
    return [
        Judgement(
            question="stability", is_problem=False, text=f"Stable: loss {first:.4f} at first, {last:.4f} at the end."
        )
    ]


def _last(train: Sequence[Record], records: Sequence[Record], *, name: str) -> float:
    """Return a figure that the run ended with, of one that has none the last report's."""
    end = records[-1]
    ended = end.get(name) if end["kind"] == "end" else None
    return float(train[-1][name] if ended is None else ended)


def _settling(train: Sequence[Record], records: Sequence[Record], *, config: TrainConfig) -> list[Judgement]:
    """Explain a first validation whose loss is beyond all of training: it looks like a fault, and is none."""
    vals = [record["loss"] for record in records if record["kind"] == "val" and record.get("loss") is not None]
    trained = [record["loss"] for record in train if record["loss"] is not None]
    # Another loss is trained on than is validated.
    if config.loss.kind == "bce" or len(vals) < 2 or not trained:
        return []
    highest = _UNSETTLED * max(trained)
    if vals[0] <= highest or vals[-1] > highest:
        return []
    return [
        Judgement(
            question="stability",
            is_problem=False,
            text=f"The first validation's loss, {vals[0]:.4g}, was far above training's; the last one's is "
            f"{vals[-1]:.4g}: the norms' running averages lag behind weights that change fast, and have settled since.",
        )
    ]


def _is_spike(train: Sequence[Record], number: int) -> bool:
    before = [record["loss"] for record in train[max(0, number - _BEFORE) : number]]
    return len(before) == _BEFORE and train[number]["loss"] > _SPIKE * median(before)


def _unstable(text: str, record: Record, *, train: Sequence[Record], config: TrainConfig) -> Judgement:
    """Say why: by where the learning rate was when it happened."""
    peak = max(other["lr"] for other in train)
    lr, rising = record["lr"], record["samples"] <= next(r["samples"] for r in train if r["lr"] == peak)
    if rising and lr < peak:
        why = f"It happened in the warm-up, at a learning rate of {lr:.4g}."
        advice = "Lengthen schedule.warmup_epochs, or lower --lr to a third."
    elif lr > 0.5 * peak:
        why = f"The learning rate was near its peak, {lr:.4g}: it is too high."
        advice = "Lower --lr to a third."
    else:
        why = f"The learning rate was low, {lr:.4g}: rather single batches than the schedule."
        advice = "Set optim.clip_norm=1, and look at the pictures with `wds peek` and `wds validate`."
    if config.optim.clip_norm is None and "clip_norm" not in advice:
        advice += " optim.clip_norm=1 helps against single steps."
    if config.runtime.precision == "fp16":
        advice += " With fp16, try bf16."
    return Judgement(question="stability", is_problem=True, text=f"{text} {why}", advice=advice)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


# -------------------------------------------------------------------------------------------------------------- labels


def _labels(train: Sequence[Record], records: Sequence[Record], *, config: TrainConfig) -> list[Judgement]:
    num_classes = config.model.num_classes
    last = train[-1]
    if num_classes is None or num_classes < 2 or last["updates"] < _FEWEST_UPDATES or last["top1"] is None:
        return []
    chance = 1 / num_classes
    vals = [record for record in records if record["kind"] == "val"]
    val = vals[-1]["top1"] if vals else None
    if last["top1"] < _CHANCE * chance and (val is None or val < _CHANCE * chance):
        return [_suspicious(
            f"It guesses: top-1 {last['top1']:.3f} where chance is {chance:.3f}, after {last['samples']:,} samples.",
            "If the loss is stable, labels do not belong to their pictures: look at them with `wds peek`. Else lower "
            "--lr, and see that --overfit-one-batch brings the loss to nothing.",
        )]  # fmt: skip
    if val is None:
        return []
    if val < _CHANCE * chance:
        return [_suspicious(
            f"Training top-1 is {last['top1']:.3f}, but validation guesses: {val:.3f} where chance is {chance:.3f}.",
            "The two sets number their classes differently, or one is shuffled: compare both with `wds inspect`.",
        )]  # fmt: skip
    mixes = config.augment.mixup > 0 or config.augment.cutmix > 0
    if val - last["top1"] > _GAP and not mixes:
        return [_suspicious(
            f"Training top-1 {last['top1']:.3f} is far below validation's {val:.3f}, and nothing is mixed.",
            "Many labels of the training set are wrong, or its augmentation is too strong (augment.scale): see "
            "`wds peek`.",
        )]  # fmt: skip
    if last["top1"] - val > _GAP:
        return [_suspicious(
            f"Training top-1 {last['top1']:.3f} is far above validation's {val:.3f}: it learns by heart.",
            "More data or augmentation (augment.policy, augment.mixup), fewer epochs, more optim.weight_decay.",
        )]  # fmt: skip
    text = f"Labels are learnt: top-1 {last['top1']:.3f} in training, {val:.3f} in validation; chance is {chance:.3f}."
    return [Judgement(question="labels", is_problem=False, text=text)]


def _suspicious(text: str, advice: str) -> Judgement:
    return Judgement(question="labels", is_problem=True, text=text, advice=advice)


def _never_predicted(confusion: Sequence[Sequence[int]]) -> list[Judgement]:
    counts = [sum(row) for row in confusion]
    predicted = [sum(column) for column in zip(*confusion, strict=True)]
    never = [number for number, count in enumerate(counts) if count and not predicted[number]]
    # Of a class with a sample or two, most models miss some.
    if not never or len(never) / max(sum(map(bool, counts)), 1) < 0.02:
        return []
    named = ", ".join(map(str, never[:_NAMED])) + (f" and {len(never) - _NAMED} more" if len(never) > _NAMED else "")
    return [_suspicious(
        f"{len(never)} of {len(counts)} classes are never predicted: {named}.",
        "See that the training set has them (`wds inspect` shows samples a class), and that both sets number their "
        "classes alike.",
    )]  # fmt: skip
