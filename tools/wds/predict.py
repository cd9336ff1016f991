"""The commands that use a trained model: ``wds predict`` and ``wds export``."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from wds.console import AsJson, print_json, print_line, print_note, print_warning
from wds.text import counted, visible

if TYPE_CHECKING:
    from resnettrain import Answer, Picture, Unreadable

__all__ = ["export", "predict"]

Checkpoint = Annotated[
    Path,
    typer.Option(
        "--checkpoint", "-c", metavar="PATH", exists=True, help="A checkpoint, or a run folder for its newest."
    ),
]
Images = Annotated[
    list[str], typer.Argument(metavar="IMAGES...", help="Pictures, folders of them, shards, or patterns of either.")
]
TopK = Annotated[int, typer.Option("--top-k", "-k", min=1, help="So many classes a picture.")]
BatchSize = Annotated[int, typer.Option("--batch-size", min=1, help="Pictures at a time.")]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:N.")]
AsLines = Annotated[bool, typer.Option("--json", "--jsonl", help="Print one JSON object a picture.")]
OnError = Annotated[
    Literal["stop", "skip"],
    typer.Option("--on-error", help="After pictures that cannot be read, exit with 1, or with 0. All others are told."),
]
Trained = Annotated[
    Path, typer.Argument(metavar="CHECKPOINT", exists=True, help="A checkpoint, or a run folder for its newest.")
]
Format = Annotated[
    Literal["safetensors", "torch-export", "onnx"], typer.Option("--format", "-f", help="What to write.")
]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", show_default="CHECKPOINT.SUFFIX", help="Where to.")
]
Average = Annotated[bool, typer.Option("--ema/--no-ema", help="The moving average of the weights, where there is one.")]
OnExists = Annotated[Literal["fail", "overwrite"], typer.Option("--on-exists", help="Where the file is there already.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be written, and stop.")]


def predict(
    images: Images,
    checkpoint: Checkpoint,
    top_k: TopK = 5,
    batch_size: BatchSize = 32,
    device: Device = "auto",
    average: Average = True,
    on_error: OnError = "stop",
    as_json: AsLines = False,
) -> None:
    """Say what a trained model takes pictures for, likeliest first."""
    files, shards = _named(images)
    from resnettrain import RuntimeConfig

    runtime = RuntimeConfig(device=device)
    from resnettrain import Predictor, Unreadable, pictures_in_files, pictures_in_shards

    predictor = Predictor(checkpoint, runtime=runtime, average=average)

    def pictures() -> Iterator[Picture]:
        yield from pictures_in_files(files)
        yield from pictures_in_shards(shards)

    num_good = num_bad = 0
    for answer in predictor.answers(pictures(), batch_size=batch_size, top_k=top_k):
        num_bad += isinstance(answer, Unreadable)
        num_good += not isinstance(answer, Unreadable)
        _print_answer(answer, as_json=as_json)
    looked_at = counted(num_good, "picture was looked at/pictures were looked at")
    print_note(f"{looked_at}, {num_bad} could not be read")
    if not num_good + num_bad:
        print_warning("there was no picture in what was named")
    if (num_bad and on_error == "stop") or not num_good:
        raise typer.Exit(1)


def export(
    checkpoint: Trained,
    format: Format = "safetensors",
    output: Output = None,
    average: Average = True,
    on_exists: OnExists = "fail",
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Write a trained model for other programs, with class names and preprocessing in its metadata.

    Its answers to a batch are compared with the checkpoint's first, and nothing is written where they differ.
    """
    from resnettrain import require_exporter

    require_exporter(format)
    from resnettrain import export_model, export_suffix, load_trained
    from shardkit import OutputExistsError

    trained = load_trained(checkpoint, average=average)
    path = output or trained.path.with_suffix(export_suffix(format))
    if path.exists() and on_exists == "fail":
        raise OutputExistsError(f"{path} exists. Choose another name, or give --on-exists overwrite")
    if dry_run:
        print_line(
            f"would write {path}: {trained.identity.model}, {counted(len(trained.names), 'class/classes')}, as {format}"
        )
        return
    made = export_model(trained, path, format=format, replace=on_exists == "overwrite")
    if as_json:
        print_json({**dataclasses.asdict(made), "path": str(made.path)})
    else:
        print_line(f"{made.path}: {made.num_bytes:,} bytes; answers differ by {made.difference:.1e} of the largest")


def _named(words: Sequence[str]) -> tuple[list[Path], list[Path]]:
    """Return the picture files and the shards that the words name.

    Raises: PatternError: nothing matches, or what is no local file.
    """
    from shardkit import PatternError, expand_patterns, is_command, is_url

    files: list[Path] = []
    shards: list[Path] = []
    for word in words:
        folder = Path(word)
        if word != "-" and folder.is_dir():
            pictures = sorted(path for path in folder.rglob("*") if path.is_file() and _is_picture(path))
            tars = [] if pictures else sorted(folder.glob("*.tar"))
            if not pictures and not tars:
                raise PatternError(f"{word}: no picture and no shard is in this folder")
            files += pictures
            shards += tars
            continue
        for name in expand_patterns([word]):
            if is_url(name) or is_command(name):
                raise PatternError(f"{name}: this looks at local files. Fetch it first")
            path = Path(name)
            if not path.exists():
                raise PatternError(f"{name}: no such file. Name pictures, folders of them or shards that are there")
            (files if _is_picture(path) else shards).append(path)
    return files, shards


def _is_picture(path: Path) -> bool:
    from shardkit import picture_extension

    return picture_extension([path.suffix.lower().removeprefix(".")]) is not None


def _print_answer(answer: Answer | Unreadable, *, as_json: bool) -> None:
    from resnettrain import Unreadable

    if as_json:
        document = {"schema_version": 1, "source": answer.source}
        if isinstance(answer, Unreadable):
            print_line(json.dumps({**document, "error": answer.reason}))
            return
        rows = zip(answer.labels, answer.names, answer.shares, strict=True)
        classes = [{"label": label, "name": name, "share": share} for label, name, share in rows]
        print_line(json.dumps({**document, "classes": classes}))
    elif isinstance(answer, Unreadable):
        print_warning(f"{visible(answer.source)}: {answer.reason}")
    else:
        named = zip(answer.names, answer.shares, strict=True)
        words = ", ".join(f"{visible(name)} {share:.1%}" for name, share in named)
        print_line(f"{visible(answer.source)}: {words}")
