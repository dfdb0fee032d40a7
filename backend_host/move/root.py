"""What a worker's root has to have before its process is put on another device.

softgpu's is one file for each device, and a worker's root has all of them.
"""

from backend_host.devices import Device


def prepare_root(worker_pid: int, device: Device) -> None:
    """Lets the worker reach this device. Raises OSError."""


def finish_root(worker_pid: int, device: Device) -> None:
    """The counterpart, when it is on this device, or stays where it was: it reaches no other."""
