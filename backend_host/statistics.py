"""What the daemon tells about itself: the source of `status`, `list`, `top` and the tests. Counters only grow while their owner lives."""

from collections import Counter
from dataclasses import dataclass, field

from backend_host.device.control import WorkerReading


@dataclass(frozen=True)
class ClientStatistics:
    """One guest program. Bytes and nanoseconds; `last_error` is a CUresult, 0 for none."""

    program: str
    client: int
    worker_pid: int
    nr_calls: int
    nr_round_trips: int
    nr_launches: int
    nr_refused: int
    to_device_bytes: int
    from_device_bytes: int
    memory_bytes: int
    gpu_ns: int
    last_error: int
    nr_sliced: int = 0
    """Large launches that went in parts, `nr_parts` of them; `whole` counts those that did not, by reason."""
    nr_parts: int = 0
    nr_withdrawn: int = 0
    """How often work was taken off the device, for others."""
    nr_copies_beside: int = 0
    """Copies that needed no turn of the GPU: they went beside other vGPUs' kernels, and are not charged."""
    nr_variants: int = 0
    """Kernels of which a variant was made for that; it took `variant_ns`."""
    variant_ns: int = 0
    whole: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, reading: WorkerReading) -> "ClientStatistics":
        """From the worker's slot."""
        return cls(
            program=reading.program,
            client=reading.client,
            worker_pid=reading.pid,
            nr_calls=reading.nr_calls,
            nr_round_trips=reading.nr_round_trips,
            nr_launches=reading.nr_launches,
            nr_refused=reading.nr_refused,
            to_device_bytes=reading.to_device_bytes,
            from_device_bytes=reading.from_device_bytes,
            memory_bytes=reading.memory_bytes,
            gpu_ns=reading.gpu_ns,
            last_error=reading.last_error,
            nr_sliced=reading.nr_sliced,
            nr_parts=reading.nr_parts,
            nr_withdrawn=reading.nr_withdrawn,
            nr_copies_beside=reading.nr_copies_beside,
            nr_variants=reading.nr_variants,
            variant_ns=reading.variant_ns,
            whole=reading.whole,
        )


@dataclass(frozen=True)
class Totals:
    """What all clients of a vGPU did so far, those that ended included."""

    nr_clients: int = 0
    nr_calls: int = 0
    nr_round_trips: int = 0
    nr_launches: int = 0
    nr_refused: int = 0
    to_device_bytes: int = 0
    from_device_bytes: int = 0
    nr_sliced: int = 0
    nr_parts: int = 0
    nr_withdrawn: int = 0
    nr_copies_beside: int = 0
    nr_variants: int = 0
    variant_ns: int = 0
    whole: dict[str, int] = field(default_factory=dict)

    def plus(self, client: ClientStatistics) -> "Totals":
        """These totals with one client more."""
        return Totals(
            nr_clients=self.nr_clients + 1,
            nr_calls=self.nr_calls + client.nr_calls,
            nr_round_trips=self.nr_round_trips + client.nr_round_trips,
            nr_launches=self.nr_launches + client.nr_launches,
            nr_refused=self.nr_refused + client.nr_refused,
            to_device_bytes=self.to_device_bytes + client.to_device_bytes,
            from_device_bytes=self.from_device_bytes + client.from_device_bytes,
            nr_sliced=self.nr_sliced + client.nr_sliced,
            nr_parts=self.nr_parts + client.nr_parts,
            nr_withdrawn=self.nr_withdrawn + client.nr_withdrawn,
            nr_copies_beside=self.nr_copies_beside + client.nr_copies_beside,
            nr_variants=self.nr_variants + client.nr_variants,
            variant_ns=self.variant_ns + client.variant_ns,
            whole=dict(Counter(self.whole) + Counter(client.whole)),
        )


@dataclass(frozen=True)
class CoschedulingStatistics:
    """By which of the kernel's means the vGPU's threads are boosted when it gets the GPU, or why they are not; how often they were, and how
    often that was asked for in vain."""

    way: str
    is_boosted: bool
    nr_boosts: int
    nr_refused: int


@dataclass(frozen=True)
class VGpuStatistics:
    """One vGPU: its entitlement, its account, its clients. `share` is its part of all GPU time charged since the daemon started, 0 to 1."""

    name: str
    kind: str
    weight: int
    quota_bytes: int
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
    late_ns: int = 0
    """Its work has kept others from the GPU for so long that the watchdog warns; 0: it does not."""
    nr_timed_out: int = 0
    """Programs whose workers the watchdog ended."""
    window_bytes: int = 0
    """Memory behind the region that the guest was given on request."""


@dataclass(frozen=True)
class DeviceStatistics:
    """The device that all vGPUs share."""

    name: str
    kind: str
    library: str
    capability: str
    memory_bytes: int
    driver_version: int
    preempts: bool


@dataclass(frozen=True)
class DaemonStatistics:
    """Everything `status --json` prints. Times in nanoseconds."""

    pid: int
    uptime_ns: int
    policy: str
    slice_ns: int
    device: DeviceStatistics
    vgpus: tuple[VGpuStatistics, ...]
