"""A GPU as the host sees it: it works on one kernel of each context that has one, and tells when a kernel is done.

With one context at work, which is how a device that cannot preempt is used, kernels take as long as they are. With several, the device's own
time slicing gives each an equal part and loses something on the way (docs of the driver say nothing; measured: 8 % of the device).
"""

from collections.abc import Callable

from scheduler.simulator.events import Event, Events


class Device:
    """Times in ns. `completed` is called with the vGPU whose kernel is done."""

    def __init__(self, events: Events, sharing_loss_percent: int, completed: Callable[[int], None]) -> None:
        self.busy_ns = 0
        self._events = events
        self._kept_percent = 100 - sharing_loss_percent
        self._completed = completed
        self._left_ns: dict[int, int] = {}
        self._used_ns: dict[int, int] = {}
        self._settled_ns = 0
        self._next: Event | None = None

    def is_busy(self, vgpu: int) -> bool:
        """True while a kernel of this vGPU is on the device."""
        return vgpu in self._left_ns

    def start(self, vgpu: int, kernel_ns: int) -> None:
        """A kernel of a vGPU that has none on the device."""
        self._settle()
        self._left_ns[vgpu] = kernel_ns
        self._arm()

    def left_ns(self, vgpu: int) -> int:
        """How long its kernel, which is on the device, still takes alone."""
        self._settle()
        return max(1, self._left_ns[vgpu])

    def take_off(self, vgpu: int) -> int:
        """Withdraws its kernel and tells what is left of it: what `start` is to be called with to bring it back."""
        left_ns = self.left_ns(vgpu)
        del self._left_ns[vgpu]
        self._arm()
        return left_ns

    def others(self, vgpu: int | None) -> list[int]:
        """Who but this vGPU has a kernel on the device."""
        return [other for other in self._left_ns if other != vgpu]

    def take_used(self) -> dict[int, int]:
        """What each vGPU got of the device since this was last asked; those that got nothing are left out."""
        self._settle()
        used, self._used_ns = self._used_ns, {}
        return used

    def _settle(self) -> None:
        elapsed_ns = self._events.now_ns - self._settled_ns
        self._settled_ns = self._events.now_ns
        if not self._left_ns or elapsed_ns == 0:
            return
        self.busy_ns += elapsed_ns
        nr = len(self._left_ns)
        progress_ns = elapsed_ns if nr == 1 else elapsed_ns * self._kept_percent // (100 * nr)
        for vgpu in self._left_ns:
            self._left_ns[vgpu] -= progress_ns
            self._used_ns[vgpu] = self._used_ns.get(vgpu, 0) + elapsed_ns // nr

    def _arm(self) -> None:
        if self._next is not None:
            self._next.cancel()
            self._next = None
        if self._left_ns:
            nr = len(self._left_ns)
            least_ns = max(0, min(self._left_ns.values()))
            wait_ns = least_ns if nr == 1 else -(-least_ns * 100 * nr // self._kept_percent)
            self._next = self._events.after(wait_ns, self._finish)

    def _finish(self) -> None:
        self._settle()
        done = [vgpu for vgpu, left_ns in self._left_ns.items() if left_ns <= 0]
        for vgpu in done:
            del self._left_ns[vgpu]
        self._arm()
        for vgpu in done:
            self._completed(vgpu)
