from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from resnettrain import (
    CheckpointSaved,
    RunStarted,
    TrainReport,
    ValProgress,
    ValReport,
    resolve_config,
    to_toml,
)
from wds.run_view import RunView, config_lines
from wds.text import WIPE

pytestmark = pytest.mark.usefixtures("verbose")


def started(run_dir: Path, *, resumed_from: Path | None = None, left_out: int = 0) -> RunStarted:
    settings = resolve_config(overrides=["model.name=tiny", "optim.lr=0.25"], flags={"data.urls": ["a.tar"]})
    (run_dir / "config.toml").write_text(to_toml(settings))
    return RunStarted(
        run_dir=run_dir,
        recipe="default",
        model="tiny",
        num_classes=4,
        num_parameters=4_907_844,
        device="cpu",
        precision="fp32",
        batch_size=16,
        world_size=1,
        epochs=2,
        epoch_batches=8,
        dataset_samples=128 + left_out,
        left_out=left_out,
        total_samples=256,
        start_samples=0 if resumed_from is None else 128,
        resumed_from=resumed_from,
    )


def report(*, eta_s: float | None = 75.0) -> TrainReport:
    return TrainReport(
        epoch=0,
        batch=3,
        samples=48,
        updates=3,
        loss=1.25,
        top1=0.5,
        lr=0.1,
        images_per_s=120.4,
        wait_share=0.07,
        eta_s=eta_s,
    )


def val_report(*, is_best: bool) -> ValReport:
    return ValReport(epoch=0, samples=128, count=37, top1=0.75, top5=1.0, loss=0.5, seconds=1.25, is_best=is_best)


def test_the_start_shows_the_settings_of_the_run_folder_and_what_is_trained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    RunView()(started(tmp_path))
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert lines[0] == "settings"
    assert any(line.startswith("  optim      kind=sgd lr=0.25 ") for line in lines)
    assert lines[-1] == (
        f"tiny, 4,907,844 parameters, 4 classes, cpu fp32; 2 epochs of 8 batches of 16 on 1 rank; run folder {tmp_path}"
    )


def test_a_resumed_run_says_from_what_and_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    RunView()(started(tmp_path, resumed_from=Path("run/checkpoints/x.pt")))
    assert capsys.readouterr().err.endswith("\nresumed at 128 samples: run/checkpoints/x.pt\n")


def test_a_report_says_how_far_how_good_how_fast_and_how_long_still(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    view = RunView()
    view(started(tmp_path))
    capsys.readouterr()
    view(report())
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        "epoch 1/2 batch 3/8  loss 1.2500  top-1 0.500  lr 0.1000  120 images/s, 7% waiting for data, 1 min 15 s left\n"
    )


@pytest.mark.parametrize(
    ("eta_s", "text"), [(4.6, ", 5 s left"), (3600.0, ", 1 h 0 min left"), (None, "waiting for data")]
)
def test_the_time_left_reads_as_people_say_it(
    capsys: pytest.CaptureFixture[str], eta_s: float | None, text: str
) -> None:
    RunView()(report(eta_s=eta_s))
    assert capsys.readouterr().err.endswith(f"{text}\n")


def test_the_source_format_goes_to_stdout_in_the_words_of_the_source(capsys: pytest.CaptureFixture[str]) -> None:
    RunView(source_format=True)(report())
    assert capsys.readouterr() == ("[1, 3] loss: 1.25000 correct: 0.50000\n", "")


@pytest.mark.parametrize("is_best", [True, False])
def test_a_validation_says_its_figures_and_whether_it_is_the_best(
    capsys: pytest.CaptureFixture[str], is_best: bool
) -> None:
    RunView()(val_report(is_best=is_best))
    err = capsys.readouterr().err
    assert err.startswith("epoch 1 validation: top-1 0.7500, top-5 1.0000, loss 0.5000 on 37 samples in 1.2 s")
    assert err.endswith(", the best so far\n") is is_best


def test_passing_states_leave_no_line_off_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    view = RunView()
    view(ValProgress(count=10, total=37))
    view(CheckpointSaved(path=Path("x.pt"), samples=64))
    view.close()
    assert capsys.readouterr() == ("", "")


def test_a_quiet_view_shows_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    view = RunView(quiet=True)
    for event in (started(tmp_path), report(), val_report(is_best=True)):
        view(event)
    view.close()
    assert capsys.readouterr() == ("", "")


def test_settings_are_a_line_for_each_section() -> None:
    lines = config_lines(resolve_config(overrides=["augment.scale=[0.35,1]"]))
    assert [line.split()[0] for line in lines][:3] == ["run", "data", "model"]
    assert any("scale=[0.35,1.0]" in line for line in lines)


def test_secrets_in_shown_settings_are_masked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    event = started(tmp_path)
    settings = resolve_config(flags={"data.urls": ["https://u:SECRET1@h/a-{0..3}.tar?sig=SECRET2", "b.tar"]})
    (tmp_path / "config.toml").write_text(to_toml(settings))
    RunView()(event)
    err = capsys.readouterr().err
    assert "https://***@h/a-{0..3}.tar?sig=***" in err
    assert "SECRET" not in err


@pytest.mark.parametrize("columns", [40, 80, 120, 200])
@pytest.mark.parametrize("memory_bytes", [None, 61 << 30])
def test_a_report_fits_a_terminal_and_the_bar_goes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: int,
    memory_bytes: int | None,
) -> None:  # fmt: skip
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr("wds.console.can_redraw", lambda: True)
    view = RunView()
    view(started(tmp_path))
    capsys.readouterr()
    view(replace(report(eta_s=4800.0), images_per_s=7950.0, memory_bytes=memory_bytes))
    line = capsys.readouterr().err.removeprefix(WIPE).lstrip("\r")
    assert len(line) < columns
    if columns >= 80:
        assert line.startswith("epoch 1/2 ")
        assert line.endswith(f"wait 7%{'' if memory_bytes is None else '  61 GiB'}  1 h 20 min left")
    assert ("━" in line) == (columns > 80 or (columns == 80 and memory_bytes is None))


def test_samples_that_fill_no_batch_are_told_at_the_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    RunView()(started(tmp_path, left_out=5))
    assert "8 batches of 16 on 1 rank, which leaves out 5 of 133 samples an epoch, others each time; run" in (
        capsys.readouterr().err
    )
    RunView()(started(tmp_path))
    assert "leaves out" not in capsys.readouterr().err
