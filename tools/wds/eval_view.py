"""How an evaluation is shown: its figures as text and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wds.console import print_line
from wds.text import counted

if TYPE_CHECKING:
    from resnettrain import ClassFigures, EvalResult

__all__ = ["eval_document", "print_eval"]


def eval_document(result: EvalResult) -> dict[str, object]:
    """Return the figures as --json has them."""
    figures: dict[str, object] = {
        "top1": result.top1,
        "top5": result.top5,
        "loss": result.loss,
        "count": result.count,
    }
    if result.flip is not None:
        figures["flip"] = {"top1": result.flip.top1, "top5": result.flip.top5, "loss": result.flip.loss}
    if result.classes is not None:
        classes = result.classes
        figures["classes"] = {
            "names": None if classes.names is None else list(classes.names),
            "count": classes.counts.tolist(),
            "correct1": classes.correct1.tolist(),
            "correct5": classes.correct5.tolist(),
            "confusion": classes.confusion.tolist(),
        }
    return figures


def print_eval(result: EvalResult) -> None:
    """Print the figures: a line, one more for mirror images, and one a class where they are there."""
    print_line(
        f"top-1 {result.top1:.4f}  top-5 {result.top5:.4f}  loss {result.loss:.4f}  {counted(result.count, 'sample')}"
    )
    if result.flip is not None:
        flip = result.flip
        print_line(f"with mirror images: top-1 {flip.top1:.4f}  top-5 {flip.top5:.4f}  loss {flip.loss:.4f}")
    if result.classes is not None:
        _print_classes(result.classes)


def _print_classes(classes: ClassFigures) -> None:
    """Print a line for each class, with the class that most of its samples were taken for in error."""
    names = [f"{number}" if classes.names is None else f"{number} {classes.names[number]}"
             for number in range(len(classes.confusion))]  # fmt: skip
    rows = zip(classes.confusion.tolist(), classes.counts.tolist(), classes.correct5.tolist(), strict=True)
    for number, (taken_for, count, correct5) in enumerate(rows):
        correct1, taken_for[number] = taken_for[number], 0
        most = max(taken_for)
        shares = f"top-1 {correct1 / count:.4f}  top-5 {correct5 / count:.4f}" if count else "none there"
        mistaken = f"  {most} taken for {names[taken_for.index(most)]}" if most else ""
        print_line(f"class {names[number]}: {shares}  {counted(count, 'sample')}{mistaken}")
