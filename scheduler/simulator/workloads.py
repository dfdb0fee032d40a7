"""What guests do: programs as a cycle of launches, a wait, and something else; those of the paper's Table 3 by name.

From the table come the length of kernels and how many calls of each kind a program makes in 10 ms when it is alone. A launch is an asynchronous
call. As the table's kernel length is a mean over all kernels, and some programs would need more than 10 ms of GPU in 10 ms, kernels are taken
to be at most as long as the time between two launches. A program that hardly ever waits launches at its rate; one that waits computes
between its waits for as long as gives its rate.

Programs that answer requests launch a row of kernels for each. In a closed loop the next one comes after a pause, which is always the same,
or exponential; else requests come at random, whether the program is ready or not. Where all pauses are the same, programs fall into step,
and how long requests take depends on that.
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
    `think_ns` of processor time. Where a program `answers_requests` a cycle answers one.

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
    answers_requests: bool = False
    sleeps_at_random: bool = False
    """`sleep_ns` is a mean, of an exponential distribution."""
    interval_ns: int = 0
    """Mean time between two requests that come at random (a Poisson process) and queue up; 0: each comes once the program is ready for it."""

    @property
    def is_at_random(self) -> bool:
        """Its cycles are of very different lengths."""
        return self.sleeps_at_random or self.interval_ns > 0

    @property
    def cycle_ns(self) -> int:
        """About how long a cycle takes alone, or a thousand launches of a longer one."""
        launches_ns = min(self.nr_launches, _MAX_LAUNCHES) * max(self.kernel_ns, self.launch_ns)
        return max(self.interval_ns, launches_ns + self.copy_ns + self.think_ns + self.sleep_ns)


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


@dataclass(frozen=True)
class Request:
    """One arrives then, or now where the program comes to it later; `at_ns` None: now."""

    at_ns: int | None


@dataclass(frozen=True)
class Answer:
    """The last one is done."""


Step = Compute | Launch | Wait | Sleep | Request | Answer


def program(workload: Workload, rng: random.Random) -> Iterator[Step]:
    """The endless sequence of what a guest does. It begins somewhere within the first tenth of a millisecond."""
    sigma = math.sqrt(math.log1p(workload.variation**2))
    mean = math.log(workload.kernel_ns) - sigma * sigma / 2

    def kernel_ns() -> int:
        return max(1, round(rng.lognormvariate(mean, sigma))) if sigma else workload.kernel_ns

    def sleep_ns() -> int:
        mean_ns = workload.sleep_ns
        return round(rng.expovariate(1 / mean_ns)) if workload.sleeps_at_random else mean_ns

    chunk = max(1, min(workload.nr_queued // 2, _CHUNK_NS // workload.launch_ns))
    before_ns = rng.randrange(1, 100_000)
    arrival_ns = 0.0
    while True:
        if workload.interval_ns:
            arrival_ns += rng.expovariate(1 / workload.interval_ns)
        if workload.answers_requests:
            yield Request(round(arrival_ns) if workload.interval_ns else None)
        nr_left = workload.nr_launches
        while nr_left:
            nr = min(nr_left, chunk)
            yield Compute(before_ns + nr * workload.launch_ns)
            nr_left -= nr
            copy_ns = 0 if nr_left else workload.copy_ns
            yield Launch(tuple(kernel_ns() + copy_ns * (i == nr - 1) for i in range(nr)))
            before_ns = 0
        yield Wait()
        if workload.answers_requests:
            yield Answer()
        before_ns = workload.think_ns
        if workload.sleep_ns:
            yield Sleep(sleep_ns())


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

_LENGTH = r"(\d+)(us|ms)"
_KERNEL_NAME = re.compile(rf"(kernel|sync)-{_LENGTH}")
_REQUESTS_NAME = re.compile(rf"(requests|random|poisson)-(\d+)x{_LENGTH}-{_LENGTH}")


class UnknownWorkloadError(ValueError):
    """No workload has this name."""

    def __init__(self, name: str) -> None:
        known = ", ".join(WORKLOADS)
        super().__init__(
            f"no workload is called {name!r}; there are: {known}; and kernel-50us, sync-5ms, requests-6x6ms-90ms, "
            "random-6x6ms-90ms, poisson-6x6ms-126ms and the like, for any length above 0"
        )


def find_workload(name: str) -> Workload:
    """By name, in any case. `kernel-LENGTH` launches kernels of that length without end, `sync-LENGTH` waits for each.

    `requests-NxLENGTH-PAUSE` answers requests of N kernels, with a pause behind each, which is a mean in `random-NxLENGTH-PAUSE`. Those of
    `poisson-NxLENGTH-INTERVAL` come one in such an interval in the mean.
    """
    if name.lower() in WORKLOADS:
        return WORKLOADS[name.lower()]
    lowered = name.lower()
    if any(int(number) == 0 for number in re.findall(r"\d+", lowered)):
        raise UnknownWorkloadError(name)
    if match := _KERNEL_NAME.fullmatch(lowered):
        nr_launches = _ENDLESS if match[1] == "kernel" else 1
        return Workload(lowered, _ns(match[2], match[3]), nr_launches=nr_launches)
    if match := _REQUESTS_NAME.fullmatch(lowered):
        kind, rest_ns = match[1], _ns(match[5], match[6])
        return Workload(
            lowered,
            _ns(match[3], match[4]),
            nr_launches=int(match[2]),
            sleep_ns=0 if kind == "poisson" else rest_ns,
            answers_requests=True,
            sleeps_at_random=kind == "random",
            interval_ns=rest_ns if kind == "poisson" else 0,
        )
    raise UnknownWorkloadError(name)


def _ns(number: str, unit: str) -> int:
    return int(number) * (1_000 if unit == "us" else 1_000_000)
