"""A Gpu whose vGPUs leave: at a kernel boundary, with what they have not begun."""

from scheduler.simulator.gpu import Gpu
from scheduler.simulator.member import Member


class OpenGpu(Gpu):
    """vGPUs have no limit here: one that was stopped by it would come back to where it is not."""

    def recall(self, vgpu: int) -> tuple[int, ...]:
        """Takes back kernels that have not begun: their lengths, the oldest first. One that has, on the device or off it, is to end here."""
        member = self.members[vgpu]
        kernels_ns = tuple(member.queue)
        member.queue.clear()
        if not member.has_work and vgpu in self._waiting:
            del self._waiting[vgpu]
            member.backlogged_since_ns = None
            self._policy.blocked(vgpu, self._events.now_ns)
        return kernels_ns

    def is_clear_of(self, vgpu: int) -> bool:
        """It has nothing that would have to end first."""
        return not self.members[vgpu].has_work and not self.device.is_busy(vgpu)

    def leave(self, vgpu: int) -> Member:
        """A vGPU that the Gpu is clear of is gone. All is charged."""
        assert self.is_clear_of(vgpu)
        self.settle()
        member = self.members.pop(vgpu)
        self._policy.left(vgpu, self._events.now_ns)
        if self._turn is not None and self._turn.vgpu == vgpu:
            self._stop_timer()
            self._turn = None
            self._hand_over()
        return member
