"""CPU time that a hypervisor gave to others while this machine wanted it: on a rented machine figures owe that to neighbours.

Wrong where the hypervisor does not tell: none is counted then, as on a machine of one's own.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NOTED_STEAL = 0.01
"""Of the CPU time that was wanted: with more than that a measurement is said to have been disturbed."""


@dataclass(frozen=True)
class CpuTime:
    """Of all CPUs since the machine started, in ticks: what was `used`, and what was `stolen` while there was work."""

    used: int
    stolen: int


def cpu_time(stat: Path = Path("/proc/stat")) -> CpuTime:
    """As the kernel counts it, see proc_stat(5)."""
    with stat.open() as lines:
        user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, lines.readline().split()[1:9])
    return CpuTime(user + nice + system + irq + softirq, steal)


def steal_between(before: CpuTime, after: CpuTime) -> float:
    """The part of the CPU time wanted in between that others had."""
    stolen = max(0, after.stolen - before.stolen)  # some hypervisors take back what they told
    wanted = stolen + after.used - before.used
    return stolen / wanted if wanted > 0 else 0.0


def most_stolen(records: Iterable[dict[str, Any]]) -> float | None:
    """Of the records of a document; None for one from before it was counted."""
    return max((record["steal"] for record in records if "steal" in record), default=None)


def disturbance(records: Iterable[dict[str, Any]]) -> str:
    """A sentence about the records that were disturbed; empty without any."""
    found = [record["steal"] for record in records if "steal" in record]
    disturbed = [steal for steal in found if steal > NOTED_STEAL]
    if not disturbed:
        return ""
    return (
        f"In {len(disturbed)} of {len(found)} measurements the hypervisor gave others more than {100 * NOTED_STEAL:g} % of the CPU time "
        f"that was wanted here, {100 * max(disturbed):.1f} % at most: who waits for each kernel gets less done in them."
    )
