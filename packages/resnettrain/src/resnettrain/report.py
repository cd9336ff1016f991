"""One self-contained HTML page on one run or several: what came out, what to change, curves, settings, classes.

Owns what stands on the page; ``report.html`` beside it says how it looks. It loads nothing from anywhere: a
Content-Security-Policy forbids scripts and requests, and every text is escaped. The same runs give the same bytes.
Needs jinja2.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from resnettrain.charts import Chart, Curve, chart
from resnettrain.config import TrainConfig
from resnettrain.errors import ReportError
from resnettrain.progress import without_waiting
from resnettrain.runlog import read_metrics
from resnettrain.settings import read_toml, to_mapping
from resnettrain.verdict import Judgement, verdict

__all__ = ["ClassReport", "RunRecord", "read_class_report", "read_run", "report_document", "report_page"]

# What a page can hold and a reader take in.
_MOST_CELLS = 40
_WORST = 20
_PAIRS = 20
_COLOURS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """What a run folder says of a run: its settings and the records of its metrics.jsonl, in order."""

    name: str
    config: TrainConfig
    records: tuple[Mapping[str, Any], ...]

    def of_kind(self, kind: str) -> list[Mapping[str, Any]]:
        """Return the records of one kind: train, val or end."""
        return [record for record in self.records if record["kind"] == kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassReport:
    """What `wds eval --per-class --json` said: for each class the count and what was right; what was taken for what.

    `names` are those of the classes, or their numbers.
    """

    checkpoint: str
    top1: float
    top5: float
    count: int
    names: tuple[str, ...]
    counts: tuple[int, ...]
    correct1: tuple[int, ...]
    confusion: tuple[tuple[int, ...], ...]


def read_run(run_dir: Path) -> RunRecord:
    """Return what a run folder says. Raises: ReportError: it is none, or there is nothing in it to report."""
    settings = run_dir / "config.toml"
    if not settings.is_file():
        raise ReportError(f"{run_dir}: no run folder (it has no config.toml). Name the folder that `wds train` wrote.")
    records = read_metrics(run_dir)
    if not records:
        raise ReportError(f"{run_dir}: nothing was recorded yet. Wait for the first report, log.every_s seconds long.")
    return RunRecord(name=str(run_dir), config=read_toml(settings), records=tuple(records))


def read_class_report(path: Path) -> ClassReport:
    """Return what a file of `wds eval --per-class --json` says. Raises: ReportError: it is none."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        classes = document["classes"]
        confusion = tuple(tuple(map(int, row)) for row in classes["confusion"])
        names = classes.get("names") or [str(number) for number in range(len(confusion))]
        report = ClassReport(
            checkpoint=str(document["checkpoint"]),
            top1=float(document["top1"]),
            top5=float(document["top5"]),
            count=int(document["count"]),
            names=tuple(map(str, names)),
            counts=tuple(map(int, classes["count"])),
            correct1=tuple(map(int, classes["correct1"])),
            confusion=confusion,
        )
    except OSError as error:
        raise ReportError(f"{path}: cannot be read ({error.strerror}).") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ReportError(
            f"{path}: not what `wds eval --per-class --json` writes. Make it: wds eval RUN --urls PATTERN --per-class "
            "--json > FILE.json"
        ) from error
    sizes = {len(report.names), len(report.counts), len(report.correct1), len(confusion), *map(len, confusion)}
    if len(sizes) != 1:
        raise ReportError(f"{path}: its lists of classes differ in length: {sorted(sizes)}.")
    return report


def report_document(runs: Sequence[RunRecord]) -> dict[str, Any]:
    """Return the figures and the verdict of runs as plain values."""
    return {
        "runs": [
            {
                "run_dir": run.name,
                **_final(run),
                "verdict": [asdict(judged) for judged in verdict(run.records, config=run.config)],
            }
            for run in runs
        ],
        "different_settings": _differences(runs),
    }


def report_page(runs: Sequence[RunRecord], *, classes: Sequence[ClassReport] = ()) -> bytes:
    """Return the page, in UTF-8. Raises: ReportError: jinja2 is not installed."""
    try:
        import jinja2
    except ImportError as error:
        raise ReportError("an HTML report needs jinja2. Install it: pip install jinja2.") from error
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
    template = environment.from_string(resources.files("resnettrain").joinpath("report.html").read_text("utf-8"))
    names = _short_names([run.name for run in runs])
    finals = [_final(run) for run in runs]
    confusion = classes[0].confusion if len(classes) == 1 and len(runs) == 1 else None
    return template.render(
        title=names[0] if len(runs) == 1 else f"{len(runs)} runs",
        names=names,
        figures=_figures(finals[0]) if len(runs) == 1 else [],
        verdicts=[
            (name, _ordered(verdict(run.records, config=run.config, confusion=confusion)))
            for name, run in zip(names, runs, strict=True)
        ],
        comparison=_comparison(finals),
        differences=_difference_rows(runs),
        charts=_charts(runs, names),
        classes=[_class_section(report) for report in classes],
        settings=[(name, _settings(run.config)) for name, run in zip(names, runs, strict=True)],
    ).encode("utf-8")


def _ordered(judged: Sequence[Judgement]) -> list[Judgement]:
    return sorted(judged, key=lambda one: not one.is_problem)


def _short_names(names: Sequence[str]) -> list[str]:
    """Return the last part of each path, or as many as tell them apart."""
    parts = [Path(name).parts for name in names]
    for depth in range(1, max(map(len, parts)) + 1):
        short = ["/".join(part[-depth:]) for part in parts]
        if len(set(short)) == len(set(names)):
            return short
    return list(names)


# -------------------------------------------------------------------------------------------------------------- figures


def _final(run: RunRecord) -> dict[str, Any]:
    """Return what came out of a run; None where it is not known."""
    train, vals, ends = run.of_kind("train"), run.of_kind("val"), run.of_kind("end")
    last: Mapping[str, Any] = train[-1] if train else {}
    end: Mapping[str, Any] = ends[-1] if ends else {}
    best = max(vals, key=lambda val: val["top1"]) if vals else {}

    def known(name: str) -> Any:
        """Return a figure of the whole run; of one that failed or goes on, the last report's."""
        return last.get(name) if end.get(name) is None else end[name]

    return {
        "outcome": end.get("outcome", "not ended"),
        "error": end.get("error"),
        "samples": run.records[-1].get("samples"),
        "epochs": _epochs(run),
        "train_loss": known("loss"),
        "train_top1": known("top1"),
        "val_top1": vals[-1]["top1"] if vals else None,
        "val_top5": vals[-1]["top5"] if vals else None,
        "val_loss": vals[-1]["loss"] if vals else None,
        "best_val_top1": best.get("top1"),
        "images_per_s": known("images_per_s"),
        "compute_images_per_s": _computing(end if end.get("images_per_s") else last),
        "wait_share": known("wait_share"),
        "mfu": last.get("mfu"),
        "skipped": end.get("skipped"),
        "seconds": end.get("seconds"),
    }


def _computing(record: Mapping[str, Any]) -> float | None:
    """Return the images a second that computing alone would have made."""
    total, waited = record.get("images_per_s"), record.get("wait_share")
    return None if total is None or waited is None else without_waiting(total, wait_share=waited)


def _epochs(run: RunRecord) -> int:
    """Return the number of epochs that were validated or, without validation, begun."""
    vals = run.of_kind("val")
    return int((vals or run.of_kind("train") or [{"epoch": -1}])[-1]["epoch"]) + 1


def _share(value: Any) -> str:
    return "–" if value is None else f"{100 * value:.2f} %"


def _number(value: Any, form: str = ",.0f") -> str:
    return "–" if value is None else format(value, form)


# Name, key, how it is written, and whether more is better (None: neither).
_ROWS: tuple[tuple[str, str, Callable[[Any], str], bool | None], ...] = (
    ("outcome", "outcome", str, None),
    ("samples", "samples", _number, None),
    ("epochs", "epochs", _number, None),
    ("training loss", "train_loss", lambda value: _number(value, ".4f"), None),
    ("training top-1", "train_top1", _share, None),
    ("validation top-1", "val_top1", _share, True),
    ("validation top-5", "val_top5", _share, True),
    ("validation loss", "val_loss", lambda value: _number(value, ".4f"), False),
    ("best validation top-1", "best_val_top1", _share, True),
    ("images/s", "images_per_s", lambda value: _number(value, ",.1f"), True),
    ("images/s without waiting", "compute_images_per_s", lambda value: _number(value, ",.1f"), True),
    ("waiting for data", "wait_share", _share, False),
    ("MFU at the end", "mfu", _share, True),
    ("samples skipped", "skipped", _number, None),
    ("seconds", "seconds", lambda value: _number(value, ",.1f"), None),
)


def _figures(final: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(name, form(final[key])) for name, key, form, _ in _ROWS if final[key] is not None]


def _comparison(finals: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[tuple[str, bool]]]]:
    """Return a row for each figure: its name, and for each run the text and whether it is the best of several."""
    if len(finals) < 2:
        return []
    rows = []
    for name, key, form, more_is_better in _ROWS:
        values = [final[key] for final in finals]
        known = {value for value in values if value is not None}
        best = None
        if more_is_better is not None and len(known) > 1:
            best = max(known) if more_is_better else min(known)
        if known:
            rows.append((name, [(form(value), value is not None and value == best) for value in values]))
    return rows


# ------------------------------------------------------------------------------------------------------------- settings


def _flat(mapping: Mapping[str, Any], *, where: str = "") -> Iterator[tuple[str, str]]:
    for key, value in mapping.items():
        if isinstance(value, Mapping):
            yield from _flat(value, where=f"{where}{key}.")
        else:
            yield f"{where}{key}", json.dumps(value, ensure_ascii=False)


def _differences(runs: Sequence[RunRecord]) -> dict[str, list[str | None]]:
    """Return the settings that are not the same in all runs; None where one is left open."""
    flat = [dict(_flat(to_mapping(run.config))) for run in runs]
    keys = list(dict.fromkeys(key for settings in flat for key in settings))
    columns = {key: [settings.get(key) for settings in flat] for key in keys if key != "run_dir"}
    return {key: values for key, values in columns.items() if len(set(values)) > 1}


def _difference_rows(runs: Sequence[RunRecord]) -> list[tuple[str, list[str]]]:
    return [(key, [value or "–" for value in values]) for key, values in _differences(runs).items()]


def _settings(config: TrainConfig) -> list[tuple[str, list[tuple[str, str]]]]:
    mapping = to_mapping(config)
    run = {key: value for key, value in mapping.items() if not isinstance(value, dict)}
    sections = {"run": run, **{key: value for key, value in mapping.items() if isinstance(value, dict)}}
    return [(name, list(_flat(values))) for name, values in sections.items() if values]


# --------------------------------------------------------------------------------------------------------------- curves


def _charts(runs: Sequence[RunRecord], names: Sequence[str]) -> list[Chart]:
    """Return the five curves of the runs, those that there are."""

    def curves(key: str, *, kind: str = "train", what: str = "") -> list[Curve]:
        return [
            Curve(
                name=" ".join(filter(None, (name if len(runs) > 1 else "", what))),
                points=_points(run.of_kind(kind), key),
                colour=number % _COLOURS,
                dashed=kind == "val",
            )
            for number, (name, run) in enumerate(zip(names, runs, strict=True))
        ]

    return [
        made
        for made in (
            chart("Loss", [*curves("loss", what="training"), *curves("loss", kind="val", what="validation")]),
            chart(
                "Top-1", [*curves("top1", what="training"), *curves("top1", kind="val", what="validation")], unit="%",
                from_zero=True,
            ),
            chart("Learning rate", curves("lr"), from_zero=True),
            chart("Images a second", curves("images_per_s"), from_zero=True),
            chart("Waiting for data", curves("wait_share"), unit="%", from_zero=True, top=0.1),
        )
        if made is not None
    ]  # fmt: skip


def _points(records: Sequence[Mapping[str, Any]], key: str) -> list[tuple[float, float]]:
    return [(float(record["samples"]), float(record[key])) for record in records if record.get(key) is not None]


# -------------------------------------------------------------------------------------------------------------- classes


def _class_section(report: ClassReport) -> dict[str, Any]:
    """Return the worst classes, the pairs most often taken for one another, and the matrix where it is small enough."""
    rows = [
        (name, count, right / count)
        for name, count, right in zip(report.names, report.counts, report.correct1, strict=True)
        if count
    ]
    pairs = [
        (count, report.names[true], report.names[said], report.counts[true])
        for true, row in enumerate(report.confusion)
        for said, count in enumerate(row)
        if count and true != said
    ]
    worst = sorted(rows, key=lambda row: (row[2], row[0]))[:_WORST]
    return {
        "checkpoint": report.checkpoint,
        "summary": f"top-1 {_share(report.top1)}, top-5 {_share(report.top5)} on {report.count:,} samples",
        "worst": [(name, f"{count:,}", _share(share), f"{100 * share:.2f}") for name, count, share in worst],
        "num_classes": len(rows),
        "pairs": [
            (true, said, f"{count:,} of {of:,}")
            for count, true, said, of in sorted(pairs, key=lambda pair: (-pair[0], pair[1], pair[2]))[:_PAIRS]
        ],
        "matrix": _matrix(report) if len(report.names) <= _MOST_CELLS else [],
        "names": report.names,
    }


def _matrix(report: ClassReport) -> list[tuple[str, list[tuple[str, str, str]]]]:
    """Return the rows of the matrix: the class, and for each other one the opacity, the count and what it means."""
    rows = []
    for name, row, of in zip(report.names, report.confusion, report.counts, strict=True):
        cells = [
            (f"{0.7 * count / of if of else 0.0:.3f}", str(count), f"{name} taken for {said}: {count:,} of {of:,}")
            for said, count in zip(report.names, row, strict=True)
        ]
        rows.append((name, cells))
    return rows
