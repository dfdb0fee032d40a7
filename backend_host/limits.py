"""How many of what takes memory of host and device one vGPU may have, all of its programs together.

Each bounds what a guest that wants all of it can take from others; none is met by an honest program. They stand in the configuration, in a
table `[limits]`, and hold for every vGPU. 0 is no limit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from backend_host.errors import ConfigError
from backend_host.sizes import read_size

_MAX = (1 << 40) - 1
_SIZES = ("image_bytes",)


@dataclass(frozen=True)
class Limits:
    """Raises ConfigError for what is no number of things."""

    clients: int = 64
    """Programs that run at once: as many as a region has room for. However many there are, the last places for workers of a Gpu are kept
    for vGPUs that have none (workers.py)."""
    contexts: int = 256
    """Contexts. A program has one, rarely two: four for each of 64 programs."""
    streams: int = 8192
    """Streams. One takes 0.5 MiB of an H100. PyTorch makes 64 for a device at most, and NCCL a few: 128 for each of 64 programs."""
    modules: int = 131_072
    """Modules and libraries. A program of PyTorch loads some hundreds, one that compiles its kernels as it runs a thousand or two: 2,048 for
    each of 64 programs."""

    image_bytes: int = 2 << 30
    """Host memory of images that are on their way, and of what is linked. Two GiB are the largest image that a driver is given."""

    def of_workers(self) -> dict[str, int]:
        """Those that workers keep, as ControlPage.set_limits takes them."""
        return {key: value for key, value in dataclasses.asdict(self).items() if key != "clients"}

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MAX:
                raise ConfigError(f"{field.name} must be a whole number from 0, for no limit, to {_MAX}, not {value!r}")


ORDINARY = Limits()
"""What a vGPU may have when nobody says anything."""


def read_limits(table: Mapping[str, object]) -> Limits:
    """Of a table in a configuration, whose keys are fields of Limits; a size may be a text. Raises ConfigError."""
    sizes = {key: read_size(key, value) for key, value in table.items() if key in _SIZES and isinstance(value, str)}
    return Limits(**{**table, **sizes})  # type: ignore[arg-type]
