"""What is simulated of a host, and what things cost there.

A pause is `pause_ns + bytes / rate`, as on two H100s of one host with NVLink between them. The first kernel on the other GPU took 7.6 ms;
8 GiB in handles of 32 MiB were unmapped and mapped in 14 ms, which is 570 GB/s, and copied at 369 GB/s beside kernels. If all of the memory has
changed since it was copied ahead, both are in the pause: 220 GB/s. Ahead, while the program runs on, are another context, 110 ms, and one copy
of all.

Power is that of a GPU without contexts, of one with contexts and nothing to do, and of one at work all of the time, as two H200s took by their
counters of energy (benchmarks/results/energy-h200.json).
"""

from dataclasses import dataclass, field

from scheduler.balance import OFF
from scheduler.simulator.host.programs import GIB, Program
from scheduler.simulator.settings import PREEMPTIVE_SLICE_NS, Settings


@dataclass(frozen=True)
class MoveCosts:
    """Of moving one vGPU. Times in ns, rates in bytes a ns, that is, GB/s."""

    pause_ns: int = 7_600_000
    rate: float = 220.0
    ahead_ns: int = 110_000_000
    ahead_rate: float = 369.0

    def of_pause_ns(self, nr_bytes: int) -> int:
        return self.pause_ns + round(nr_bytes / self.rate)

    def of_ahead_ns(self, nr_bytes: int) -> int:
        return self.ahead_ns + round(nr_bytes / self.ahead_rate)


@dataclass(frozen=True)
class Power:
    """Watts of one GPU: without contexts, with contexts but idle, at work all the time."""

    idle: float = 78.0
    awake: float = 120.0
    busy: float = 510.0

    def joules(self, *, empty_ns: int, there_ns: int, busy_ns: int) -> float:
        """`there_ns`: with a vGPU on it, at work or not."""
        return (self.idle * empty_ns + self.awake * there_ns + (self.busy - self.awake) * busy_ns) / 1e9


@dataclass(frozen=True)
class HostSettings:
    """One simulation: programs in the order in which they arrive, one each `interval_ns`, on devices that are all alike."""

    programs: tuple[Program, ...]
    interval_ns: int
    nr_gpus: int = 4
    balance: str = OFF
    memory: int = 80 * GIB
    """Bytes of each device."""
    costs: MoveCosts = field(default_factory=MoveCosts)
    power: Power = field(default_factory=Power)
    policy: str = "elastic"
    is_preemptive: bool = True
    slice_ns: int = PREEMPTIVE_SLICE_NS
    seed: int = 0

    def of_gpu(self) -> Settings:
        """What each Gpu and guest goes by."""
        return Settings(self.policy, vgpus=(), is_preemptive=self.is_preemptive, slice_ns=self.slice_ns, seed=self.seed)
