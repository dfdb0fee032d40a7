"""How equally a device treats programs that all want the whole of it: others take what they want, and tell nothing of its fairness."""

from collections.abc import Iterable

from scheduler.simulator.host.job import Job
from scheduler.simulator.host.report import jain

LEAST_NS = 1_000_000_000
"""Shorter stretches tell of single turns."""
EAGER = 0.95
"""Who wants so much hardly ever pauses."""


class Equals:
    """Stretches of time in which the same programs are on a device. Jain's indices count by the lengths of stretches."""

    def __init__(self) -> None:
        self._began: dict[int, tuple[int, dict[Job, int]]] = {}
        self._total_ns = 0
        self._weighted = 0.0

    def begin(self, device: int, jobs: Iterable[Job], now_ns: int) -> None:
        """A stretch on this device; all is charged."""
        self._began[device] = now_ns, {job: job.used_ns for job in jobs if job.wants >= EAGER}

    def end(self, device: int, now_ns: int) -> None:
        """Of the one that began last; all is charged."""
        since_ns, before = self._began.pop(device, (now_ns, {}))
        length_ns = now_ns - since_ns
        if len(before) > 1 and length_ns >= LEAST_NS:
            self._total_ns += length_ns
            self._weighted += length_ns * jain([job.used_ns - used_ns for job, used_ns in before.items()])

    @property
    def index(self) -> float | None:
        """Of all of them; None: there were none."""
        return self._weighted / self._total_ns if self._total_ns else None
