"""What a simulated host did, order by order."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

SLOWED = 1.2
"""Over the time alone: more is too much (DCUDA, section 4.5)."""


@dataclass(frozen=True)
class DeviceReport:
    """Times in ns, of one device. What its programs want together is low below half of it, over above all of it."""

    busy_ns: int
    empty_ns: int
    """Without a vGPU."""
    low_ns: int
    middle_ns: int
    over_ns: int
    joules: float


@dataclass(frozen=True)
class JobReport:
    """One program. `slowdown`: from its arrival to its end, over that alone."""

    program: str
    arrived_ns: int
    waited_ns: int
    """Until it had a device."""
    ended_ns: int
    slowdown: float
    devices: tuple[int, ...]
    away_ns: int
    """Of all its moves, from the last kernel on one device until it could begin one on the other."""


@dataclass(frozen=True)
class MoveReport:
    """A move that was decided, with the decision in a sentence; one whose program ended before has no pause."""

    at_ns: int
    told: str
    pause_ns: int | None


@dataclass(frozen=True)
class HostReport:
    """One order of programs, until the last one has ended."""

    balance: str
    interval_ns: int
    duration_ns: int
    beyond_ns: int
    """Time in which all programs together want more than all devices, so that some device is overloaded wherever they are."""
    equals: float | None
    """Jain's index of what programs got that shared a device and wanted all of it; None: there never were two."""
    devices: tuple[DeviceReport, ...]
    jobs: tuple[JobReport, ...]
    moves: tuple[MoveReport, ...]

    @property
    def overloaded(self) -> float:
        """The part of the devices' time in which more than the whole device is wanted."""
        return self._part(sum(device.over_ns for device in self.devices))

    @property
    def utilisation(self) -> float:
        """The part of the devices' time in which they work."""
        return self._part(sum(device.busy_ns for device in self.devices))

    @property
    def mean_slowdown(self) -> float:
        return fmean(job.slowdown for job in self.jobs)

    @property
    def unharmed(self) -> float:
        """The part of the programs that take at most a fifth longer than alone."""
        return fmean(job.slowdown <= SLOWED for job in self.jobs)

    @property
    def jain(self) -> float:
        """Jain's index of how fast all programs are, over how fast alone."""
        return jain([1 / job.slowdown for job in self.jobs])

    @property
    def joules(self) -> float:
        return sum(device.joules for device in self.devices)

    def figures(self) -> dict[str, float | None]:
        """By name."""
        return {
            "overloaded": self.overloaded,
            "beyond": self.beyond_ns / self.duration_ns,
            "utilisation": self.utilisation,
            "mean_slowdown": self.mean_slowdown,
            "unharmed": self.unharmed,
            "jain": self.jain,
            "equals": self.equals,
            "joules": self.joules,
            "nr_moves": len(self.moves),
            "seconds": self.duration_ns / 1e9,
        }

    def _part(self, nr_ns: int) -> float:
        return nr_ns / (self.duration_ns * len(self.devices))


def jain(values: Sequence[float]) -> float:
    """Jain's index: 1 where all are equal, one over their number where one has all."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0
