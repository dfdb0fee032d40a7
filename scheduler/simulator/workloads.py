"""What guests do: programs as a cycle of launches, a wait, and something else; those of the paper's Table 3 by name.

From the table come the length of kernels and how many calls of each kind a program makes in 10 ms when it is alone. A launch is an asynchronous
call. As the table's kernel length is a mean over all kernels, and some programs would need more than 10 ms of GPU in 10 ms, kernels are taken
to be at most as long as the time between two launches. A program that hardly ever waits launches at its rate; one that waits computes
between its waits for as long as gives its rate.
"""

import math
import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

_TEN_MS = 10_000_000
_MAX_LAUNCHES = 1000  # between two waits, for programs that all but never wait
_ENDLESS = 1 << 62
_CHUNK_NS = 100_000  # launches are submitted together when they are made within this time


@dataclass(frozen=True)
class Workload:
    """A cycle: `nr_launches` kernels, the last with a copy of `copy_ns` of GPU time behind it, a wait for all of it, `sleep_ns` of nothing,
    `think_ns` of processor time.

    Kernels have a log-normal length of mean `kernel_ns` and the given coefficient of variation. At most `nr_queued` are launched ahead.
    """

    name: str
    kernel_ns: int
    variation: float = 0.0
    nr_launches: int = _MAX_LAUNCHES
    launch_ns: int = 1_000
    copy_ns: int = 0
    think_ns: int = 0
    sleep_ns: int = 0
    nr_queued: int = 64

    @property
    def cycle_ns(self) -> int:
        """About how long a cycle takes alone, or a thousand launches of a longer one."""
        launches_ns = min(self.nr_launches, _MAX_LAUNCHES) * max(self.kernel_ns, self.launch_ns)
        return launches_ns + self.copy_ns + self.think_ns + self.sleep_ns


@dataclass(frozen=True)
class Compute:
    """Processor time."""

    duration_ns: int


@dataclass(frozen=True)
class Launch:
    """Kernels, by length, submitted together."""

    kernels_ns: tuple[int, ...]


@dataclass(frozen=True)
class Wait:
    """Until all that was submitted is done."""


@dataclass(frozen=True)
class Sleep:
    """Neither processor nor GPU."""

    duration_ns: int


Step = Compute | Launch | Wait | Sleep


def program(workload: Workload, rng: random.Random) -> Iterator[Step]:
    """The endless sequence of what a guest does. It begins somewhere within the first tenth of a millisecond."""
    sigma = math.sqrt(math.log1p(workload.variation**2))
    mean = math.log(workload.kernel_ns) - sigma * sigma / 2

    def kernel_ns() -> int:
        return max(1, round(rng.lognormvariate(mean, sigma))) if sigma else workload.kernel_ns

    chunk = max(1, min(workload.nr_queued // 2, _CHUNK_NS // workload.launch_ns))
    before_ns = rng.randrange(1, 100_000)
    while True:
        nr_left = workload.nr_launches
        while nr_left:
            nr = min(nr_left, chunk)
            yield Compute(before_ns + nr * workload.launch_ns)
            nr_left -= nr
            copy_ns = 0 if nr_left else workload.copy_ns
            yield Launch(tuple(kernel_ns() + copy_ns * (i == nr - 1) for i in range(nr)))
            before_ns = 0
        yield Wait()
        before_ns = workload.think_ns
        if workload.sleep_ns:
            yield Sleep(workload.sleep_ns)


def _of_table(name: str, kernel_us: float, nr_async: float, nr_sync: float) -> Workload:
    """A row of Table 3: mean kernel length, calls in 10 ms."""
    period_ns = round(_TEN_MS / nr_async)
    kernel_ns = min(round(kernel_us * 1000), period_ns)
    nr_launches = max(1, min(_MAX_LAUNCHES, round(nr_async / nr_sync)))
    if nr_launches > 10:
        return Workload(
            name, kernel_ns, 0.1, nr_launches, launch_ns=max(1_000, period_ns if kernel_ns < period_ns else 0)
        )
    copy_ns = 2_000
    think_ns = nr_launches * (period_ns - kernel_ns) - copy_ns
    return Workload(name, kernel_ns, 0.1, nr_launches, copy_ns=copy_ns, think_ns=max(0, think_ns))


_MM = _of_table("mm", 207, 44.241, 0.033)


def _sleepy(percent: int) -> Workload:
    """matrixMul that sleeps for that part of its time (section 5.4.5)."""
    busy_ns = 20 * _MM.launch_ns
    return Workload(
        f"mm-sleep{percent}", _MM.kernel_ns, 0.1, 20, _MM.launch_ns, sleep_ns=busy_ns * percent // (100 - percent)
    )


WORKLOADS: Mapping[str, Workload] = MappingProxyType(
    {
        workload.name: workload
        for workload in (
            _of_table("cfd", 198, 49.761, 87.130),
            _of_table("hw", 10_201, 0.794, 11.233),
            _of_table("hs", 133, 59.520, 0.014),
            _of_table("lmd", 1_908_357, 0.002, 0.061),
            _of_table("nw", 11_032, 2.666, 0.076),
            _of_table("pf", 592, 0.027, 0.078),
            _of_table("srd1", 46, 247.525, 643.589),
            _of_table("bs", 377, 26.318, 26.355),
            _of_table("cs", 391, 19.223, 19.281),
            _of_table("hg", 431, 39.561, 39.588),
            _MM,
            _of_table("scan", 171, 54.705, 54.757),
            _sleepy(50),
            _sleepy(80),
        )
    }
)
"""Table 3 of the paper by its abbreviations, and matrixMul that sleeps."""

_KERNEL_NAME = re.compile(r"(kernel|sync)-(\d+)(us|ms)")


class UnknownWorkloadError(ValueError):
    """No workload has this name."""

    def __init__(self, name: str) -> None:
        known = ", ".join(WORKLOADS)
        super().__init__(
            f"no workload is called {name!r}; there are: {known}; and kernel-50us, sync-5ms and the like, for any length"
        )


def find_workload(name: str) -> Workload:
    """By name, in any case. `kernel-LENGTH` launches kernels of that length without end, `sync-LENGTH` waits for each."""
    if name.lower() in WORKLOADS:
        return WORKLOADS[name.lower()]
    match = _KERNEL_NAME.fullmatch(name.lower())
    if match is None or int(match[2]) == 0:
        raise UnknownWorkloadError(name)
    kernel_ns = int(match[2]) * (1_000 if match[3] == "us" else 1_000_000)
    return Workload(name.lower(), kernel_ns, nr_launches=_ENDLESS if match[1] == "kernel" else 1)
