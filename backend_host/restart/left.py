"""What a daemon that died left with the store, read: each item whole and checked, or it is given up, and nothing else with it.

A worker is known by a descriptor of its process, which no other process ever gets. Whatever becomes of an item here, its worker does not go on
unseen: it is adopted, or it is ended.
"""

import contextlib
import logging
import os
import re
import select
import signal
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from backend_host.debts import DebtsRecord
from backend_host.device.control import MAX_WORKERS, NR_OBJECTS, ControlPage, ControlPageError
from backend_host.device.gpu import GpuLeft
from backend_host.devices import Device, device_name
from backend_host.region_memory import tell_of_the_end
from backend_host.restart.keeping import Item
from backend_host.restart.record import Record, RecordError
from backend_host.restart.records import GpuRecord, PieceRecord, SessionRecord, SpaceRecord, VGpuRecord, WorkerRecord
from backend_host.worker._worker import lib

_KINDS: dict[str, tuple[type[Record], int]] = {
    "gpu": (GpuRecord, NR_OBJECTS),
    "vgpu": (VGpuRecord, 1),
    "worker": (WorkerRecord, 3),
    "piece": (PieceRecord, 1),
    "space": (SpaceRecord, 1),
    "session": (SessionRecord, 1),
    "debts": (DebtsRecord, 0),
}
_PID = re.compile(r"^Pid:\t(-?\d+)$", re.MULTILINE)
_END_S = 10.0

log = logging.getLogger("fairgv.restart")


@dataclass
class Left:
    """`items` has what nobody has taken yet, `records` what was in order, `names` all that there was."""

    items: dict[str, Item] = field(default_factory=dict)
    records: dict[str, Record] = field(default_factory=dict)
    names: frozenset[str] = frozenset()

    @classmethod
    def read(cls, items: Sequence[Item]) -> "Left":
        """Takes over all descriptors. What is not in order is ended and closed, with a line in the log."""
        left = cls({item.name: item for item in items}, names=frozenset(item.name for item in items))
        for item in items:
            try:
                left.records[item.name] = _read(item)
            except RecordError as error:
                log.error("what an earlier daemon left as %s is given up: %s", item.name, error)
        return left

    def of(self, kind: type[Any]) -> list[tuple[str, Any]]:
        """Names and records of what nobody has taken yet."""
        return [(name, record) for name, record in self.records.items() if type(record) is kind and name in self.items]

    def take(self, name: str) -> tuple[int, ...]:
        """The descriptors of an item, which are the caller's from now on."""
        return self.items.pop(name).fds

    def gpu(self, device: Device) -> GpuLeft | None:
        """What is left of this device's Gpu; its page is taken. The name is free then, as another Gpu is to have it."""
        name = f"gpu/{device.number}"
        record, item = self.records.get(name), self.items.pop(name, None)
        if item is None:
            return None
        if not isinstance(record, GpuRecord):
            item.close()
            return None
        if record.device != device_name(device):
            log.error("GPU %d is another device than before: programs there are ended", device.number)
            item.close()
            return None
        try:
            page = ControlPage.adopt(item.fds, self.workers(device.number).values())
        except ControlPageError as error:
            log.error("the control page of GPU %d cannot be taken over: %s", device.number, error)
            item.close()
            return None
        return GpuLeft(record, page)

    def workers(self, gpu: int) -> dict[str, int]:
        """Names and slots of all workers of a Gpu that nobody has taken, those whose records are of no use included."""
        start = f"worker/{gpu}/"
        names = [name for name in self.items if name.startswith(start) and name.removeprefix(start).isdecimal()]
        return {name: slot for name in names if (slot := int(name.removeprefix(start))) < MAX_WORKERS}

    def end_worker(self, name: str) -> None:
        """It is ended and waited for."""
        item = self.items.pop(name)
        end(item.fds[:1])
        item.close()

    def give_up(self) -> list[str]:
        """Ends and closes what nobody took, and gives its names."""
        end([item.fds[0] for item in self.items.values() if is_process(item)])
        for item in self.items.values():
            if item.name.startswith("vgpu/") and item.fds:
                with contextlib.suppress(OSError, ValueError):
                    tell_of_the_end(item.name, item.fds[0], lib.fgw_table_hash())
        names = list(self.items)
        for item in self.items.values():
            item.close()
        self.items.clear()
        return names


def has_ended(pidfd: int, timeout_s: float = 0) -> bool:
    """Whether this process has ended, or does so within the time."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))


def end(pidfds: Sequence[int]) -> None:
    """Ends these processes, and waits for them. One that a driver keeps from ending is left behind."""
    for pidfd in pidfds:
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    for pidfd in pidfds:
        has_ended(pidfd, _END_S)


def is_process(item: Item) -> bool:
    """Whether its life is that of a process."""
    return item.has_life and _process_of(item.fds[0]) is not None


def _process_of(fd: int) -> int | None:
    """The process of a descriptor of one: -1 when it has ended. None: it is none."""
    found = _PID.search(Path(f"/proc/self/fdinfo/{fd}").read_text())
    return int(found[1]) if found else None


def _read(item: Item) -> Record:
    kind, _, place = item.name.partition("/")
    if kind not in _KINDS:
        raise RecordError("nothing is called so")
    record_type, nr_fds = _KINDS[kind]
    record = record_type.read(item.record)
    if len(item.fds) != nr_fds:
        raise RecordError(f"{len(item.fds)} descriptors, not {nr_fds}")
    said = _place(record)
    if said and not f"{place}/".startswith(f"{said}/"):
        raise RecordError(f"its record is of {said}")
    if isinstance(record, WorkerRecord):
        if _process_of(item.fds[0]) not in (-1, record.pid):
            raise RecordError(f"it is not process {record.pid}")
        if not _is_socket(item.fds[1]):
            raise RecordError("it has no socket")
    if isinstance(record, SessionRecord) and not _is_socket(item.fds[0]):
        raise RecordError("it is no connection")
    return record


def _is_socket(fd: int) -> bool:
    return stat.S_ISSOCK(os.fstat(fd).st_mode)


def _place(record: Record) -> str:
    """What the name of its item says, too."""
    match record:
        case GpuRecord():
            return str(record.number)
        case VGpuRecord():
            return f"{record.gpu}/{record.index}"
        case WorkerRecord():
            return f"{record.gpu}/{record.slot}"
        case SpaceRecord():
            return f"{record.gpu}/{record.name}"
        case PieceRecord():
            return f"{record.gpu}/{record.vgpu}"
    return ""
