"""Which rank this process is, as torchrun says it, and the short way to start several on one machine."""

from __future__ import annotations

import logging
import os
import signal
import sys
import uuid
from typing import TYPE_CHECKING

import typer

from wds.console import print_error, setup_logging

if TYPE_CHECKING:
    from resnettrain import Rank

__all__ = ["is_heard", "launch_ranks", "this_rank"]

# The last is what clusters send before they take a machine away.
_SIGNALS = "SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1"


def this_rank() -> Rank:
    """Return which rank torchrun has made this process; it is alone where nobody has. All but the first fall silent.

    Raises: resnettrain.ConfigError: the variables are none that torchrun sets.
    """
    from resnettrain import ConfigError, Rank

    found = {name: os.environ.get(name) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE")}
    if found["WORLD_SIZE"] is None:
        return Rank()
    try:
        rank, local_rank, world_size = (int(value or "") for value in found.values())
    except ValueError:
        said = ", ".join(f"{name}={value}" for name, value in found.items() if value is not None)
        raise ConfigError(f"{said}: torchrun sets RANK, LOCAL_RANK and WORLD_SIZE, all three as numbers.") from None
    place = Rank(rank=rank, local_rank=local_rank, world_size=world_size)
    if not place.is_first:
        setup_logging("ERROR")
    return place


def is_heard(error: Exception) -> bool:
    """Tell whether this process is to print an error: what another rank has said already, one of each host repeats."""
    from resnettrain import PeerError

    return not isinstance(error, PeerError) or os.environ.get("LOCAL_RANK", "0") == "0"


def launch_ranks(num_ranks: int | None) -> None:
    """Run this very command as so many ranks on this machine, by torch's launcher, and exit as they did.

    Nothing happens where one process was asked for, or where this is one of those already.
    Raises: typer.BadParameter: torchrun has started another number. typer.Exit: at the end.
    """
    already = os.environ.get("LOCAL_WORLD_SIZE")
    if num_ranks is None or already == str(num_ranks):
        return
    if already is not None:
        raise typer.BadParameter(
            f"{num_ranks}, but torchrun has started {already} here: leave it", param_hint="--nproc"
        )
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    # Else every rank takes all cores.
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // num_ranks)))
    # What the ranks say themselves is enough.
    logging.disable(logging.CRITICAL)
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=num_ranks,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0",
        max_restarts=0,
        monitor_interval=0.1,
    )
    # Without it, the launcher would die of what it is to pass on; older torch asks the environment alone.
    os.environ["TORCHELASTIC_SIGNALS_TO_HANDLE"] = _SIGNALS
    if hasattr(config, "signals_to_handle"):
        config.signals_to_handle = _SIGNALS
    try:
        elastic_launch(config, sys.executable)("-m", "wds", *sys.argv[1:])
    except SignalException as stop:
        raise typer.Exit(128 + stop.sigval) from None
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        if failure.exitcode < 0:
            print_error(f"rank {rank} was killed by {signal.Signals(-failure.exitcode).name}")
            raise typer.Exit(128 - failure.exitcode) from None
        raise typer.Exit(failure.exitcode) from None
    raise typer.Exit(0)
