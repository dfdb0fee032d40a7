"""Strict coscheduling after Pegasus, as FairGV's paper compares with it (sections 3.2.3 and 5.3): Credit, and the CPU scheduler commands.

A vGPU runs only while its vCPU does. When a vCPU is put on a processor its vGPU takes the GPU at once, if nobody has more credits; when it is
taken off, the GPU goes to somebody else. Guests poll: one that slept would take its vGPU with it.

Good when: programs wait for every kernel, and the CPU scheduler happens to share as the GPU should be shared.
Bad when: they do not. The GPU is switched at the pace of the processors, and stands idle while no vCPU of a backlogged vGPU runs: of all
policies this one alone is not work-conserving. A caller that tells it nothing about vCPUs sees Credit; the daemon could tell it nothing.
"""

import math

from scheduler.credit import Credit
from scheduler.policy import Standing


class StrictCoscheduling(Credit):
    """Credit among the vGPUs whose vCPU runs. An event costs O(vGPUs) at most."""

    name = "strict"
    guest_waiting = "poll"

    def __init__(self) -> None:
        super().__init__()
        self._off_processor: set[int] = set()
        self._target: int | None = None

    def left(self, vgpu: int, now_ns: int) -> None:
        super().left(vgpu, now_ns)
        self._off_processor.discard(vgpu)

    def vcpu_scheduled(self, vgpu: int, now_ns: int) -> None:
        self._off_processor.discard(vgpu)
        account = self._accounts.get(vgpu)
        if account is not None and account.credits_ns >= max(other.credits_ns for other in self._accounts.values()):
            self._target = vgpu

    def vcpu_descheduled(self, vgpu: int, now_ns: int) -> None:
        if vgpu in self._accounts:
            self._off_processor.add(vgpu)
        if vgpu == self._target:
            self._target = None

    def dispatched(self, vgpu: int, now_ns: int) -> None:
        super().dispatched(vgpu, now_ns)
        if vgpu == self._target:
            self._target = None

    def preempts(self, holder: int, now_ns: int) -> bool:
        return holder in self._off_processor or (self._wanted() is not None and self._target != holder)

    def standing(self, vgpu: int, now_ns: int) -> Standing:
        if vgpu in self._off_processor:
            return Standing(math.inf)
        return Standing(-1.0) if vgpu == self._wanted() else super().standing(vgpu, now_ns)

    def _wanted(self) -> int | None:
        """The vGPU that the CPU scheduler asked for, while it waits."""
        account = self._accounts.get(self._target) if self._target is not None else None
        return self._target if account is not None and account.is_backlogged else None
