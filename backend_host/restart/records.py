"""What a daemon writes down beside the descriptors of a Gpu, a vGPU, a worker, a session, and a piece of a window."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from backend_host.device.control import MAX_VGPUS, MAX_WORKERS
from backend_host.entitlement import Entitlement
from backend_host.restart.record import Record, RecordError, holds
from backend_host.statistics import Totals
from ivshmem.front import WINDOW_MAX_BYTES
from ivshmem.region import NR_CLIENTS


@dataclass(frozen=True)
class GpuRecord(Record):
    """Beside a control page. `device`: what its device is called and no other (served.py), and what contexts and streams take there, which can
    be weighed only while nobody else uses it."""

    number: int
    device: str
    retired_ns: int
    retired_deaths: int
    context_bytes: int
    stream_bytes: int


@dataclass(frozen=True)
class VGpuRecord(Record):
    """Beside a region. `shm_name` and `run` are a domain's: its region's file, and which run of the machine that is, 0: none. `made_on`: the
    UUID of the device that its guest is told of. `earlier`: what it was charged on other Gpus. `is_changing`: its programs were on their way
    from one device to another, and may be on either, or on none."""

    gpu: int
    index: int
    name: str
    kind: str
    uid: int
    entitlement: dict[str, Any]
    region_bytes: int
    shm_name: str
    has_bells: bool
    run: int
    is_kept: bool
    nr_timed_out: int
    nr_expelled: int
    expelled_for: str
    refused: dict[str, int]
    nr_deaths: int
    totals: dict[str, Any]
    made_on: str
    earlier: dict[str, int]
    is_changing: bool

    def check(self) -> None:
        """See there."""
        if self.index >= MAX_VGPUS or self.kind not in ("session", "domain", "machine"):
            raise RecordError(f"VGpuRecord: number {self.index}, kind {self.kind!r}")
        if self.earlier.keys() != {"used_ns", "held_ns", "nr_grants"}:
            raise RecordError("VGpuRecord: earlier")
        self.entitled()
        self.counted()

    def entitled(self) -> Entitlement:
        """Its entitlement."""
        try:
            return Entitlement(**self.entitlement)
        except Exception as error:  # of a type that no check expects
            raise RecordError(f"VGpuRecord: {error}") from error

    def counted(self) -> Totals:
        """What its programs did that have ended."""
        counted = Totals()
        known = {field.name: getattr(counted, field.name) for field in dataclasses.fields(Totals)}
        if self.totals.keys() != known.keys() or not all(
            holds(value, dict[str, int] if isinstance(known[name], dict) else int)
            for name, value in self.totals.items()
        ):
            raise RecordError("VGpuRecord: totals")
        return Totals(**self.totals)


@dataclass(frozen=True)
class WorkerRecord(Record):
    """Beside a worker's process, its socket and what it says. `group`: the name of its cgroup, "" where it has none. `sees`: UUIDs
    of the devices that it can go to by itself, as it counts them now; "": its own alone."""

    gpu: int
    slot: int
    vgpu: int
    client: int
    pid: int
    program: str
    group: str
    sees: str

    def check(self) -> None:
        """See there."""
        if self.slot >= MAX_WORKERS or self.vgpu >= MAX_VGPUS or self.client >= NR_CLIENTS:
            raise RecordError(f"WorkerRecord: slot {self.slot}, vGPU {self.vgpu}, client {self.client}")


@dataclass(frozen=True)
class SpaceRecord(Record):
    """Beside the page of a space of a Gpu."""

    gpu: int
    name: str


@dataclass(frozen=True)
class SessionRecord(Record):
    """Beside a connection that opened a vGPU. `is_answered`: it was told so."""

    vgpu: str
    is_answered: bool


@dataclass(frozen=True)
class PieceRecord(Record):
    """Beside a piece of a window."""

    gpu: int
    vgpu: int
    window_bytes: int
    offset: int
    nbytes: int

    def check(self) -> None:
        """See there."""
        if (
            not 0 < self.nbytes <= self.window_bytes <= WINDOW_MAX_BYTES
            or self.offset > self.window_bytes - self.nbytes
        ):
            raise RecordError(f"PieceRecord: {self.nbytes} bytes at {self.offset} of {self.window_bytes}")
