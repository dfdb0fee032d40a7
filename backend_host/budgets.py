"""How long turns of vGPUs last where the configuration says `quota = "bursts"`: the largest quota of each one's programs (scheduler/quota.py).

Workers publish what their bursts were; a worker that its guest took over may publish anything, and so make its own vGPU's turns as long as
`most_ns`, which it pays for. Programs are told apart by their place and process.
"""

from collections.abc import Sequence

from backend_host.device.readings import WorkerReading, WorkerState
from scheduler.quota import LOOK_NS, Quota, turn_ns


class Budgets:
    """Of the vGPUs of one Gpu, by their numbers. Not thread-safe."""

    def __init__(self, most_ns: int) -> None:
        self._most_ns = most_ns
        self._quotas: dict[tuple[int, int], tuple[int, Quota]] = {}
        self._budgets: dict[int, int] = {}
        self._looked_ns = -LOOK_NS

    def is_due(self, now_ns: int) -> bool:
        """Whether it is time for a look."""
        return now_ns - self._looked_ns >= LOOK_NS

    def look(self, workers: Sequence[WorkerReading], slice_ns: int, now_ns: int) -> None:
        """What all workers publish now. Reading them takes about a millisecond."""
        self._looked_ns = now_ns
        quotas, longest = {}, dict[int, int]()
        for worker in workers:
            if worker.state is not WorkerState.SERVING:
                continue
            nr_before, quota = self._quotas.get((worker.slot, worker.pid), (0, Quota()))
            if worker.nr_bursts != nr_before and worker.burst_ns:
                quota.learn(worker.burst_ns, worker.last_burst_ns)
            quotas[worker.slot, worker.pid] = worker.nr_bursts, quota
            if quota.last_ns:
                its_ns = turn_ns(quota.last_ns, slice_ns, self._most_ns)
                longest[worker.vgpu] = max(longest.get(worker.vgpu, 0), its_ns)
        self._quotas, self._budgets = quotas, longest

    def of(self, vgpu: int) -> int | None:
        """How long its turns last; None: a slice."""
        return self._budgets.get(vgpu)
