from __future__ import annotations

from resnettrain import TrainReport, source_line


def test_a_report_reads_as_the_source_prints_it() -> None:
    report = TrainReport(
        epoch=0,
        batch=7,
        samples=448,
        updates=7,
        loss=6.912345678,
        top1=0.0078125,
        lr=0.01,
        images_per_s=10.0,
        wait_share=0.5,
        eta_s=None,
    )
    assert source_line(report) == "[1, 7] loss: 6.91235 correct: 0.00781"
