"""How long an idle holder keeps the GPU: the workers' rule (backend_host/worker/turn/patience.c) for the simulator, the same to the ns.

A program that waits for each of its kernels has nothing to submit for a moment after each, and would lose the rest of its turn every time. So
an idle holder keeps the GPU for about as long as its pauses usually last, provided that they are shorter than a switch to another vGPU and
back, or it still stands before all who wait, or has only just got it. What it holds without use it pays for. One that pauses for longer than
it works is not waited for, nor one that pauses for much of a turn.

Wrong when: a program's pauses alternate between few very different lengths. Mean and deviation then say "anything up to the longest".
"""

from dataclasses import dataclass, field

IDLE_NS = 100_000
"""Kept for so long while nobody waits."""

IDLE_CONTENDED_NS = 20_000
"""Kept for so long while somebody waits and no more would pay."""

SWITCH_NS = 400_000
"""A switch to another vGPU and back."""

PAUSE_TURN_DIVISOR = 4
"""A pause of more than a quarter of the turn is sleep: the device would stand still for most of it."""

MIN_SLICE_DIVISOR = 8
"""Short pauses are waited out, wherever the holder stands, until an eighth of the slice is over."""

DEVIATIONS = 4
"""A pause is rarely further from the mean than so many mean deviations."""


def mean_with(mean_ns: int, sample_ns: int) -> int:
    """The mean with one more sample, which counts for a quarter. 0: nothing was known."""
    return sample_ns if mean_ns == 0 else (mean_ns * 3 + sample_ns) // 4


@dataclass(slots=True)
class Habit:
    """How long something lasts as a rule: mean and mean deviation in ns, as in ivshmem/habit.h. A mean of 0: nothing is known."""

    mean_ns: int = 0
    deviation_ns: int = 0

    @property
    def spread_ns(self) -> int:
        """How far from the mean a sample hardly ever is."""
        return DEVIATIONS * self.deviation_ns

    def note(self, sample_ns: int) -> None:
        """One more sample. After the first the deviation is as large as the mean."""
        if self.mean_ns == 0:
            self.mean_ns = self.deviation_ns = sample_ns
        else:
            off_ns = abs(sample_ns - self.mean_ns)
            self.mean_ns = (self.mean_ns * 3 + sample_ns) // 4
            self.deviation_ns = (self.deviation_ns * 3 + off_ns) // 4


def turn_ns(slice_ns: int, burst_ns: int, is_preemptive: bool) -> int:
    """How long a turn lasts: a slice, but at least what is in flight at one go where that cannot be taken back."""
    return slice_ns if is_preemptive else max(slice_ns, burst_ns)


@dataclass(frozen=True)
class View:
    """An idle holder as it is looked at: how long its pauses are and how far from that, the burst of work before each, the slice, its turn,
    what it has had of the slice; whether others wait, and whether it stands before all of them."""

    pause_ns: int
    spread_ns: int
    burst_ns: int
    slice_ns: int
    turn_ns: int
    had_ns: int
    others_wait: bool
    is_first: bool


def patience_ns(view: View) -> int:
    """For how long it keeps the GPU from when it became idle, in ns."""
    if not view.others_wait:
        return IDLE_NS
    if view.pause_ns == 0 or view.pause_ns > view.burst_ns or view.pause_ns > view.turn_ns // PAUSE_TURN_DIVISOR:
        return IDLE_CONTENDED_NS
    most_ns = view.pause_ns + view.spread_ns
    if most_ns <= SWITCH_NS:
        return SWITCH_NS  # that long is never worse than twice the best
    if view.had_ns >= view.slice_ns // MIN_SLICE_DIVISOR and not view.is_first:
        return IDLE_CONTENDED_NS
    return most_ns


@dataclass(slots=True)
class Pauses:
    """What is known of one program's bursts of work and of the pauses between them. Each method is safe to repeat."""

    burst_ns: int = 0
    """Mean length of bursts; 0: none has ended yet."""
    pause: Habit = field(default_factory=Habit)
    _burst_since_ns: int | None = None
    _pause_since_ns: int | None = None

    def begin_burst(self, now_ns: int) -> None:
        """The device has work of it from now on."""
        if self._burst_since_ns is None:
            self._burst_since_ns = now_ns

    def postpone_burst(self, off_ns: int) -> None:
        """Its work was off the device for so long."""
        if self._burst_since_ns is not None:
            self._burst_since_ns += off_ns

    def end_burst(self, now_ns: int) -> None:
        """The device has none any more."""
        if self._burst_since_ns is not None:
            self.burst_ns = mean_with(self.burst_ns, now_ns - self._burst_since_ns)
            self._burst_since_ns = None
            self._pause_since_ns = now_ns

    def end_pause(self, now_ns: int, most_ns: int) -> None:
        """It has something to submit again, with the GPU or without. A pause counts for `most_ns` at most, which is `turn_ns`: a long sleep is
        soon forgotten."""
        if self._pause_since_ns is not None:
            self.pause.note(min(now_ns - self._pause_since_ns, most_ns))
            self._pause_since_ns = None
