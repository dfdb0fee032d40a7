"""Which devices a daemon serves, and what one of them has otherwise than the others: `devices`, and the tables `[gpu.NAME]` of a configuration.

A device is named by its number among those of its library, or by the beginning of its UUID, which stays what it is when the host gets another
card. A name of none, as of a device that has failed, is told and costs nobody the others.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeVar

from backend_host.errors import ConfigError
from backend_host.sizes import read_size

NAME = re.compile(r"[0-9]{1,4}|GPU-[0-9A-Fa-f-]{1,36}", re.IGNORECASE)
"""No other can be written without quotes as the name of a table, and none needs them."""
MIN_SLICE_NS, MOST_SLICE_NS = 1_000_000, 60_000_000_000
MIN_DEVICE_BYTES, MOST_DEVICE_BYTES = 64 << 20, 1 << 50


class Named(Protocol):
    """A device, as far as it has names."""

    @property
    def number(self) -> int:
        """By which people call it."""

    @property
    def uuid(self) -> str:
        """As NVIDIA writes it."""


D = TypeVar("D", bound=Named)


@dataclass(frozen=True)
class GpuSettings:
    """What is otherwise for the device that `name` names. None: as for all."""

    name: str
    slice_ms: float | None = None
    """Length of its slice, in place of the general `slice_ms`."""
    device_memory_bytes: int | None = None
    """How much of its memory programs get, in place of the general `device_memory_bytes`; 0: all there is."""
    preempts: bool | None = None
    """Whether it takes a kernel off that runs, where its driver says otherwise than it does."""

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """The counterpart of `dataclasses.asdict`."""
        return cls(**values)

    @property
    def slice_ns(self) -> int | None:
        """`slice_ms`, in nanoseconds."""
        return None if self.slice_ms is None else int(self.slice_ms * 1e6)

    def written(self) -> dict[str, object]:
        """As a table of a file has it: what is said, by key."""
        return {key: value for key in KEYS if (value := getattr(self, key)) is not None}


AS_FOR_ALL = GpuSettings("")
KEYS = tuple(field.name for field in dataclasses.fields(GpuSettings) if field.name != "name")


def check_name(key: str, name: object) -> str:
    """A device's name as a text. Raises ConfigError naming the key."""
    is_number = isinstance(name, int) and not isinstance(name, bool)
    text = str(name) if is_number or isinstance(name, str) else ""
    if NAME.fullmatch(text) is None:
        raise ConfigError(
            f"{key}: a device is named by its number or by the beginning of its UUID, GPU-5c7a say, not {name!r}"
        )
    return text


def read_devices(value: object) -> tuple[str, ...]:
    """Of the key `devices`. Raises ConfigError."""
    if not isinstance(value, list):
        raise ConfigError(f'devices must be a list of numbers and UUIDs, as [0, "GPU-5c7a"], not {value!r}')
    return tuple(check_name("devices", name) for name in value)


def _slice_ms(value: object) -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not MIN_SLICE_NS <= value * 1e6 <= MOST_SLICE_NS
    ):
        raise ConfigError(f"slice_ms must be from 1 to 60000, in milliseconds, not {value!r}")
    return float(value)


def _memory(value: object) -> int:
    nr_bytes = read_size("device_memory_bytes", value)
    if nr_bytes != 0 and not MIN_DEVICE_BYTES <= nr_bytes <= MOST_DEVICE_BYTES:
        raise ConfigError(f"device_memory_bytes must be 0, for all there is, or from 64M to 1024T, not {value!r}")
    return nr_bytes


def _preempts(value: object) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"preempts must be true or false, not {value!r}")
    return value


_READ: Mapping[str, Callable[[object], object]] = {
    "slice_ms": _slice_ms,
    "device_memory_bytes": _memory,
    "preempts": _preempts,
}


def read_gpus(tables: Mapping[str, object], wrong: list[str]) -> tuple[GpuSettings, ...]:
    """The tables below `gpu`, by name, as far as they are right; a sentence for each key that is not comes to `wrong`."""
    found = []
    for name, table in tables.items():
        try:
            check_name(f"[gpu.{name}]", name)
            if not isinstance(table, dict):
                raise ConfigError(f"[gpu.{name}] must be a table, not {table!r}")
        except ConfigError as error:
            wrong.append(str(error))
            continue
        found.append(GpuSettings(name, **_right(name, table, wrong)))
    return tuple(found)


def _right(name: str, table: Mapping[str, object], wrong: list[str]) -> dict[str, Any]:
    right = {}
    for key, value in table.items():
        try:
            if key not in _READ:
                raise ConfigError(f"unknown key {key!r}; known are: {', '.join(sorted(_READ))}")
            right[key] = _READ[key](value)
        except ConfigError as error:
            wrong.append(f"[gpu.{name}] {error}")
    return right


def _named(devices: Sequence[D], key: str, name: str, troubles: list[str]) -> D | None:
    """The one device of this name; None: a sentence that names the key, and what there is, comes to `troubles`."""
    found = [device for device in devices if is_called(device, name)]
    if len(found) == 1:
        return found[0]
    there = ", ".join(f"{device.number} ({device.uuid})" for device in devices)
    which = "several devices are" if found else "no device of this host is"
    troubles.append(f"{key}: {which} called {name}; there are {there}")
    return None


def is_called(device: Named, name: str) -> bool:
    """Whether a person means this device by that name."""
    return name == str(device.number) or device.uuid.lower().startswith(name.lower())


def chosen(devices: Sequence[D], names: Sequence[str], troubles: list[str]) -> list[D]:
    """Those of these names, in the order of their numbers; without names all. A sentence for each name that is no one device's comes to
    `troubles`."""
    if not names:
        return list(devices)
    wanted = [_named(devices, "devices", name, troubles) for name in names]
    return [device for device in devices if device in wanted]


def settings_of(devices: Sequence[D], tables: Sequence[GpuSettings], troubles: list[str]) -> dict[int, GpuSettings]:
    """The table of each device that has one, by the device's number. `devices`: all of the host, served or not. `troubles`: as `chosen`."""
    found: dict[int, GpuSettings] = {}
    for table in tables:
        device = _named(devices, f"[gpu.{table.name}]", table.name, troubles)
        if device is None:
            continue
        first = found.setdefault(device.number, table)
        if first is not table:
            troubles.append(
                f"[gpu.{first.name}] and [gpu.{table.name}] are of one device, which goes by the first: make one table of them"
            )
    return found
