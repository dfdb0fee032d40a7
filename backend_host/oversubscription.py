"""How much memory of a Gpu is used, and how much its programs may allocate: `device_memory_bytes`, `oversubscribe` and `swap_bytes` of the
configuration."""

import os
from dataclasses import dataclass

from backend_host.config import Config
from backend_host.devices import Device
from backend_host.errors import ConfigError
from backend_host.sizes import format_size

_SWAP_PART = 4
"""Of the host's memory, by default."""
_STEP = 2 << 20


@dataclass(frozen=True)
class Capacity:
    """Of one Gpu, in bytes, all of its vGPUs together; both 0: whatever the driver has."""

    resident: int = 0
    """Most linear memory on the device at a time."""
    allocatable: int = 0
    """Most that all programs allocate, what stays on the device included. What is not there is in the host's memory."""

    @property
    def is_short(self) -> bool:
        """More may be allocated than there is room for."""
        return self.allocatable > self.resident


WHATEVER_THERE_IS = Capacity()


def host_bytes() -> int:
    """This machine's memory."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def swap_bytes(config: Config) -> int:
    """How much of this machine's memory is for what is not on a device, of all of them."""
    return config.swap_bytes or host_bytes() // _SWAP_PART


def capacity_of(device: Device, config: Config, nr_gpus: int = 1) -> Capacity:
    """What a Gpu's programs get of it. ConfigError when that is more than there is of the device's memory, or of the host's."""
    own = device.settings.device_memory_bytes
    bounded = config.device_memory_bytes if own is None else own
    whole = bounded or device.memory_bytes
    if bounded > device.memory_bytes:
        key = "device_memory_bytes" if own is None else f"[gpu.{device.settings.name}] device_memory_bytes"
        raise ConfigError(f"{key} is {format_size(whole)}, and {device.name} has {format_size(device.memory_bytes)}")
    if config.oversubscribe == 1:
        return Capacity(bounded, bounded)
    if config.memory != "span":
        raise ConfigError('oversubscribe needs memory = "span": what the driver places cannot be moved')
    resident = whole if bounded else whole - config.nr_warm_workers * device.context_bytes
    resident = resident // _STEP * _STEP
    allocatable = int(resident * config.oversubscribe) // _STEP * _STEP
    swap = swap_bytes(config) // nr_gpus
    if allocatable > swap:
        raise ConfigError(
            f"oversubscribe {config.oversubscribe:g} lets programs allocate {format_size(allocatable)} of a GPU, which the host's memory has "
            f"to hold while it is off the device, and {format_size(swap)} are set aside: raise swap_bytes, or lower oversubscribe or "
            "device_memory_bytes"
        )
    return Capacity(resident, allocatable)
