"""Twenty programs of about half a minute each, as the DCUDA paper has (its Table 1), which gives their names alone.

benchmarks/programs has all of them. Twelve are those of the FairGV paper. What part of its time each keeps a GPU busy, alone, is measured, on
an H200: length of kernels times launches (`profile` in benchmarks/results/overhead-h200.json), and more than all of the time is all of it. For
the other eight, five of them of DCUDA's table, that part is reckoned: networks and k-means wait for input between two steps, others are all but
bound by the GPU. All twenty want the GPU for 55 % of their time in the mean, and from 1 to 100 %.

Chosen are: how long a program takes alone, 24 to 36 s; the length of a cycle, tens of ms, so that a simulation of many programs ends; the time
from a program's begin to its first kernel, half a second, or 3 s where a framework is loaded; and memory, from 600 MiB to 24 GiB.

Wrong when: a program's own pauses are shorter than a switch. A GPU is kept for it through them, so that it takes more than its kernels do. Here
all pauses are longer.
"""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from scheduler.simulator.workloads import Sleep, Step, Wait, Workload, program

MS = 1_000_000
GIB = 1 << 30
KERNEL_NS = 4 * MS
"""At most, and about as long."""
_SECOND_NS = 1_000_000_000


@dataclass(frozen=True)
class Program:
    """One that ends. Times in ns, alone and without FairGV."""

    name: str
    demand: float
    """The part of its time that it keeps a GPU busy, once it has begun to: from 0.01 to 1."""
    alone_ns: int
    """From its begin to its end."""
    memory: int
    """Bytes, of its quota as well."""
    cycle_ns: int = 40 * MS
    starts_ns: int = _SECOND_NS // 2
    """From its begin to its first kernel."""
    request: float = 0.0
    """Percent of a GPU."""

    @property
    def nr_cycles(self) -> int:
        return max(1, round((self.alone_ns - self.starts_ns) / self.cycle_ns))

    @property
    def workload(self) -> Workload:
        """A burst of kernels, a wait, a pause."""
        burst_ns = max(1, round(self.demand * self.cycle_ns))
        nr_kernels = max(1, round(burst_ns / KERNEL_NS))
        return Workload(
            self.name,
            max(1, burst_ns // nr_kernels),
            variation=0.1,
            nr_launches=nr_kernels,
            sleep_ns=self.cycle_ns - burst_ns,
            sleeps_at_random=self.demand < 1,
        )

    def steps(self, rng: random.Random) -> Iterator[Step]:
        """All that it does."""
        yield Sleep(self.starts_ns)
        nr_left = self.nr_cycles
        for step in program(self.workload, rng):
            yield step
            if isinstance(step, Wait):
                nr_left -= 1
                if not nr_left:
                    return


def _of(name: str, percent: int, seconds: int, gib: float, cycle_ms: int = 40, starts_s: float = 0.5) -> Program:
    return Program(
        name,
        percent / 100,
        seconds * _SECOND_NS,
        round(gib * GIB),
        cycle_ms * MS,
        round(starts_s * _SECOND_NS),
    )


PROGRAMS: Mapping[str, Program] = MappingProxyType(
    {
        each.name: each
        for each in (
            # Measured: the part of its time.
            _of("BlackScholes", 88, 28, 0.9),
            _of("cfd", 40, 32, 1.0),
            _of("convolutionSeparable", 100, 26, 0.8),
            _of("heartwall", 100, 30, 0.8),
            _of("histogram", 92, 28, 1.0),
            _of("hotspot", 25, 34, 0.6),
            _of("lavaMD", 100, 24, 0.7),
            _of("matrixMul", 97, 30, 0.6),
            _of("nw", 14, 36, 0.8, cycle_ms=60),
            _of("pathfinder", 1, 30, 0.7, cycle_ms=100),
            _of("scan", 78, 28, 0.7),
            _of("srad_v1", 21, 32, 0.7),
            # Reckoned.
            _of("lennardJones", 60, 34, 2.0),
            _of("langevin", 50, 28, 1.0),
            _of("streamcluster", 45, 30, 1.0),
            _of("BFS", 10, 26, 4.0),
            _of("FFT", 65, 30, 8.0),
            _of("Kmeans", 30, 34, 6.0, cycle_ms=80, starts_s=3),
            _of("mnist_mlp", 15, 30, 12.0, cycle_ms=60, starts_s=3),
            _of("alexnet", 70, 36, 24.0, cycle_ms=100, starts_s=3),
        )
    }
)
"""In the order of the table."""
