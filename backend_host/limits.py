"""How many of what takes memory of host and device one vGPU may have, all of its programs together.

Each bounds what a guest that wants all of it can take from others; none is met by an honest program. They stand in the configuration, in a
table `[limits]`, and hold for every vGPU. 0 is no limit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from backend_host.errors import ConfigError

_MAX = (1 << 32) - 1


@dataclass(frozen=True)
class Limits:
    """Raises ConfigError for what is no number of things."""

    clients: int = 64
    """Programs that run at once: as many as a region has room for. However many there are, the last places for workers of a Gpu are kept
    for vGPUs that have none (workers.py)."""
    contexts: int = 256
    """A program has one, rarely two: four for each of 64 programs."""
    streams: int = 8192
    """A stream takes 0.5 MiB of an H100. PyTorch makes 64 for a device at most, and NCCL a few: 128 for each of 64 programs."""
    modules: int = 131_072
    """And libraries. A program of PyTorch loads some hundreds, one that compiles its kernels as it runs a thousand or two: 2,048 for each of
    64 programs."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MAX:
                raise ConfigError(f"{field.name} must be a whole number from 0, for no limit, to {_MAX}, not {value!r}")


ORDINARY = Limits()
"""What a vGPU may have when nobody says anything."""


def read_limits(table: Mapping[str, object]) -> Limits:
    """Of a table in a configuration. Raises ConfigError."""
    known = {field.name for field in dataclasses.fields(Limits)}
    if unknown := table.keys() - known:
        raise ConfigError(f"unknown key {min(unknown)!r}; known are: {', '.join(sorted(known))}")
    return Limits(**table)  # type: ignore[arg-type]
