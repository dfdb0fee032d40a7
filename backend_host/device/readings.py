"""What is read from a control page, as plain data: who holds the GPU, who waits, what each vGPU was charged and each worker did.

Times are CLOCK_MONOTONIC (`time.monotonic_ns()`).
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from backend_host.generated.counters import WorkerCounters


class Why(enum.IntEnum):
    """Why the grant went on: enum fgw_why."""

    FREE = 0
    SLICE = 1
    IDLE = 2
    UNUSED = 3
    EVICTED = 4
    DIED = 5
    LIMIT = 6


@dataclass(frozen=True)
class HandOver:
    """The grant went from one vGPU to another; None is nobody. `phase` is that of the worker that ended
    the turn, None where none did. `gap_ns` is how long it was before a worker of the new holder came for it, None
    while none has."""

    sequence: int
    at_ns: int
    from_vgpu: int | None
    to_vgpu: int | None
    why: Why
    phase: str | None
    gap_ns: int | None


class Keeps(enum.IntEnum):
    """Why a worker's memory has to stay on the device: enum fgw_keeps. One that has work there is done with it some time."""

    NOT = 0
    FOR_WORK = 1
    SHARED = 2
    FOR_CAPTURE = 3
    FOR_HOST = 4


class Motion(enum.IntEnum):
    """How far the workers of a vGPU that changes its Gpu are to go: enum fgw_motion."""

    NONE = 0
    PREPARE = 1
    STAND = 2
    COPY = 3
    CHANGE = 4


class Bound(enum.IntFlag):
    """Why replay does not move a program: enum fgw_bound. With `MANAGED` no checkpoint does either."""

    VARIABLES = 1 << 0
    FUNCTIONS = 1 << 1
    HEAP = 1 << 2
    NESTED = 1 << 3
    IMAGES = 1 << 4
    GRAPHS = 1 << 5
    ARRAYS = 1 << 6
    MEMORY = 1 << 7
    SHARED = 1 << 8
    LINKS = 1 << 9
    DEVICE = 1 << 10
    OBJECTS = 1 << 11
    ADDRESSES = 1 << 12
    MANAGED = 1 << 13

    def texts(self) -> list[str]:
        """For a person, behind a program's name."""
        return [_BOUND[each] for each in Bound if each in self]


NOT_BOUND = Bound(0)
_BOUND = {
    Bound.VARIABLES: "has module variables",
    Bound.FUNCTIONS: "took addresses of device functions",
    Bound.HEAP: "uses the device's heap",
    Bound.NESTED: "has kernels that launch kernels",
    Bound.IMAGES: "has an image that was not kept or cannot be read",
    Bound.GRAPHS: "has graphs",
    Bound.ARRAYS: "has arrays, textures or surfaces",
    Bound.MEMORY: "has memory that the driver placed",
    Bound.SHARED: "shares memory with other programs",
    Bound.LINKS: "links images",
    Bound.DEVICE: "has a process that does not reach the other device",
    Bound.OBJECTS: "has an object that did not come out equal",
    Bound.ADDRESSES: "has an address of a module variable in memory or in a kernel",
    Bound.MANAGED: "has managed variables",
}


class Stage(enum.IntEnum):
    """How far a worker is, as it says: enum fgw_stage."""

    RUNS = 0
    PREPARED = 1
    STANDS = 2


class Sleep(enum.IntEnum):
    """How far a suspended worker is to go whose contexts leave the device, too: enum fgw_sleep."""

    NONE = 0
    STAND = 1
    ASLEEP = 2


class WorkerState(enum.IntEnum):
    """Life of a worker slot: taken by the daemon (WARM), serving a client, ended by itself; free again when the daemon freed it."""

    FREE = 0
    WARM = 1
    SERVING = 2
    ENDED = 3


@dataclass(frozen=True)
class Waiting:
    """A vGPU with at least one worker that has GPU work and no grant."""

    vgpu: int
    waiting_since_ns: int


@dataclass(frozen=True)
class Room:
    """A worker's linear memory, in bytes: allocated, of that on the device, what may be there; and what else it takes of the device."""

    slot: int
    vgpu: int
    allocated_bytes: int
    resident_bytes: int
    other_bytes: int
    target_bytes: int
    wants: bool
    """It has a turn, or waits for one, or for its memory."""
    keeps: Keeps
    displaced_since_ns: int
    """It waits for its memory since then; 0: it does not."""
    refused_bytes: int = 0
    """The driver has no room for these, which its target allows."""
    is_suspended: bool = False
    """It is to have nothing on the device until its program calls."""


class WantReading(NamedTuple):
    """What a worker that serves a program says of how much that wants the device, in ns. `gpu_ns`: used; `busy_ns`: that it had work there,
    others' beside it or not; `waited_ns`: for turns, for its limit, for its memory, in waits that are over. `waits`: it does so now."""

    slot: int
    vgpu: int
    pid: int
    waits: bool
    gpu_ns: int
    busy_ns: int
    waited_ns: int
    last_error: int = 0
    """Of the last call that failed, a CUresult; 0: none did."""
    stalled_since_ns: int = 0
    """It has work on the device, and none has ended since; 0: it has none."""


@dataclass(frozen=True)
class Grant:
    """One consistent reading of the grant. `vgpu` is None when it is free; `since_ns` is when the holder got it."""

    vgpu: int | None
    is_closed: bool
    nr_users: int
    sequence: int
    since_ns: int


@dataclass(frozen=True)
class VgpuReading:
    """A vGPU's account: times in ns, memory in bytes; `quota_bytes` 0 means none.

    It pays for `charged_ns`: the GPU time that it used, and the time that it kept the GPU from others without using it. Its use is charged
    up to `charged_until_ns`, when it last used the GPU.
    """

    vgpu: int
    used_ns: int
    held_ns: int
    charged_until_ns: int
    nr_grants: int
    memory_bytes: int
    quota_bytes: int
    nr_workers: int
    nr_waiting: int
    waiting_since_ns: int
    limit_permille: int = 0
    """Thousandths of the GPU that it uses at most; 0: no limit."""
    limited_until_ns: int = 0
    """What it was charged lasts until then at its limit (worker/page/allowance.h)."""
    back_ns: int = 0
    """Its limit keeps it from a turn until then; 0: it does not."""
    out_of_turn_ns: int = 0
    """Of what a critical one used: ahead of its turns, or while best effort had no place."""

    @property
    def charged_ns(self) -> int:
        return self.used_ns + self.held_ns


@dataclass(frozen=True, kw_only=True)
class WorkerReading(WorkerCounters):
    """One worker, and its counters since its slot was taken."""

    slot: int
    state: WorkerState
    pid: int
    vgpu: int
    client: int
    is_user: bool
    is_waiting: bool
    phase: str
    """Where it stands: a word of turn/phase.h."""
    stalled_since_ns: int
    """Work is on the device and none of it has ended since then; 0 when there is none."""
    program: str
    is_displaced: bool = False
    """It would wait if its memory were on the device."""
    is_suspended: bool = False
    """Its memory is to be off the device until its program calls."""
    sleep: Sleep = Sleep.NONE
    """Whether its contexts are off the device, or on their way."""
    laid_bytes: int = 0
    """That they took of it, when they left it the last time."""
    keeps: Keeps = Keeps.NOT
    """Why its memory is on the device still, though it is to go."""
    stage: Stage = Stage.RUNS
    """How far it is, where its vGPU changes its Gpu."""
    bound: Bound = NOT_BOUND
    """Why replay does not move it."""
    ahead_bytes: int = 0
    """Of its memory, that are on the device that it goes to, too."""
    fixed_bytes: int = 0
    """What it takes of the device beside linear memory, as far as that is counted: contexts and what is in them."""
    allocated_bytes: int = 0
    """What its program allocated, linear or not."""

    @property
    def contexts_due_bytes(self) -> int:
        """What has to be there for its contexts to come back: what is counted, or what they gave back if that is more."""
        return max(self.fixed_bytes, self.laid_bytes)

    @property
    def away_bytes(self) -> int:
        """Of what it takes of the device, that are off it as it is suspended."""
        linear_bytes = max(0, self.linear_bytes - self.resident_bytes) if self.is_suspended else 0
        return linear_bytes + (self.fixed_bytes if self.sleep is Sleep.ASLEEP else 0)


def charges(before: Sequence[VgpuReading], after: Sequence[VgpuReading]) -> dict[int, int]:
    """Time in ns that each vGPU was charged between two readings; vGPUs that are new count from zero, others that are gone are left out."""
    earlier = {reading.vgpu: reading.charged_ns for reading in before}
    return {reading.vgpu: max(0, reading.charged_ns - earlier.get(reading.vgpu, 0)) for reading in after}
