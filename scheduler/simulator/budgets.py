"""How long turns of simulated vGPUs last by bursts, as the daemon has it (backend_host/budgets.py). A vGPU has one program here."""

from collections.abc import Mapping

from scheduler.quota import LOOK_NS, Quota, turn_ns
from scheduler.simulator.member import Member


class Budgets:
    """Of the vGPUs of one GPU, by their numbers."""

    def __init__(self, slice_ns: int, most_ns: int) -> None:
        self._slice_ns = slice_ns
        self._most_ns = most_ns
        self._learnt: dict[int, tuple[int, Quota]] = {}
        self._looked_ns = -LOOK_NS

    def of(self, vgpu: int, members: Mapping[int, Member], now_ns: int) -> int | None:
        """How long its turns last; None: it had no burst yet, and has a slice. What members did is looked at when it is time for that."""
        if now_ns - self._looked_ns >= LOOK_NS:
            self._looked_ns = now_ns
            self._look(members)
        return turn_ns(self._learnt[vgpu][1].last_ns, self._slice_ns, self._most_ns) if vgpu in self._learnt else None

    def _look(self, members: Mapping[int, Member]) -> None:
        for vgpu, member in members.items():
            nr_before, quota = self._learnt.get(vgpu, (0, Quota()))
            if member.bursts.nr != nr_before:
                view = member.bursts.view()
                quota.learn(view.percentile_ns, view.last_ns)
                self._learnt[vgpu] = member.bursts.nr, quota
