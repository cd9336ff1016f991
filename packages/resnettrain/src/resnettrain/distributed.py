"""The ranks of a run as one: joined, in agreement, averaged, and ended together. torch's launcher starts them.

With one rank every method does nothing, so that the loop is the same. Collectives on host tensors go over gloo, also
where the gradients go over NCCL: what the host has to know never waits for the device.
"""

from __future__ import annotations

import inspect
import io
import json
import logging
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from resnettrain.errors import ConfigError, PeerError, ResnettrainError
from resnettrain.rank import Rank
from resnettrain.watch import Watch

__all__ = ["Ranks", "open_ranks", "require_own_devices"]

log = logging.getLogger(__name__)

_Value = TypeVar("_Value")
# A rank may come late: its host was busy, or has to fetch an image first.
_JOIN = timedelta(minutes=10)
# The last resort against ranks that live and still do not come; those that die are noticed in seconds (watch.py).
_COLLECTIVE = timedelta(minutes=30)
_NEWS_S = 3.0
# torch 2.14 has given the argument a new name.
_NAMES = inspect.signature(DistributedDataParallel).parameters
_SYNC_BUFFERS = "forward_sync_buffers" if "forward_sync_buffers" in _NAMES else "broadcast_buffers"
# How gloo and NCCL say, in a plain RuntimeError, that the other side is gone.
_PEER_WORDS = ("gloo", "connection closed", "connection reset", "broken pipe", "nccl")


class Ranks:
    """The open group of ranks, as this one of them sees it."""

    def __init__(self, place: Rank | None = None, *, watch: Watch | None = None) -> None:
        self.place = place or Rank()
        self._watch = watch

    @property
    def world_size(self) -> int:
        """Return the number of ranks."""
        return self.place.world_size

    @property
    def is_first(self) -> bool:
        """Return whether this is the rank that writes and tells."""
        return self.place.is_first

    @property
    def is_alone(self) -> bool:
        """Return whether there is no other rank."""
        return self.place.is_alone

    def wrap(self, model: nn.Module) -> nn.Module:
        """Return a model, placed on its device, whose gradients are averaged over the ranks."""
        if self.is_alone:
            return model
        device = next(model.parameters()).device
        # Statistics are averaged where they are used: before an evaluation and in a checkpoint.
        sync_buffers: dict[str, Any] = {_SYNC_BUFFERS: False}
        return DistributedDataParallel(
            model,
            device_ids=[device] if device.type == "cuda" else None,
            gradient_as_bucket_view=True,
            **sync_buffers,
        )

    def require_own_device(self, device: torch.device) -> None:
        """Refuse ranks that share a CUDA device. Raises: as `require_own_devices`, on all ranks alike."""
        if self.is_alone:
            return
        mine = str(torch.cuda.get_device_properties(device).uuid) if device.type == "cuda" else None
        try:
            require_own_devices(self.gather_objects(mine))
        except ConfigError as error:
            raise self.agreed(error) from None

    def sum_(self, tensor: Tensor) -> Tensor:
        """Add up a tensor over all ranks, in place, and return it. Nothing waits for a device."""
        return self._reduce(tensor, dist.ReduceOp.SUM)

    def max_(self, tensor: Tensor) -> Tensor:
        """Take the largest over all ranks, in place, and return it. Nothing waits for a device."""
        return self._reduce(tensor, dist.ReduceOp.MAX)

    def mean_(self, tensor: Tensor) -> Tensor:
        """Average a floating tensor over all ranks, in place, and return it. Nothing waits for a device."""
        return tensor if self.is_alone else self.sum_(tensor).div_(self.world_size)

    def start_max(self, value: int) -> PendingMax:
        """Begin to agree on the largest of a value; it is there when all ranks have begun."""
        tensor = torch.tensor([value])
        return PendingMax(tensor, dist.all_reduce(tensor, op=dist.ReduceOp.MAX, async_op=True))

    def gather(self, tensor: Tensor) -> Tensor:
        """Return the tensors of all ranks, of one shape, stacked in host memory: (world_size, ...)."""
        mine = tensor.cpu()
        if self.is_alone:
            return mine.unsqueeze(0)
        parts = [torch.empty_like(mine) for _ in range(self.world_size)]
        dist.all_gather(parts, mine)
        return torch.stack(parts)

    def gather_objects(self, value: _Value) -> list[_Value]:
        """Return the values of all ranks."""
        if self.is_alone:
            return [value]
        values: list[Any] = [None] * self.world_size
        dist.all_gather_object(values, value)
        return values

    def from_first(self, value: _Value) -> _Value:
        """Return the first rank's value on all of them."""
        if self.is_alone:
            return value
        values: list[Any] = [value]
        dist.broadcast_object_list(values, src=0, device=torch.device("cpu"))
        return cast("_Value", values[0])

    def bytes_from_first(self, data: bytes) -> io.BytesIO:
        """Return the first rank's bytes on all of them."""
        length = self.from_first(len(data))
        sent = (
            torch.frombuffer(bytearray(data), dtype=torch.uint8)
            if self.is_first
            else torch.empty(length, dtype=torch.uint8)
        )
        dist.broadcast(sent, src=0)
        return io.BytesIO(sent.numpy().tobytes())

    @contextmanager
    def in_turn(self) -> Iterator[None]:
        """Let the first rank of each host go first, and the others of the host after it: what it makes they find."""
        if not self.is_alone and self.place.local_rank > 0:
            self._barrier()
        yield
        if not self.is_alone and self.place.local_rank == 0:
            self._barrier()

    def agreed(self, error: ResnettrainError) -> ResnettrainError:
        """Return the error that this rank raises where all of them have the same one to raise: the first tells it."""
        return error if self.is_first else PeerError(f"rank 0: {error}")

    def cause(self, error: BaseException) -> BaseException:
        """Return the error, in its place a PeerError where it says no more than that another rank is gone."""
        if self._watch is None or not _is_of_peer(error):
            return error
        news = self._watch.news(wait_s=_NEWS_S)
        return PeerError(news or f"another rank is gone ({str(error).partition(chr(10))[0]})")

    def step_done(self) -> None:
        """Note that a step is over: from the first on, a rank that is silent for long is taken for dead."""
        if self._watch is not None:
            self._watch.settle()

    def _barrier(self) -> None:
        # On host tensors: torch's own would ask the device.
        self.sum_(torch.zeros(1))

    def _reduce(self, tensor: Tensor, op: Any) -> Tensor:
        if not self.is_alone:
            dist.all_reduce(tensor, op=op)
        return tensor


def require_own_devices(uuids: Sequence[str | None]) -> None:
    """Refuse two ranks on one CUDA device, which NCCL would refuse in words of its own, at the first collective.

    Args: uuids: of the device of each rank; None: it is no CUDA device.
    Raises: ConfigError: naming the first two such ranks.
    """
    of_ranks: dict[str, int] = {}
    for rank, uuid_ in enumerate(uuids):
        if uuid_ is not None and (other := of_ranks.setdefault(uuid_, rank)) != rank:
            raise ConfigError(
                f"runtime.device: ranks {other} and {rank} are on one CUDA device, and each needs its own. Start as "
                "many ranks a host as it has devices (--nproc), and leave runtime.device (--device) at auto or cuda."
            )


class PendingMax:
    """A number that the ranks are about to agree on."""

    def __init__(self, tensor: Tensor, work: Any) -> None:
        self._tensor, self._work = tensor, work

    def read(self) -> int:
        """Return it; waits where a rank has not come so far yet."""
        self._work.wait()
        return int(self._tensor)


@contextmanager
def open_ranks(place: Rank, *, must_leave: Callable[[], bool] = bool) -> Iterator[Ranks]:
    """Join the other ranks and leave them at the end; whoever fails tells the others why.

    Args: must_leave: asked while not all have come yet.
    Raises: PeerError: another rank failed or is gone, with what it said; it does not come in ten minutes.
    KeyboardInterrupt: `must_leave`.
    """
    if place.is_alone:
        yield Ranks(place)
        return
    store = _join(place, must_leave=must_leave)
    watch = Watch(store, place)
    ranks = Ranks(place, watch=watch)
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    try:
        dist.init_process_group(
            backend, store=PrefixStore("group", store), rank=place.rank, world_size=place.world_size,
            timeout=_COLLECTIVE,
        )  # fmt: skip
        yield ranks
    except Exception as error:
        cause = ranks.cause(error)
        if cause is not error:
            raise cause from error
        watch.publish(str(error) or type(error).__name__)
        raise
    except BaseException as error:
        watch.publish(f"stopped at once ({type(error).__name__})")
        raise
    finally:
        # While the watch is there: NCCL waits for collectives that a rank that is gone will never join.
        if dist.is_initialized():
            dist.destroy_process_group()
        watch.close()


def _join(place: Rank, *, must_leave: Callable[[], bool]) -> Store:
    """Wait for all ranks, here and not inside of torch: there no signal is heard. Return a store of theirs alone.

    torchrun keeps one store over its restarts, with all that ranks have written who are no more. So each rank says who
    it is by a random word, the first one makes a list of these, and it holds once everybody has found itself in it.
    Raises: PeerError: not all came in time. KeyboardInterrupt: `must_leave`.
    """
    store, _, _ = next(rendezvous(place.rendezvous, place.rank, place.world_size, timeout=_JOIN))
    mine = uuid.uuid4().hex
    store.set(f"here-{place.rank}", mine)
    end = time.monotonic() + _JOIN.total_seconds()
    listed: list[str] = []
    name = ""
    while True:
        if place.is_first:
            here = [_read(store, f"here-{rank}") for rank in range(place.world_size)]
            if here != listed and all(here):
                listed, name = here, uuid.uuid4().hex
                store.set("list", json.dumps([name, listed]))
        elif found := _read(store, "list"):
            name, listed = json.loads(found)
        if listed[place.rank : place.rank + 1] == [mine]:
            group = PrefixStore(name, store)
            group.set(f"found-{place.rank}", "yes")
            if all(_read(group, f"found-{rank}") for rank in range(place.world_size)):
                return group
        if must_leave():
            raise KeyboardInterrupt
        if time.monotonic() > end:
            raise PeerError(f"of {place.world_size} ranks not all came within {_JOIN.total_seconds():.0f} s.")
        time.sleep(0.05)


def _read(store: Store, key: str) -> str:
    """Return a value, "" where there is none; waits for none."""
    return store.compare_set(key, "", "").decode()


def _is_of_peer(error: BaseException) -> bool:
    """Tell whether an error says no more than that another rank is gone."""
    if isinstance(error, dist.DistError):
        return True
    return type(error) is RuntimeError and any(word in str(error).lower() for word in _PEER_WORDS)
