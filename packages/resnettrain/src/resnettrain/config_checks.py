"""Ranges of settings: one line an error, the key first."""

from __future__ import annotations

import math

from resnettrain.errors import ConfigError

__all__ = ["at_least", "positive", "within"]


def at_least(name: str, value: int, *, low: int) -> None:
    """Refuse a whole number below `low`. Raises: ConfigError."""
    if value < low:
        raise ConfigError(f"{name}: {value} must be at least {low}.")


def positive(name: str, value: float) -> None:
    """Refuse what is not a finite number above 0. Raises: ConfigError."""
    if not 0 < value < math.inf:
        raise ConfigError(f"{name}: {value} must be a number above 0.")


def within(name: str, value: float, *, low: float, high: float) -> None:
    """Refuse a number outside of low..high, and infinity. Raises: ConfigError."""
    if not low <= value <= high or math.isinf(value):
        raise ConfigError(f"{name}: {value} must be in {low}..{high}.")
