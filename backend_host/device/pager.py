"""The thread that makes room on a Gpu whose programs may allocate more than it holds (worker/page/room.h).

It tells each worker how much of its memory may be on the device, by the plan of scheduler/paging.py. What is to go goes first: a worker's
target rises only as far as others have left. Workers move their memory by themselves. One that does not while others wait for room is ended in
the end, as if its work had kept them from the GPU. So is one of several that wait for each other: that capture graphs, and what they have stays
until then, or that have so much of the device for good that no other one has room beside it.

Wrong when: this thread is kept off the processor, or its daemon is away. Programs that have their memory go on, and others wait for it until
it is back.
"""

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from backend_host.device.control import ControlPage
from backend_host.device.readings import Keeps, Room
from backend_host.service.journal import about
from backend_host.sizes import format_size
from scheduler.paging import Holding, Plan, stepwise

_MOVING_S = 0.001
"""Between looks while memory moves: in a millisecond 50 MB do."""
_QUIET_S = 0.2
_REFUSED_NS = 100_000_000
"""Memory that somebody has just given back, or of a process that ends, is there by then."""
_HELD_NS = 10_000_000_000
_MORE_BYTES = 256 << 20
"""An extent."""
_GOES = (Keeps.NOT, Keeps.FOR_WORK)
"""It is to go, at once or when the work is done."""

log = logging.getLogger("fairgv.pager")


class Pager:
    """One thread over one control page. `start` once, `stop` once."""

    def __init__(self, page: ControlPage, capacity_bytes: int, device_bytes: int, cost: float) -> None:
        """How much linear memory may be on the device, and what the device has for that and all else; `cost`: see `Plan`."""
        self._page = page
        self._capacity, self._most_bytes = capacity_bytes, device_bytes
        self._device_bytes = device_bytes
        """No more than the driver turned out to have: others may use the device, too."""
        self._refused_since_ns = self._held_ns = 0
        self._plan = Plan(cost)
        self._lacking: frozenset[int] = frozenset()
        """Slots of those that wait for more than there is, as the log says."""
        self._staying_since_ns: dict[int, int] = {}
        """Of workers that are to go, while others wait for their room."""
        self._watch: tuple[int, Callable[[int, int], None]] | None = None
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="pager", daemon=True)

    def start(self) -> None:
        """Begins to make room."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread; what was last allowed stays so."""
        self._is_stopping = True
        self._page.ring_bell()
        self._thread.join()

    def watch(self, limit_ns: int, end: Callable[[int, int], None]) -> None:
        """From now on `end` is called with the slot of a worker that stays for so long where others wait for its room, and for how long it
        did."""
        self._watch = (limit_ns, end)

    def _run(self) -> None:
        bell = self._page.bell()
        while not self._is_stopping:
            try:
                timeout_s = self.look(time.monotonic_ns())
            except Exception:
                log.exception("making room failed; it goes on")
                timeout_s = _QUIET_S
            time.sleep(_MOVING_S)
            bell = self._page.wait_bell(timeout_s - _MOVING_S, bell)

    def look(self, now_ns: int) -> float:
        """One look at all workers; gives for how many seconds nothing needs another."""
        every = self._page.rooms()
        away = [each for each in every if each.is_suspended]
        rooms = [each for each in every if not each.is_suspended]
        self._publish({each.slot: each.target_bytes for each in away}, dict.fromkeys((each.slot for each in away), 0))
        self._hear_driver(now_ns, every)
        room = self._room(every)
        most = self._withhold(room, every)
        room = max(0, room - sum(each.resident_bytes for each in away))
        holdings = {each.slot: self._holding(each) for each in rooms}
        wanted = self._plan.targets(now_ns, room, holdings)
        now = {each.slot: each.target_bytes for each in rooms}
        lowered = {slot: min(now[slot], target) for slot, target in wanted.items()}
        self._publish(now, lowered)
        resident = {each.slot: each.resident_bytes for each in self._page.rooms()}
        targets = stepwise(room, wanted, lowered, {slot: resident.get(slot, 0) for slot in wanted})
        self._publish(lowered, targets)
        self._judge(now_ns, rooms, targets, most)
        if targets != wanted or any(_is_moving(each, targets[each.slot]) for each in rooms):
            return _MOVING_S
        return max(_MOVING_S, min(_QUIET_S, (self._plan.again_ns(now_ns, holdings) - now_ns) / 1e9 or _QUIET_S))

    def _room(self, every: Sequence[Room]) -> int:
        """For linear memory. What programs of a vGPU share is resident, or placed, for each of them, and there once. That is room again, but no
        more than all of them but one say that they have: so none makes room that is not there, whatever they say."""
        of_vgpus = defaultdict(list)
        for each in every:
            of_vgpus[each.vgpu].append(each)
        linear = placed = 0
        for vgpu, rooms in of_vgpus.items():
            again = self._page.counted_again(vgpu)
            shared = [each.resident_bytes if each.keeps is Keeps.SHARED else 0 for each in rooms]
            linear += min(again, _all_but_one(shared))
            kept = [resident + each.other_bytes for resident, each in zip(shared, rooms, strict=True)]
            placed += min(again, _all_but_one(kept))
        return min(self._capacity + linear, self._device_bytes + placed - sum(each.other_bytes for each in every))

    def _withhold(self, room: int, every: Sequence[Room]) -> Mapping[int, int]:
        """Tells each what others have for good, and gives what is left to each. Who allocated more, before they had that, waits until they give
        it back."""
        shared = {each.slot: each.resident_bytes for each in every if each.keeps is Keeps.SHARED}
        most = {each.slot: max(0, room - sum(shared.values()) + shared.get(each.slot, 0)) for each in every}
        for slot, nbytes in most.items():
            self._page.set_withheld(slot, max(0, self._capacity - nbytes))
        self._page.set_spare(max(0, min((most[each.slot] - each.allocated_bytes for each in every), default=room)))
        lacking = [each for each in every if each.displaced_since_ns and each.allocated_bytes > most[each.slot]]
        for each in lacking:
            if each.slot not in self._lacking:
                name = self._page.called(each.vgpu)
                log.warning(
                    "%s waits for its memory, %s, and others have all but %s of the device for good: what they share, arrays, contexts",
                    *(name, format_size(each.allocated_bytes), format_size(most[each.slot])),
                    extra=about(name),
                )
        self._lacking = frozenset(each.slot for each in lacking)
        return most

    def _hear_driver(self, now_ns: int, rooms: Sequence[Room]) -> None:
        """Where it keeps refusing what there should be room for, there is no more than is there now. Later that is tried again, by and by."""
        if not any(each.refused_bytes for each in rooms):
            self._refused_since_ns = 0
            if self._device_bytes < self._most_bytes and now_ns - self._held_ns > _HELD_NS:
                self._device_bytes = min(self._most_bytes, self._device_bytes + _MORE_BYTES)
                self._held_ns = now_ns
            return
        self._refused_since_ns = self._refused_since_ns or now_ns
        if now_ns - self._refused_since_ns > _REFUSED_NS and all(
            each.is_suspended or each.resident_bytes <= each.target_bytes for each in rooms
        ):
            there = sum(each.resident_bytes + each.other_bytes for each in rooms)
            if there < self._device_bytes:
                log.warning("the device has no more than %s for programs; others may use it", format_size(there))
                self._device_bytes = there
            self._held_ns = now_ns

    def _holding(self, room: Room) -> Holding:
        return Holding(
            allocated=room.allocated_bytes,
            resident=room.resident_bytes,
            standing=self._page.standing(room.vgpu),
            wants=room.wants,
            is_kept=room.keeps not in _GOES,
        )

    def _publish(self, before: Mapping[int, int], after: Mapping[int, int]) -> None:
        for slot, target in after.items():
            if before[slot] != target:
                self._page.set_target(slot, target)

    def _judge(self, now_ns: int, rooms: Sequence[Room], targets: Mapping[int, int], most: Mapping[int, int]) -> None:
        """Whether one that is to go stays for too long, or one that captures, or has most for good, while nobody goes on any more."""
        displaced = [each for each in rooms if each.displaced_since_ns]
        waiting = {each.vgpu for each in displaced}
        staying = [
            each
            for each in rooms
            if each.resident_bytes > targets[each.slot] and each.keeps in _GOES and waiting - {each.vgpu}
        ]
        if len(displaced) > 1 and all(each.displaced_since_ns for each in rooms if each.wants):
            staying += [each for each in displaced if each.keeps is Keeps.FOR_CAPTURE][:1] or _in_the_way(
                displaced, most
            )
        self._staying_since_ns = {each.slot: self._staying_since_ns.get(each.slot, now_ns) for each in staying}
        for each in staying:
            stayed_ns = now_ns - self._staying_since_ns[each.slot]
            if self._watch is not None and stayed_ns > self._watch[0]:
                name = self._page.called(each.vgpu)
                log.error(
                    "%s keeps memory that is to make room, for %.1f s; its worker is ended",
                    *(name, stayed_ns / 1e9),
                    extra=about(name),
                )
                del self._staying_since_ns[each.slot]
                self._watch[1](each.slot, stayed_ns)


def _all_but_one(nbytes: Sequence[int]) -> int:
    return sum(nbytes) - max(nbytes)


def _in_the_way(displaced: Sequence[Room], most: Mapping[int, int]) -> list[Room]:
    """Where none of them has room beside what is there for good: the one that has most of that, if another one has room without it."""
    lacks = {each.slot: each.allocated_bytes - most[each.slot] for each in displaced}
    first = max(displaced, key=lambda each: each.other_bytes)
    helps = any(lacks[each.slot] <= first.other_bytes for each in displaced if each is not first)
    return [first] if helps and min(lacks.values()) > 0 else []


def _is_moving(room: Room, target: int) -> bool:
    """It is on its way to its target; what it will allocate is not."""
    return room.resident_bytes > target or room.resident_bytes < min(room.allocated_bytes, target)
