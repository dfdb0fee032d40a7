"""Guests that share one core, as in the FairGV paper's Figures 8 and 9: who is where while the CPU's scheduler is part of what is measured."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.errors import NotMeasurableError


@dataclass(frozen=True)
class Pinning:
    """`core` is the guests' only one: of programs that are processes, and of machines' vCPUs. The `others` are for everything else: the daemon,
    its workers and the device, and of an emulator all threads that are no vCPU's."""

    core: int
    others: frozenset[int]

    @classmethod
    def to(cls, core: int) -> "Pinning":
        """NotMeasurableError when this process may not use that core, or no other."""
        usable = frozenset(os.sched_getaffinity(0))
        if core not in usable or usable == {core}:
            raise NotMeasurableError(
                f"the guests are to have core {core} and everything else others; there are {sorted(usable)}"
            )
        return cls(core, usable - {core})

    @contextlib.contextmanager
    def guests(self) -> Iterator[None]:
        """What this thread starts in the block is where guests are."""
        with _on(frozenset({self.core})):
            yield

    @contextlib.contextmanager
    def rest(self) -> Iterator[None]:
        """What this thread starts in the block is where everything else is."""
        with _on(self.others):
            yield

    def cputune(self) -> str:
        """The element of a domain with one vCPU."""
        others = ",".join(map(str, sorted(self.others)))
        return f"<cputune><vcpupin vcpu='0' cpuset='{self.core}'/><emulatorpin cpuset='{others}'/></cputune>"


@contextlib.contextmanager
def _on(cores: frozenset[int]) -> Iterator[None]:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)  # inherited
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
