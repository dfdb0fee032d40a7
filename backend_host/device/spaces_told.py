"""What the control page says of spaces (worker/page/space.h): classes and splits, as the daemon decides them, and rounds, as workers tell them.

Wrong when: a worker was taken over. What it says of its rounds is then what its guest wants: its own vGPU's split follows from that, within the
grid, and best effort of its own space has what is left.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from backend_host.worker._worker import ffi, lib

_MAX_VGPUS: int = lib.FGW_MAX_VGPUS
_MAX_WORKERS: int = lib.FGW_MAX_WORKERS


class Round(NamedTuple):
    """One of a critical program: from its first submission when it had nothing on the device to the end of all of it."""

    signature: int
    """By what it did: rounds that did the same have the same."""
    split: int
    """That it asked for."""
    took_ns: int


class SpacesTold:
    """A part of ControlPage."""

    page: Any

    def set_class(self, vgpu: int, class_number: int, space: int) -> None:
        """What it is to those of its space (`enum fgw_class`), and that one's number; 0: it is in none."""
        lib.fgw_control_set_class(self.page, bounded(vgpu, _MAX_VGPUS), class_number, bounded(space, _MAX_VGPUS))

    def set_urgent(self, vgpu: int, *, is_urgent: bool) -> None:
        """Whether a critical one goes before all that are not urgent: what it used ahead of its turns is below its bound."""
        lib.fgw_control_set_urgent(self.page, bounded(vgpu, _MAX_VGPUS), is_urgent)

    def set_split(self, vgpu: int, split: int) -> None:
        """What rounds of a critical one ask of best effort: n and k << 16."""
        lib.fgw_control_set_split(self.page, bounded(vgpu, _MAX_VGPUS), split)

    def take_split_back(self, vgpu: int) -> None:
        """What rounds of a critical one asked for stands no more: its next one asks anew."""
        lib.fgw_control_take_split_back(self.page, bounded(vgpu, _MAX_VGPUS))

    def rounds(self, slot: int) -> tuple[int, list[Round]]:
        """How many rounds the worker in this slot has had, and its newest, oldest first."""
        readings = ffi.new("struct fgw_round_reading[]", lib.FGW_NR_ROUNDS)
        nr_rounds = ffi.new("uint64_t *")
        nr = lib.fgw_control_rounds_read(self.page, bounded(slot, _MAX_WORKERS), readings, nr_rounds)
        rounds = [Round(each.signature, each.split, each.took_ns) for each in readings[0:nr]]
        return nr_rounds[0], rounds


def bounded(number: int, limit: int) -> int:
    """The number, if it is below the limit and not below 0. Raises ValueError."""
    if not 0 <= number < limit:
        raise ValueError(f"{number} is not in 0..{limit - 1}")
    return number
