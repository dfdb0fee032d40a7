"""What a policy of the simulator may have besides: what no real host asks for or tells."""

from typing import Protocol, runtime_checkable

from scheduler.policy import Policy


@runtime_checkable
class Coscheduled(Protocol):
    """It wants to hear when the CPU scheduler runs a guest.

    A vGPU whose vCPU nobody spoke of counts as one whose vCPU runs.
    """

    def vcpu_scheduled(self, vgpu: int, now_ns: int) -> None:
        """The vCPU that submits for this vGPU was put on a processor."""

    def vcpu_descheduled(self, vgpu: int, now_ns: int) -> None:
        """It was taken off, or went to sleep."""

    def preempts(self, holder: int, now_ns: int) -> bool:
        """True when the holder is to give the GPU up before its slice is over, as soon as the device lets it. Changes nothing."""


def guest_waiting(policy: Policy) -> str:
    """How guests are meant to wait for answers under this policy: "hybrid" (spin, then sleep; what is meant when it does not say) or "poll"."""
    return str(getattr(policy, "guest_waiting", "hybrid"))
