"""The turn of a simulated GPU's holder: when it began, what it has had, why it ends."""

from dataclasses import dataclass
from enum import Enum, auto

from scheduler import newcomer, patience
from scheduler.patience import Pauses
from scheduler.policy import Standing

_EARLY_DIVISOR = 8
"""A turn that runs dry no more than an eighth of the slice before its end has used it (backend_host/worker/page/grant.c)."""

_REQUEST_DIVISOR = 2
"""By bursts it has used it after a half: a turn is as long as nine in ten requests, and most of a program's are shorter."""


class End(Enum):
    """Why a turn is over."""

    LIMIT = auto()
    """The vGPU has reached its limit."""
    HURRY = auto()
    """A newcomer goes first, or the policy wants somebody else at once."""
    SLICE = auto()
    IDLE = auto()
    """It has nothing more to submit."""


@dataclass(slots=True)
class Turn:
    """Times in ns. A slice that was renewed begins later than its turn."""

    vgpu: int
    since_ns: int
    slice_since_ns: int
    slice_ns: int
    idle_since_ns: int | None = None
    """It has nothing to submit since then."""
    held_until_ns: int = 0
    """What it keeps idle is charged up to here."""
    is_draining: bool = False
    """It is over once the kernel is that is on the device."""

    def had_ns(self, now_ns: int) -> int:
        """Of the slice."""
        return min(self.slice_ns, now_ns - self.slice_since_ns)

    def overuse_ns(self, wanted_since_ns: int, now_ns: int) -> int:
        """What it has had beyond its slice since others want the GPU."""
        return max(0, now_ns - max(self.slice_ends_ns, wanted_since_ns))

    @property
    def slice_ends_ns(self) -> int:
        return self.slice_since_ns + self.slice_ns

    def begin_kernel(self, now_ns: int, slice_ns: int) -> None:
        """A kernel begins; `slice_ns` is how long a slice is now."""
        self.idle_since_ns = None

    def renew(self, now_ns: int, slice_ns: int) -> None:
        """The slice is over, and the holder stands before all who wait: it has another one."""
        self.slice_since_ns, self.slice_ns = now_ns, slice_ns

    def patience_ns(self, pauses: Pauses, now_ns: int, is_preemptive: bool, others_wait: bool, is_first: bool) -> int:
        """How long it is kept from when it became idle."""
        return patience.patience_ns(
            patience.View(
                pause_ns=pauses.pause.mean_ns,
                spread_ns=pauses.pause.spread_ns,
                burst_ns=pauses.burst_ns,
                slice_ns=self.slice_ns,
                turn_ns=patience.turn_ns(self.slice_ns, pauses.burst_ns, is_preemptive),
                had_ns=self.had_ns(now_ns),
                others_wait=others_wait,
                is_first=is_first,
            )
        )

    def gives_way(self, own: Standing, first: Standing, first_since_ns: int, now_ns: int, *, stays: bool) -> bool:
        """To the one that stands first of those that wait, and wants the GPU since then; `stays`: for most of a turn."""
        return newcomer.is_newcomer(
            newcomer.View(
                slice_ns=self.slice_ns,
                had_ns=self.had_ns(now_ns),
                turn_since_ns=self.since_ns,
                own_value=own.value,
                next_since_ns=first_since_ns,
                next_standing=first,
                next_stays=stays,
            )
        )

    def was_long(self, why: End, now_ns: int, slice_ns: int) -> bool | None:
        """It took most of its slice, so the next one will; None: it was cut short, and tells nothing of that. `slice_ns`: of turns that do not
        follow bursts."""
        took_ns = now_ns - self.since_ns
        if why is End.IDLE:
            divisor = _EARLY_DIVISOR if self.slice_ns == slice_ns else _REQUEST_DIVISOR
            return self.slice_ns - self.slice_ns // divisor <= took_ns <= self.slice_ns
        return True if took_ns >= self.slice_ns // 2 else None
