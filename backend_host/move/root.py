"""What a worker's root has to have before its process is put on another device: NVIDIA's driver opens that device's node, and a worker has none
but that of its own.

softgpu's devices are files, and a worker's root has all of them.
"""

import errno
import os
from collections.abc import Iterable

from backend_host.devices import Device
from backend_host.errors import FairGVError
from backend_host.walls.root import nvidia_node
from backend_host.walls.start import Child
from backend_host.worker._worker import lib

_HAS_ENDED = (errno.ESRCH, errno.EBADF)
"""Of a process, and of one that was waited for, too."""


class LendingError(FairGVError):
    """The device's node cannot be given to a worker; the text says which, and why."""


def lend(worker: Child, device: Device) -> None:
    """Lets the worker reach this device. Nothing when it has ended. Raises LendingError."""
    node = _node(device)
    if node is not None and (error := lib.fgw_walls_lend(worker.pidfd, node.encode())) not in (0, *_HAS_ENDED):
        raise LendingError(f"worker {worker.pid} cannot be given {node}: {os.strerror(error)}")


def take_back(worker: Child, device: Device) -> None:
    """The counterpart: it reaches this device no more. Nothing when it has ended."""
    node = _node(device)
    if node is not None:
        lib.fgw_walls_take_back(worker.pidfd, node.encode())


def keep_own(worker: Child, others: Iterable[Device]) -> None:
    """For one that a daemon may have left on its way: it reaches none of these, whatever it was lent."""
    for device in others:
        node = _node(device)
        if node is not None and os.path.exists(f"/proc/{worker.pid}/root{node}"):  # noqa: PTH110 - or it is not ours to see
            take_back(worker, device)


def _node(device: Device) -> str | None:
    return nvidia_node(device.pci_bus_id) if device.kind == "cuda" else None
