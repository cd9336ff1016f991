"""The position of a loader as it is saved with a checkpoint: small, equal on every rank, checked when loaded. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from wdsloader.errors import ConfigError

__all__ = ["LoaderState"]

_VERSION = 2
# What version 1 did not say.
_SINCE_2: dict[str, Any] = {"resampled": None, "cut": "epoch"}
# The integers of a state, and the smallest value that each can have.
_LEAST = {
    "seed": 0, "epoch": 0, "position": 0, "lanes": 0, "spans_per_lane": 1, "block": 1, "batch": 1, "resampled": 1,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderState:
    """Where a loader stands, and the order it stands in.

    ``position``: samples of ``epoch`` consumed over all ranks. ``lanes`` (0: the order as listed), ``spans_per_lane``
    and ``block`` are L, k and W of ORDER.md; ``batch`` is the global batch B. ``digest``: None in the inexact mode.
    ``resampled``: the samples of an epoch of shards drawn with replacement, None where each comes once. ``cut``:
    whether the lanes are cut anew each epoch, or once a run.
    """

    digest: str | None
    seed: int
    epoch: int
    position: int
    lanes: int
    spans_per_lane: int
    block: int
    batch: int
    resampled: int | None = None
    cut: Literal["epoch", "run"] = "epoch"
    version: int = _VERSION

    def to_dict(self) -> dict[str, int | str | None]:
        """Return the state as plain values, which every format of a checkpoint can hold."""
        return asdict(self)

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> LoaderState:
        """Return the state that :meth:`to_dict` gave.

        Raises: ConfigError: of another version, damaged, or not a loader's state.
        """
        if not isinstance(state, Mapping):
            raise ConfigError(f"not a loader state: {type(state).__name__} in place of its names and values")
        version = state.get("version")
        if version not in (1, _VERSION):
            raise ConfigError(f"loader state of version {version!r}: this release reads versions 1 and {_VERSION}")
        if version == 1:
            state = {**state, **_SINCE_2, "version": _VERSION}
        names = {field.name for field in fields(cls)}
        if state.keys() != names:
            raise ConfigError(f"not a loader state: keys missing or unknown: {', '.join(sorted(names ^ state.keys()))}")
        _require_values(state)
        return cls(**state)

    def require_same_order(self, other: LoaderState, *, source: str) -> None:
        """Check that a saved state stands in the same order as this one.

        Raises: ConfigError: it names what differs, the saved value, and this loader's.
        """
        if self.digest != other.digest:
            raise ConfigError(
                f"{source} was saved with other data: digest {other.digest}, here {self.digest}. "
                "Give the same shards in the same order, or start anew"
            )
        if (self.lanes == 0) != (other.lanes == 0):
            raise ConfigError(f"{source} needs shuffle={other.lanes != 0}, as it was saved with")
        if self.resampled != other.resampled:
            raise ConfigError(
                f"{source} has {_drawn(other)}, this loader {_drawn(self)}: the rest of the order would be another one"
            )
        for name in ("seed", "lanes", "spans_per_lane", "block", "cut"):
            if getattr(self, name) != getattr(other, name):
                raise ConfigError(
                    f"{source} has {name}={getattr(other, name)}, this loader {name}={getattr(self, name)}: "
                    f"the rest of the order would be another one. Set {name}={getattr(other, name)}"
                )


def _require_values(state: Mapping[str, Any]) -> None:
    """Refuse what no loader has written. Raises: ConfigError."""
    for name, least in _LEAST.items():
        value = state[name]
        if value is None and name == "resampled":
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ConfigError(f"damaged loader state: {name}={value!r}, must be an integer of at least {least}")
    if not isinstance(state["digest"], str | None) or state["cut"] not in ("epoch", "run"):
        raise ConfigError(f"damaged loader state: digest={state['digest']!r}, cut={state['cut']!r}")


def _drawn(state: LoaderState) -> str:
    if state.resampled is None:
        return "every sample once an epoch"
    return f"resampled=True with epoch_samples={state.resampled}"
