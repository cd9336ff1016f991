from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from resnettrain import ReportError, read_class_report, read_run, report_document, report_page, resolve_config, to_toml
from tests.helpers.browser import CHROMIUM, Elements, browse
from tests.helpers.http_server import serve

HOSTILE = "<script>document.title='OWNED'</script><img src='http:&#47;&#47;leak.test'>\"'"


def write_run(folder: Path, *overrides: str, epochs: int = 3, val: bool = True, ended: bool = True) -> Path:
    """Write a run folder as training does: ten reports an epoch."""
    folder.mkdir()
    settings = resolve_config(
        overrides=["model.num_classes=4", "data.batch_size=16", 'data.urls=["a.tar"]', *overrides]
    )
    (folder / "config.toml").write_text(to_toml(settings))
    records: list[dict[str, Any]] = []
    for number in range(10 * epochs):
        samples = 160 * (number + 1)
        records.append(
            {"kind": "train", "epoch": number // 10, "samples": samples, "updates": 10 * (number + 1),
             "loss": 1.4 - 0.02 * number, "top1": 0.3 + 0.02 * number, "lr": 0.1, "images_per_s": 90.0 + number % 3,
             "wait_share": 0.05}
        )  # fmt: skip
        if val and number % 10 == 9:
            records.append(
                {"kind": "val", "epoch": number // 10, "samples": samples, "top1": 0.5 + 0.01 * number, "top5": 1.0,
                 "loss": 1.0, "count": 40}
            )  # fmt: skip
    if ended:
        records.append(
            {"kind": "end", "epoch": epochs, "samples": 1600 * epochs, "outcome": "completed", "loss": 0.8, "top1": 0.9,
             "images_per_s": 91.0, "wait_share": 0.05, "skipped": 0, "seconds": 60.0}
        )  # fmt: skip
    (folder / "metrics.jsonl").write_text(
        "".join(json.dumps({"schema_version": 1, **record}) + "\n" for record in records)
    )
    return folder


def write_eval(path: Path, *, names: list[str] | None = None, size: int = 4) -> Path:
    confusion = [[7 if row == column else (row + column) % 2 for column in range(size)] for row in range(size)]
    counts = [sum(row) for row in confusion]
    classes = {"names": names, "count": counts, "correct1": [7] * size, "correct5": counts, "confusion": confusion}
    figures = {"checkpoint": "run", "top1": 0.8, "top5": 1.0, "count": sum(counts), "classes": classes}
    path.write_text(json.dumps(figures))
    return path


def page_of(*runs: Path, evals: tuple[Path, ...] = ()) -> str:
    return report_page(list(map(read_run, runs)), classes=list(map(read_class_report, evals))).decode()


def test_a_page_has_verdict_curves_and_settings_and_no_address(tmp_path: Path) -> None:
    page = page_of(write_run(tmp_path / "a"), evals=(write_eval(tmp_path / "e.json"),))
    found = Elements(page)
    assert found.addresses == []
    assert "script" not in found.tags
    for title in ("Loss", "Top-1", "Learning rate", "Images a second", "Waiting for data"):
        assert f'aria-label="{title}"' in page
    assert "Compute-bound: 5% of the time" in page
    assert "Labels are learnt: top-1 0.880 in training, 0.790 in validation" in page
    assert "<td>num_classes</td><td>4</td>" in page


def test_several_runs_are_compared_by_figures_and_by_the_settings_that_differ(tmp_path: Path) -> None:
    runs = write_run(tmp_path / "a"), write_run(tmp_path / "b", "optim.lr=0.5", epochs=2)
    page = page_of(*runs)
    assert '<td class="best">79.00 %</td><td>69.00 %</td>' in page
    assert "<th><code>optim.lr</code></th><td><code>–</code></td><td><code>0.5</code></td>" in page
    document = report_document(list(map(read_run, runs)))
    assert document["different_settings"] == {"optim.lr": [None, "0.5"]}
    assert [run["samples"] for run in document["runs"]] == [4800, 3200]


def test_a_run_that_has_not_ended_is_told_as_such(tmp_path: Path) -> None:
    page = page_of(write_run(tmp_path / "a", val=False, ended=False))
    assert "not ended" in page
    assert "validation" not in page.partition("Curves")[0].partition("Verdict")[0]


@pytest.mark.parametrize(("size", "has_matrix"), [(4, True), (60, False)])
def test_classes_are_shown_worst_first_and_as_a_matrix_where_it_can_be_read(
    tmp_path: Path, size: int, has_matrix: bool
) -> None:
    names = [f"kind-{number}" for number in range(size)]
    page = page_of(write_run(tmp_path / "a"), evals=(write_eval(tmp_path / "e.json", names=names, size=size),))
    assert ('class="matrix"' in page) is has_matrix
    assert "<td>kind-0</td><td>kind-1</td>" in page


def test_hostile_names_are_text(tmp_path: Path) -> None:
    page = page_of(write_run(tmp_path / "a"), evals=(write_eval(tmp_path / "e.json", names=[HOSTILE] * 4),))
    assert Elements(page).addresses == []
    assert "script" not in Elements(page).tags


def test_the_same_runs_give_the_same_bytes(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a")
    assert page_of(run) == page_of(run)


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="no run folder"):
        read_run(tmp_path)
    run = write_run(tmp_path / "a")
    (run / "metrics.jsonl").write_text("")
    with pytest.raises(ReportError, match="nothing was recorded yet"):
        read_run(run)
    (run / "metrics.jsonl").write_text("{\n")
    with pytest.raises(ReportError, match="nothing was recorded yet"):
        read_run(run)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"checkpoint": "x", "classes": null}', '{"checkpoint": "x", "classes": {"confusion": 3}}']
)
def test_what_is_no_evaluation_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "e.json").write_text(text)
    with pytest.raises(ReportError, match=r"not what `wds eval --per-class --json` writes\. Make it: ") as caught:
        read_class_report(tmp_path / "e.json")
    assert "Error" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_a_real_browser_draws_the_page_and_calls_nobody(tmp_path: Path) -> None:
    runs = write_run(tmp_path / "a"), write_run(tmp_path / "b", "optim.lr=0.5")
    page = tmp_path / "page.html"
    page.write_text(page_of(*runs, evals=(write_eval(tmp_path / "e.json", names=[HOSTILE] * 4),)), encoding="utf-8")
    with serve(tmp_path) as proxy:
        dom = browse(page, "--dump-dom", f"--screenshot={tmp_path}/shot.png", proxy=proxy.url, cwd=tmp_path)
        assert not [request for request in proxy.requests if "leak.test" in request.path]
    assert "<title>2 runs</title>" in dom
    # Two runs' five curves, two of which have validation's too, and the keys of the legends.
    assert Elements(dom).tags.count("path") == 2 * 14
    assert "script" not in Elements(dom).tags
