"""When a turn is given up early: the workers' rule (backend_host/worker/turn/newcomer.c) for the simulator.

A newcomer is a vGPU that slept, comes back and stands before the holder. Only work that can stop in the midst gives way to one, so this is for
devices that preempt.
"""

from dataclasses import dataclass

from scheduler.patience import MIN_SLICE_DIVISOR, SWITCH_NS
from scheduler.policy import Standing

OWED_SLICE_DIVISOR = 32
"""Who is behind by a slice waits for a thirty-second of one: of 30 ms that is six times what a hand-over costs."""


@dataclass(frozen=True)
class View:
    """A holder and the one that stands first of those that wait. `had_ns` is what it had of the slice; its turn may be older than that."""

    slice_ns: int
    had_ns: int
    turn_since_ns: int
    own_value: float
    next_since_ns: int
    next_standing: Standing
    next_stays: bool
    """By its last turn it will use most of its next one."""


def is_newcomer(view: View) -> bool:
    """True when the holder gives its turn up for that one.

    What is shorter than a switch is no sleep. One that will use its whole turn keeps the holder waiting for longer than it waits itself.
    Whoever is a slice behind could have one and would still stand first, and waits less.
    """
    is_late = view.had_ns >= view.slice_ns // MIN_SLICE_DIVISOR and not view.next_stays
    is_owed = view.had_ns >= view.slice_ns // OWED_SLICE_DIVISOR
    return (is_late and _comes_before(view, SWITCH_NS, 0)) or (is_owed and _comes_before(view, 0, view.slice_ns))


def _comes_before(view: View, late_ns: int, owed_ns: int) -> bool:
    """It did not wait yet when the turn was so old, and stands before the holder even if it had been charged for so much more."""
    value = view.next_standing.value + view.next_standing.per_ns * owed_ns
    return view.next_since_ns > view.turn_since_ns + late_ns and value < view.own_value
