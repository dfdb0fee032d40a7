"""A vGPU on a simulated GPU: its work, its habits, its limit, and what is counted for the report."""

from collections import deque
from collections.abc import Callable

from scheduler.allowance import Allowance
from scheduler.bursts import Bursts
from scheduler.patience import SWITCH_NS, Pauses
from scheduler.simulator.events import Event


class Member:
    """`completed` is called at the end of each of its kernels. `waits_ns` has one entry for each time it was granted the GPU."""

    def __init__(self, completed: Callable[[], None], allowance: Allowance | None = None) -> None:
        self.completed = completed
        self.queue: deque[int] = deque()
        self.running_ns = 0
        self.off_ns = 0
        """What is left of a kernel that was taken off the device; 0: there is none."""
        self.off_since_ns = 0
        self.pauses = Pauses()
        self.bursts = Bursts()
        self.allowance = allowance
        self.is_stopped = False
        """It has reached its limit, and is not back yet."""
        self.limit_timer: Event | None = None
        """For its kernel on the device."""
        self.has_long_turns = False
        """By its last turn, the next one will use most of its slice."""
        self.wanted_since_ns = 0
        """Of one that waits: since when it wants the GPU, as `put_off` counts."""
        self._put_off: tuple[int, int] | None = None
        self.backlogged_since_ns: int | None = None
        self.used_ns = 0
        self.held_ns = 0
        self.budgets_ns = 0
        """How long its turns might last, all together."""
        self.overuse_ns = 0
        """What its turns had beyond their ends while others waited."""
        self.done_ns = 0
        self.nr_kernels = 0
        self.waits_ns: list[int] = []

    @property
    def has_work(self) -> bool:
        """Something that is not on the device."""
        return bool(self.queue) or self.off_ns > 0

    def next_kernel(self, now_ns: int) -> int:
        """How long the device has to work on the kernel that is next: what was taken off, or a new one. It begins now."""
        if self.off_ns:
            kernel_ns, self.off_ns = self.off_ns, 0
            self.pauses.postpone_burst(now_ns - self.off_since_ns)
        else:
            kernel_ns = self.running_ns = self.queue.popleft()
            self.pauses.begin_burst(now_ns)
        return kernel_ns

    def take_off(self, left_ns: int, now_ns: int) -> None:
        """Its kernel is off the device from now on, with so much left of it."""
        self.off_ns, self.off_since_ns = left_ns, now_ns

    def put_off(self, now_ns: int, wanted_since_ns: int) -> None:
        """It has to leave the device though it may want more. If it comes back before a switch could be made it has not slept, and wants the
        GPU since then."""
        self._put_off = now_ns, wanted_since_ns

    def wants(self, now_ns: int) -> None:
        """It waits from now on."""
        is_back = self._put_off is not None and now_ns - self._put_off[0] < SWITCH_NS
        self.wanted_since_ns = self._put_off[1] if is_back and self._put_off is not None else now_ns
        self._put_off = None
        self.backlogged_since_ns = now_ns

    def run_dry(self, now_ns: int) -> None:
        """The device has none of its work from now on, and it wants nothing. It has been charged."""
        self.pauses.end_burst(now_ns)
        self.bursts.pause(self.used_ns, now_ns)

    def goes_on(self, now_ns: int, most_ns: int) -> None:
        """It wants something, with the GPU or without. A pause counts for `most_ns` at most in `pauses`."""
        self.pauses.end_pause(now_ns, most_ns)
        self.bursts.resume(SWITCH_NS, now_ns)

    def cut_burst(self, now_ns: int) -> None:
        """The device has run dry of it, and it has more: no pause."""
        self.pauses.end_burst(now_ns)
        self.pauses.end_pause(now_ns, 0)

    def charge_limit(self, used_ns: int, now_ns: int) -> None:
        """Use and held time count alike. Workers charge it as it goes: the cut comes where it began, and takes nothing from it."""
        if self.allowance is not None:
            self.allowance.charge(used_ns, self._on_host(self.allowance, now_ns - used_ns))

    def is_over_limit(self, now_ns: int) -> bool:
        """It has been charged for all that it may run now."""
        return self.limit_left_ns(now_ns) == 0

    def limit_left_ns(self, now_ns: int) -> int | None:
        """How long it may still run, at full speed; None: for ever."""
        return None if self.allowance is None else self.allowance.left_ns(self._on_host(self.allowance, now_ns))

    def back_in_ns(self, quota_ns: int, now_ns: int) -> int:
        """In how long one that was stopped may run again; 0: now."""
        if self.allowance is None:
            return 0
        return max(0, self.allowance.back_ns(quota_ns) - self._on_host(self.allowance, now_ns))

    @staticmethod
    def _on_host(allowance: Allowance, now_ns: int) -> int:
        """The clock of a host, which has gone on for long before a vGPU comes. That of a simulation begins at 0."""
        return now_ns + allowance.depth_ns
