"""The clock of the simulator: what is to happen, in the order of time, and of being said where times are equal."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass

Action = Callable[[], None]


@dataclass(slots=True)
class Event:
    """One thing to happen; `action` is None once it happened or was cancelled."""

    action: Action | None

    def cancel(self) -> None:
        """It will not happen. Safe to repeat."""
        self.action = None


class Events:
    """A queue of events and the time of the last one."""

    def __init__(self) -> None:
        self.now_ns = 0
        self._heap: list[tuple[int, int, Event]] = []
        self._nr_said = 0

    def after(self, delay_ns: int, action: Action) -> Event:
        """`action` happens in `delay_ns`, which is at least 0."""
        event = Event(action)
        self._nr_said += 1
        heapq.heappush(self._heap, (self.now_ns + delay_ns, self._nr_said, event))
        return event

    def run_until(self, end_ns: int) -> None:
        """Everything that happens before `end_ns`, which then is the time."""
        while self._heap and self._heap[0][0] < end_ns:
            time_ns, _, event = heapq.heappop(self._heap)
            if event.action is not None:
                self.now_ns = time_ns
                action, event.action = event.action, None
                action()
        self.now_ns = end_ns
