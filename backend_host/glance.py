"""What changes from second to second: who used how much of which Gpu, and what each is entitled to. For who looks each second.

It is an eighth of what `status` tells, and of what that costs: programs are not looked at, nor are heaps counted.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class VGpuGlance:
    """One vGPU. Fields are as those of VGpuStatistics."""

    name: str
    kind: str
    gpu_number: int
    weight: int
    quota_bytes: int
    used_ns: int
    memory_bytes: int
    entitled_share: float | None


@dataclass(frozen=True)
class Glance:
    """Of all vGPUs at one moment, and how long each Gpu was used, by its number."""

    vgpus: tuple[VGpuGlance, ...]
    used_ns: Mapping[int, int]
    waits_for: str = ""
    troubles: tuple[str, ...] = ()
    """As those of DaemonStatistics."""
