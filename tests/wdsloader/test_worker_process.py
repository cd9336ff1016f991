from __future__ import annotations

import os
import pickle
import socket
from multiprocessing.connection import wait
from pathlib import Path

from tests.helpers.shards import write_samples
from wdsloader import LoaderConfig, open_dataset
from wdsloader.pipeline import WorkerTask
from wdsloader.processes import WorkerProcess, worker_context
from wdsloader.session import order_of, plan_of
from wdsloader.worker_process import Ended, Job, work


def job_of(shard: Path, config: LoaderConfig) -> Job:
    dataset = open_dataset([str(shard)])
    state = order_of(dataset, config, world_size=1)
    plan = plan_of(state, dataset=dataset, config=config, rank=0, world_size=1)
    assert plan is not None
    task = WorkerTask(table=dataset.table, config=config, plan=plan, state=state)
    shape = (config.batch_size, 8, 8, 3)
    return Job(pickled=pickle.dumps(task), worker=0, num_workers=1, shape=shape, owner=os.getpid())


def test_a_worker_that_gets_no_slot_says_why_and_stays_until_it_is_told_to_leave(tmp_path: Path) -> None:
    """Were it to leave by itself, its end would be told in the place of the reason while others are waited for."""
    job = job_of(write_samples(tmp_path / "s.tar", 8), LoaderConfig(batch_size=4, image_size=8))
    ours, theirs = worker_context().Pipe()
    process = WorkerProcess(target=work, args=(theirs, job), daemon=True)
    process.start()
    theirs.close()
    ours.send((0, True))
    with socket.fromfd(ours.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as channel:
        channel.send(b"f")  # the file itself is dropped on the way where the worker has too many
    answer = ours.recv()
    assert isinstance(answer, Ended)
    assert "too many files open for another batch: let it have more of them (ulimit -n)" in str(answer.error)
    assert wait([ours, process.sentinel], timeout=0.5) == []
    ours.close()
    process.join()
    assert process.exitcode == 0
