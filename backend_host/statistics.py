"""What the daemon tells about itself: the source of `status`, `list`, `top` and the tests. Counters only grow while their owner lives."""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from operator import itemgetter
from typing import Any

from backend_host.debts import DebtStatistics
from backend_host.device.readings import WorkerReading
from backend_host.device.unpacking import made_of
from backend_host.entitlement import Entitlement
from backend_host.fairness import NOTHING, Received
from backend_host.generated.counters import ClientCounters, TotalCounters
from backend_host.limits import ORDINARY, Limits
from backend_host.nvml.figures import UNKNOWN, Figures

_OF_CLIENT = tuple(field.name for field in fields(ClientCounters))
_OF_MANY = tuple(field.name for field in fields(TotalCounters) if field.default is MISSING)
"""Totals that have a number for each of their names."""
_OF_ONE = tuple(field.name for field in fields(TotalCounters) if field.name not in _OF_MANY)
_ONES = itemgetter(*_OF_ONE)


@dataclass(frozen=True)
class _Program:
    program: str
    client: int
    worker_pid: int


@dataclass(frozen=True)
class ClientStatistics(ClientCounters, _Program):
    """One guest program. Fields of the last base stand first."""

    phase: str = "out"
    """Where its worker stands towards the GPU: docs/grants.md has the words."""
    demand: float | None = None
    """How much of the GPU it would use if it were alone, 0 to 1, in the last minute; None: not known."""

    @classmethod
    def of(cls, reading: WorkerReading, demand: float | None = None) -> "ClientStatistics":
        """From the worker's slot."""
        told = vars(reading)
        return made_of(
            cls,
            {
                "program": reading.program,
                "client": reading.client,
                "worker_pid": reading.pid,
                **{name: told[name] for name in _OF_CLIENT},
                "phase": reading.phase,
                "demand": demand,
            },
        )


@dataclass(frozen=True)
class _Programs:
    nr_clients: int = 0


@dataclass(frozen=True)
class Totals(TotalCounters, _Programs):
    """What all clients of a vGPU did so far, those that ended included. Fields of the last base stand first."""

    def plus(self, clients: Sequence[ClientStatistics]) -> "Totals":
        """These totals with some clients more."""
        if not clients:
            return self
        each = [vars(self), *map(vars, clients)]
        sums = map(sum, zip(*map(_ONES, each), strict=True))
        totals: dict[str, Any] = {"nr_clients": self.nr_clients + len(clients), **dict(zip(_OF_ONE, sums, strict=True))}
        totals.update((name, _sum([numbers for one in each if (numbers := one[name])])) for name in _OF_MANY)
        return made_of(Totals, totals)


def _sum(dicts: Sequence[dict[str, int]]) -> dict[str, int]:
    if len(dicts) < 2:
        return next(iter(dicts), {})
    sums = dict(dicts[0])
    for each in dicts[1:]:
        for word, number in each.items():
            sums[word] = sums.get(word, 0) + number
    return sums


@dataclass(frozen=True)
class CoschedulingStatistics:
    """By which of the kernel's means the vGPU's threads are boosted when it gets the GPU, or why they are not; how often they were, and how
    often that was asked for in vain."""

    way: str
    is_boosted: bool
    nr_boosts: int
    nr_refused: int


@dataclass(frozen=True)
class _VGpu:
    name: str
    kind: str


@dataclass(frozen=True, kw_only=True)
class VGpuStatistics(Entitlement, _VGpu):
    """One vGPU: its entitlement, its account, its clients. `share` is its part of all time of its Gpu charged since the daemon started, 0 to 1;
    it hardly moves after a change, `recent_shares` do. Fields of the last base stand first."""

    gpu_number: int
    """Of the Gpu that it is on; `gpu` is what was asked for."""
    gpu_uuid: str
    region_bytes: int
    region_free_bytes: int
    """Of the heap, that in the window included."""
    memory_bytes: int
    used_ns: int
    held_ns: int
    """How long it kept the GPU from others without using it; it pays for that as for use."""
    share: float
    nr_grants: int
    coscheduling: CoschedulingStatistics
    totals: Totals
    clients: tuple[ClientStatistics, ...]
    recent_shares: Mapping[int, float] = field(default_factory=dict)
    """Its part of the GPU, 0 to 1, in the last so many seconds, or since it came."""
    entitled_share: float | None = None
    """The part that it is entitled to, by weights and bounds, beside the others that are active; None: it is not active."""
    demand: float | None = None
    """How much of the GPU its programs would use, each alone, in the last minute, up to its limit: above 1 they want more than there is. None:
    not known."""
    turn_ns: int = 0
    """How long its turns may last while others wait."""
    late_ns: int = 0
    """Its work has kept others from the GPU for so long that the watchdog warns; 0: it does not."""
    nr_timed_out: int = 0
    """Programs whose workers the watchdog ended."""
    limits: Limits = ORDINARY
    """What its programs may have together."""
    nr_expelled: int = 0
    """How often its workers were ended because one of them wrote what cannot be true: somebody took it over."""
    expelled_for: str = ""
    """What that was, the last time."""
    window_bytes: int = 0
    """Memory behind the region that the guest was given on request."""
    heap_used_bytes: int = 0
    """Of the heap, that in the window included: what programs hold."""
    received: Received = NOTHING
    """What it was entitled to in the last minute, and what it got of that."""
    refused: Mapping[str, int] = field(default_factory=dict)
    """Programs that were refused, by why: caretaker.py has the words."""
    nr_worker_deaths: int = 0
    """Workers that ended while their programs lived."""
    is_suspended: bool = False
    """It was suspended, and a program has not called since then."""
    nr_asleep: int = 0
    """Programs of it that are, whose contexts are off the device, too."""
    why_awake: str = ""
    """Why those of others stay there."""
    why_asleep: str = ""
    """Why contexts of programs that call, or were resumed, are off the device still."""

    def __post_init__(self) -> None:
        """Its entitlement is one that exists, and was checked."""


@dataclass(frozen=True)
class DeviceStatistics:
    """What a device is."""

    name: str
    kind: str
    library: str
    capability: str
    memory_bytes: int
    driver_version: int
    preempts: bool


@dataclass(frozen=True, kw_only=True)
class GpuStatistics(DeviceStatistics):
    """One Gpu of the host: what it is, by which policy it is shared, and by whom. `used_ns` is all time charged since the daemon started."""

    number: int
    uuid: str
    pci_bus_id: str
    policy: str
    slice_ns: int
    used_ns: int
    vgpus: tuple[str, ...]
    walls: tuple[str, ...]
    """What each worker here is behind (docs/walls.md)."""
    used_bytes: int
    """Of its memory, by all vGPUs."""
    recent_shares: Mapping[int, float]
    """The part of the time that it was used, 0 to 1, in the last so many seconds, or since the daemon started."""
    demand: float | None = None
    """How much of it its vGPUs want, together; above 1 more than there is. None: not known."""
    nr_mended: int = 0
    """Words of the grant that were mended: more than a few, and a worker was taken over."""
    min_max_ratio: float | None = None
    """In the last minute, of the vGPUs that wanted the GPU all the time; None: they are fewer than two."""
    nr_worker_deaths: int = 0
    """Workers that ended while their programs lived, those of vGPUs that are gone included."""
    failed: str = ""
    """Why it serves nobody any more; empty: it is in order."""
    is_drained: bool = False
    """No vGPU comes to it until an operator says otherwise."""
    has_mover: bool | None = None
    """Whether programs can leave it by checkpoint, and come to it; None: it is not known, or there is no other Gpu."""
    why_no_mover: str = ""
    """Why they cannot."""
    has_fast_moves: bool = False
    """Programs are kept ready to move by replay."""
    figures: Figures = UNKNOWN
    """What NVML says of it."""
    is_ready: bool = True
    """Workers get as far as having a context."""
    capacity_bytes: int = 0
    """How much memory of programs may be on it at a time; 0: whatever the driver has."""
    allocatable_bytes: int = 0
    """How much its programs may allocate together; 0: likewise."""
    nr_apart: int = 0
    """How often vGPUs got a grant each for a while, as somebody had written into that of all what no worker writes."""


@dataclass(frozen=True, kw_only=True)
class SpaceStatistics:
    """vGPUs that may use a Gpu at the same time, and what comes of it."""

    name: str
    gpu_number: int
    way: str
    """`mps`, `softgpu`, or `turns`: they cannot, and take turns."""
    why_turns: str = ""
    """Why they cannot."""
    critical: str = ""
    """The critical vGPU; empty: there is none."""
    best_effort: tuple[str, ...] = ()
    fair: tuple[str, ...] = ()
    qos: str = ""
    """The critical one's target."""
    most: float = 0.0
    """Percent of the GPU over 10 s that it may take out of turn."""
    out_of_turn: float = 0.0
    """The part of the last 10 s that it took so, 0 to 1."""
    multiprocessors: int = 0
    """Of the device; 0: not known yet."""
    split: tuple[int, int] | None = None
    """Best effort has the second fewer blocks on each of the first multiprocessors, while rounds last. None: nothing is asked for."""
    slowdowns: Mapping[str, float] = field(default_factory=dict)
    """Of rounds over what they take with all of the GPU: p50, p95, p99; empty: no round was compared yet."""
    nr_rounds: int = 0
    """That were compared."""
    nr_missed: int = 0
    """Of these, slower than the target."""
    progress: float | None = None
    """The part of best effort's blocks that the split leaves. None: it has none to leave."""
    search: str = ""
    """What chooses the split."""
    why: str = ""
    """What that does, and why."""
    is_settled: bool = False
    """It tries nothing else for now."""
    nr_gated: int = 0
    """Launches of best effort that cannot give way and waited for rounds to end, at the gate of the space."""
    gated_ns: int = 0
    """How long they waited."""
    nr_faults: int = 0
    """How often the space started anew, as the device served none of its programs any more."""


@dataclass(frozen=True)
class CodeStatistics:
    """What `status --json` says of compiled code."""

    nr_bytes: int = 0
    """That all tenants had at the last look."""
    free_bytes: int = 0
    """Room of the file system that it lies in, at the last look."""
    removed_bytes: int = 0
    """Since the daemon's start, to make room."""
    nr_ended: int = 0
    """Times that a tenant's workers were ended, as they took far more room than they may."""


@dataclass(frozen=True)
class DaemonStatistics:
    """Everything `status --json` prints. Times in nanoseconds. `policy`, `slice_ns` and `device` are the first Gpu's, for readers of hosts with
    one."""

    pid: int
    uptime_ns: int
    policy: str
    slice_ns: int
    device: DeviceStatistics
    gpus: tuple[GpuStatistics, ...]
    vgpus: tuple[VGpuStatistics, ...]
    debts: tuple[DebtStatistics, ...] = ()
    nr_restarts: int = 0
    """Starts of the daemon in this state directory after the first."""
    domain_uuids: Mapping[str, str] = field(default_factory=dict)
    """Of the domains that have a vGPU, by its name."""
    waits_for: str = ""
    """Why no program is served yet: those of an earlier release go on (restart/old.py). Empty: all are served."""
    nr_old_programs: int = 0
    """How many those are."""
    troubles: tuple[str, ...] = ()
    """What of the configuration is not served by, and why: names of devices that are not there, vGPUs of vgpus.d that cannot be made. And what
    does not come of requests."""
    spaces: tuple[SpaceStatistics, ...] = ()
    """vGPUs that may use a Gpu at the same time."""
    compiled_code: CodeStatistics = CodeStatistics()
    """Of tenants, kept for their next programs."""
