"""Which of a run's processes this one is. Made by the command from what torchrun says; imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass

from resnettrain.errors import ConfigError

__all__ = ["Rank"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """One process of `world_size`, the `local_rank`-th of its host; alone without arguments.

    `rendezvous` is where the ranks find each other, torch's `init_method`: what torchrun has set (`env://`), host and
    port of rank 0 (`tcp:`), or a file that all of them see and none has used before (`file:`).
    """

    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    rendezvous: str = "env://"

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world_size:
            raise ConfigError(f"rank: {self.rank} must be in 0..{self.world_size - 1}, below the number of ranks.")
        if not 0 <= self.local_rank < self.world_size:
            raise ConfigError(f"local_rank: {self.local_rank} must be in 0..{self.world_size - 1}.")

    @property
    def is_first(self) -> bool:
        """Return whether this is the rank that writes and tells."""
        return self.rank == 0

    @property
    def is_alone(self) -> bool:
        """Return whether there is no other rank."""
        return self.world_size == 1
