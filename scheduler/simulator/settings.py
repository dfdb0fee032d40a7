"""What is simulated: the vGPUs, the machine, and what things cost. Defaults are those of the daemon and of measurements on an H200."""

from dataclasses import dataclass

from scheduler.quota import DEFAULT_MOST_NS
from scheduler.simulator.workloads import Workload

SLICE_NS = 6_000_000
"""Of a device that cannot preempt (section 3.2.1)."""

PREEMPTIVE_SLICE_NS = 30_000_000


@dataclass(frozen=True)
class VgpuSpec:
    """A vGPU: its weight, at least 1, and what its guest runs. Bounds are shares of its GPU from 0 to 1; a limit is a tenth of a percent at
    least."""

    weight: int
    workload: Workload
    request: float = 0.0
    """It is to get that much whenever it has work for it, where the policy is `Bounded`; 0: none."""
    limit: float = 1.0
    """It gets no more, under any policy; 1: none."""


@dataclass(frozen=True)
class Settings:
    """One simulation. Times in ns. With `nr_cores` None every guest has a core of its own.

    `is_preemptive`: a kernel that outlives its slice goes on beside the next holder's kernels, sharing the device with them, and one that
    outlives its vGPU's allowance is taken off the device.
    """

    policy: str
    vgpus: tuple[VgpuSpec, ...]
    nr_gpus: int = 1
    duration_ns: int = 10_000_000_000
    seed: int = 0
    is_preemptive: bool = False
    slice_ns: int = SLICE_NS
    quota: str = "slice"
    """How long a turn lasts: one of `QUOTAS` (scheduler/quota.py), as in the daemon's configuration."""
    quota_max_ns: int = DEFAULT_MOST_NS
    """A turn by bursts lasts no longer; a program with longer ones keeps the slice."""
    keeps_turns: bool = False
    """A turn is kept to its end, idle or not (kept.py)."""
    handover_ns: int = 150_000
    """Of another context, on the device."""
    sharing_loss_percent: int = 8
    """Of the device's own time slicing."""
    nr_cores: int | None = None
    core_slice_ns: int = 3_000_000
    core_switch_ns: int = 5_000
    spin_ns: int = 50_000
    """How long a guest that does not poll for ever spins for an answer."""
    wake_ns: int = 10_000
    """From the answer to a guest that sleeps until it goes on."""
    round_trip_ns: int = 1_000
    """From the end of a kernel until a guest that spins knows."""
