"""What the device itself says about sharing: logs of when each kernel began and ended, by the device's own clock, laid over each other.

That shows

- accounting: what each vGPU was charged beside the time that its kernels occupied the device, the moments between two kernels of one queue
  included, as a pair of events around them would;
- the hand-over: the gap between the last kernel of one vGPU and the first of the next. The device's own switch between two contexts is in it;
- that switch itself, where the driver shares the device between two queues, and takes a kernel off it that runs.

Wrong when the device's clock is coarse: its step is kept beside the result.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Spans = NDArray[np.uint64]
"""Shape (kernels, 2): begin and end of each, ns of the device's clock, in order."""

PERCENTS = (50, 90, 99)
SAME_QUEUE_NS = 20_000
"""Between two kernels of one vGPU, with none of another between them, no more than this belongs to the queue; more is a pause."""


@dataclass(frozen=True)
class Timeline:
    """One kernel length, and for each vGPU how long its kernels occupied the device and what it was charged; `gaps_us` of all hand-overs, and
    the `step_ns` of the device's clock."""

    kernel_us: float
    device_s: tuple[float, ...]
    charged_s: tuple[float, ...]
    gaps_us: tuple[float, ...]
    step_ns: int

    @property
    def errors(self) -> tuple[float, ...]:
        """Charged time over device time, less 1, of each vGPU."""
        return tuple(charged / device - 1 for charged, device in zip(self.charged_s, self.device_s, strict=True))

    def gap_us(self, percent: float) -> float:
        """A percentile of the gaps; NaN when the GPU never changed hands."""
        return float(np.percentile(self.gaps_us, percent)) if self.gaps_us else float("nan")


def merged(logs: Sequence[Spans]) -> tuple[Spans, NDArray[np.intp]]:
    """All kernels by their begin, and whose each is."""
    owners = np.concatenate([np.full(len(log), index, dtype=np.intp) for index, log in enumerate(logs)])
    spans = np.concatenate(logs)
    order = np.argsort(spans[:, 0], kind="stable")
    return spans[order], owners[order]


@dataclass(frozen=True)
class Interruption:
    """A kernel that was taken off the device in its middle: its place among all kernels, that of the next one of its vGPU or of who came
    after it, and for how long others' kernels had the device meanwhile."""

    index: int
    after: int
    away_ns: float


def interruptions(spans: Spans, owners: NDArray[np.intp]) -> list[Interruption]:
    """Of merged logs. A kernel of another vGPU that begins before one has ended took its place, and nothing runs beside it."""
    found = []
    for index in np.flatnonzero((owners[1:] != owners[:-1]) & (spans[1:, 0] < spans[:-1, 1])):
        end_ns, after = spans[index, 1], int(index) + 1
        while after < len(spans) and owners[after] != owners[index] and spans[after, 0] < end_ns:
            after += 1
        back_ns = min(end_ns, spans[index + 1 : after, 1].max())
        found.append(Interruption(int(index), after, float(back_ns - spans[index + 1, 0])))
    return found


def device_seconds(logs: Sequence[Spans], *, are_queued: bool) -> tuple[float, ...]:
    """
    How long the device was occupied by each vGPU. `are_queued`: the next kernel is there when one ends, so moments between them count.

    What others had of the device in the middle of a kernel is not this one's.
    """
    spans, owners = merged(logs)
    busy_ns = (spans[:, 1] - spans[:, 0]).astype(np.float64)
    for interruption in interruptions(spans, owners):
        busy_ns[interruption.index] -= interruption.away_ns
    between_ns = spans[1:, 0].astype(np.float64) - spans[:-1, 1].astype(np.float64)
    is_queue = are_queued & (owners[1:] == owners[:-1]) & (between_ns > 0) & (between_ns <= SAME_QUEUE_NS)
    busy_ns[1:] += np.where(is_queue, between_ns, 0)
    return tuple(float(busy_ns[owners == index].sum()) / 1e9 for index in range(len(logs)))


def gaps_us(logs: Sequence[Spans]) -> tuple[float, ...]:
    """
    Between the last kernel of one vGPU and the first of the next, for each hand-over.

    Where a kernel was taken off in its middle nobody knows when: neither that hand-over nor the one back is among them.
    """
    spans, owners = merged(logs)
    between_ns = spans[1:, 0].astype(np.float64) - spans[:-1, 1].astype(np.float64)
    is_gap = owners[1:] != owners[:-1]
    for interruption in interruptions(spans, owners):
        is_gap[interruption.index] = False
        is_gap[interruption.after - 1 : interruption.after] = False
    return tuple(float(gap) / 1e3 for gap in between_ns[is_gap])


def switches_us(logs: Sequence[Spans]) -> tuple[float, ...]:
    """
    What the device's own switches between two programs cost, natively.

    From the last thing that was seen of one, a kernel's begin or end, to the first of the next: a kernel that was taken off the device in its
    middle ends when it is back, if all it does is to wait for a time. So part of one kernel is in it, half of one on average.
    """
    times = np.concatenate([log.ravel() for log in logs]).astype(np.int64)
    owners = np.concatenate([np.full(log.size, index, dtype=np.intp) for index, log in enumerate(logs)])
    order = np.argsort(times, kind="stable")
    changes = owners[order][1:] != owners[order][:-1]
    return tuple(float(switch) / 1e3 for switch in np.diff(times[order])[changes])


def clock_step_ns(logs: Sequence[Spans]) -> int:
    """The least difference between two readings of the device's clock."""
    times = np.unique(np.concatenate([log.ravel() for log in logs]))
    return int(np.diff(times).min()) if len(times) > 1 else 0
