"""Which rank this process is, as torchrun says it, which one prints an error, and the short way to start several."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import signal
import sys
import tempfile
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from wds.console import print_error, setup_logging
from wds.text import masked, visible

if TYPE_CHECKING:
    from resnettrain import Rank

__all__ = ["claim_error", "claim_stop", "launch_ranks", "this_rank"]

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


def claim_error(error: Exception, words: str) -> bool:
    """Claim the printing of an error for this process; return whether it has it, as the first of its host's ranks.

    A rank ignores SIGTERM from then on. An error of its own goes into torchrun's summary too; why another rank has
    failed is for the first rank of each host to print, which may have shown its progress since.
    Args: words: what would be printed.
    """
    local_rank = os.environ.get("LOCAL_RANK")
    if local_rank is None:
        return True
    # The launcher ends the ranks that are left: this one ends by itself, and may have something to say.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    from resnettrain import PeerError

    if isinstance(error, PeerError):
        return local_rank == "0"
    with suppress(OSError):
        _tell_launcher(words)
    return _is_first_to_say(words)


def claim_stop() -> bool:
    """Claim saying that the run was stopped: one rank of a host does, and none where one has said an error."""
    return not _said() and _is_first_to_say("stopped")


def _said() -> list[Path]:
    """Return the files by which the ranks of this host tell one another which errors they have said."""
    place = _place_of_words()
    return [] if place is None else list(place.parent.glob(f"{place.name}*"))


def _is_first_to_say(words: str) -> bool:
    place = _place_of_words()
    if place is None:
        return True
    digest = hashlib.sha256(words.encode("utf-8", "surrogatepass")).hexdigest()
    try:
        place.with_name(place.name + digest).touch(exist_ok=False)
    except FileExistsError:
        return False
    except OSError:  # rather twice than never
        pass
    return True


def _place_of_words() -> Path | None:
    """Return the path that those files begin with; None where torchrun has not started this process.

    torchrun names each rank a file for its error, in a folder of its own beside those of the others.
    """
    own = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if not own:
        return None
    # The launcher's number and its attempt: nothing that an earlier run has left may silence an error.
    return Path(own).parent.parent / f"said-{os.getppid()}-{os.environ.get('TORCHELASTIC_RESTART_COUNT')}-"


def _tell_launcher(words: str) -> None:
    """Leave an error where torchrun looks for what to say at its end, in torch's form."""
    own = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if own:
        said = {"message": masked(visible(words)), "extraInfo": {"timestamp": str(int(time.time()))}}
        whole = Path(own).with_suffix(".new")
        whole.write_text(json.dumps({"message": said}))
        whole.replace(own)


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
    from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    # Else every rank takes all cores.
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // num_ranks)))
    # What the ranks say themselves is enough.
    logging.disable(logging.CRITICAL)
    folder = tempfile.mkdtemp(prefix="wds-ranks-")
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=num_ranks,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0",
        max_restarts=0,
        monitor_interval=0.1,
        # The folder of its own choice would stay behind.
        logs_specs=DefaultLogsSpecs(folder),
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
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    raise typer.Exit(0)
