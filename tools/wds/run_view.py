"""How the events of a run look: one line each on stderr, the source's own report lines on stdout."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wds.console import StatusLine, human_bytes, print_line, print_note
from wds.text import counted

if TYPE_CHECKING:
    from resnettrain import Event, RunStarted, TrainConfig, TrainReport, ValReport

__all__ = ["RunView", "config_lines"]

_SHORTEST_BAR, _LONGEST_BAR = 4, 30


class RunView:
    """Shows the events of a run as they happen; ``source_format`` prints reports as the source does, to stdout."""

    def __init__(self, *, source_format: bool = False, quiet: bool = False) -> None:
        self._source_format = source_format
        self._quiet = quiet
        self._status = StatusLine(quiet=quiet)
        self._started: RunStarted | None = None

    def __call__(self, event: Event, /) -> None:
        """Show one event."""
        from resnettrain import CheckpointSaved, RunStarted, TrainReport, ValProgress, ValReport, read_toml, source_line

        if isinstance(event, RunStarted):
            self._started = event
            settings = config_lines(read_toml(event.run_dir / "config.toml"))
            self._say("\n".join(["settings", *settings, _started(event)]))
        elif isinstance(event, TrainReport) and self._source_format:
            print_line(source_line(event))
        elif isinstance(event, TrainReport):
            self._status.show(
                _report(event, self._started), narrow=lambda columns: _short_report(event, self._started, columns)
            )
        elif isinstance(event, ValProgress):
            self._status.redraw(f"validating {event.count}/{event.total}")
        elif isinstance(event, ValReport):
            self._say(_validated(event))
        elif isinstance(event, CheckpointSaved):
            self._status.redraw(f"saved {event.path}")

    def close(self) -> None:
        """Wipe what is redrawn."""
        self._status.close()

    def _say(self, text: str) -> None:
        self._status.close()
        if not self._quiet:
            print_note(text)


def config_lines(config: TrainConfig) -> list[str]:
    """Return the resolved settings, a line for each section."""
    from resnettrain import to_mapping

    mapping = to_mapping(config)
    plain = {key: value for key, value in mapping.items() if not isinstance(value, dict)}
    sections = {"run": plain, **{key: value for key, value in mapping.items() if isinstance(value, dict)}}
    return [
        f"  {name:10} " + " ".join(f"{key}={_short(value)}" for key, value in section.items())
        for name, section in sections.items()
        if section
    ]


def _short(value: object) -> str:
    return f"[{','.join(str(item) for item in value)}]" if isinstance(value, list) else str(value)


def _started(event: RunStarted) -> str:
    batches = "" if event.epoch_batches is None else f" of {counted(event.epoch_batches, 'batch/batches')}"
    resumed = (
        ""
        if event.resumed_from is None
        else f"\nresumed at {counted(event.start_samples, 'sample')}: {event.resumed_from}"
    )
    return (
        f"{event.model}, {counted(event.num_parameters, 'parameter', spec=',')}, "
        f"{counted(event.num_classes, 'class/classes')}, {event.device} "
        f"{event.precision}; {counted(event.epochs, 'epoch')}{batches} of {_batch(event)}{_left_out(event)}; "
        f"run folder {event.run_dir}{resumed}"
    )


def _left_out(event: RunStarted) -> str:
    """Say how many samples fill no batch: the last of an order that is another one in each epoch."""
    if not event.left_out:
        return ""
    return f", which leaves out {event.left_out:,} of {event.dataset_samples:,} samples an epoch, others each time"


def _batch(event: RunStarted) -> str:
    if event.world_size == 1:
        return f"{event.batch_size} on 1 rank"
    return f"{event.batch_size * event.world_size} on {event.world_size} ranks, {event.batch_size} each"


def _report(event: TrainReport, started: RunStarted | None) -> str:
    epochs = f"/{started.epochs}" if started is not None else ""
    batches = f"/{started.epoch_batches}" if started is not None and started.epoch_batches is not None else ""
    left = "" if event.eta_s is None else f", {_duration(event.eta_s)} left"
    held = "" if event.memory_bytes is None else f", {human_bytes(event.memory_bytes)} of memory"
    used = "" if event.mfu is None else f", {event.mfu:.1%} MFU"
    return (
        f"epoch {event.epoch + 1}{epochs} batch {event.batch}{batches}  loss {event.loss:.4f}  "
        f"top-1 {event.top1:.3f}  lr {event.lr:.4f}  {event.images_per_s:.0f} images/s, "
        f"{event.wait_share:.0%} waiting for data{left}{held}{used}"
    )


def _short_report(event: TrainReport, started: RunStarted | None, columns: int) -> str:
    """Return a report for a line of a terminal: the bar is as long as there is room, and goes first."""
    epochs = f"/{started.epochs}" if started is not None else ""
    words = [f"loss {event.loss:.3f}", f"top-1 {event.top1:.3f}", f"{event.images_per_s:.0f}/s"]
    words.append(f"wait {event.wait_share:.0%}")
    words += [] if event.memory_bytes is None else [f"{event.memory_bytes / 2**30:.0f} GiB"]
    words += [] if event.eta_s is None else [f"{_duration(event.eta_s)} left"]
    begin, rest = f"epoch {event.epoch + 1}{epochs}", "  ".join(words)
    total = None if started is None else started.total_samples
    if not total:
        return f"{begin}  {rest}"
    done = min(1.0, event.samples / total)
    space = min(_LONGEST_BAR, columns - len(begin) - len(rest) - len("  100%  "))
    full = round(done * space)
    if space < _SHORTEST_BAR:
        return f"{begin}  {rest}"
    return f"{begin} {'━' * full}{'╌' * (space - full)} {done:.0%}  {rest}"


def _validated(event: ValReport) -> str:
    best = ", the best so far" if event.is_best else ""
    return (
        f"epoch {event.epoch + 1} validation: top-1 {event.top1:.4f}, top-5 {event.top5:.4f}, loss {event.loss:.4f} "
        f"on {counted(event.count, 'sample')} in {event.seconds:.1f} s{best}"
    )


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return (
        f"{minutes // 60} h {minutes % 60} min"
        if minutes >= 60
        else f"{minutes} min {rest} s"
        if minutes
        else f"{rest} s"
    )
