"""Which split a critical vGPU asks for: what its workers say of their rounds goes to the search of its space, and what that wants to the page.

How much a split leaves best effort is taken for the part of its blocks that it leaves: nobody counts blocks across processes. It is right where
a kernel's blocks are alike and its speed goes by their number; bound by memory it keeps more than that, and the search is then too modest.

Rounds count while best effort has work: without any there is nothing to split, and what a round takes then says nothing of a split. While no
program of best effort is there it says what the round takes alone. Where rounds come one after another and have all of the device, best effort
cannot show that it has work: so there it is enough that a program of it is served. While launches of best effort go whole because variants of
them are being made, rounds say nothing either: a program would seem to miss its target with all of the device when the other one begins.

Where most of best effort's large launches cannot give way there are two splits: with the one they wait at the gate while rounds last
(worker/turn/space_gate.h), with the other they do not. Those between would leave them nothing either.

Wrong when: a best-effort kernel has more than MOST_EACH blocks on a multiprocessor. Only all of the device, which is a split of its own, takes
the others. A program with launches of both kinds is taken for the kind that it has more of.
"""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from backend_host.device.control import ControlPage
from backend_host.device.readings import WantReading, WorkerReading
from backend_host.device.spaces_told import Round
from backend_host.entitlement import BEST_EFFORT, CRITICAL, Entitlement
from backend_host.qos import Target
from backend_host.space.space import Space
from backend_host.space.spaces import Spaces
from backend_host.worker._worker import lib
from cuda_api.generated.values import Whole
from scheduler.space.feedback import Feedback, Statistics
from scheduler.space.feedback import Target as Wanted
from scheduler.space.grid import Grid, Split
from scheduler.space.pairs import Pairs
from scheduler.space.search import Outcome, Search

MOST_EACH = 8
"""Blocks of a multiprocessor that splits are about."""
_STEPS = 33
"""A device has splits at so many numbers of multiprocessors, at most."""
LATELY_NS = 100_000_000
"""What happened within that time goes on: charges come each half a millisecond while a kernel runs, and one launch may take tens of them."""


@dataclass(frozen=True)
class SearchTold:
    """What people are told of one."""

    split: Split
    progress: float
    name: str
    why: str
    is_settled: bool
    statistics: Statistics


class SpaceSearch:
    """Of one space, for its critical vGPU as it is entitled."""

    def __init__(self, page: ControlPage, vgpu: int, entitlement: Entitlement, multiprocessors: int) -> None:
        self.vgpu, self.entitlement = vgpu, entitlement
        self._page = page
        target = Target.of(entitlement.qos)
        self._slowdown = target.slowdown or 0.0
        step = -(-multiprocessors // _STEPS)
        self._grid = Grid.of(multiprocessors, step, MOST_EACH)
        self._feedback = Feedback(self._grid.whole, Wanted(self._slowdown, target.time_ns or 0))
        self._pairs = Pairs()
        self._search: Search | None = None
        self._heard: dict[tuple[int, int], int] = {}
        """How many rounds each worker had at the look before, by slot and process."""
        self._was_alone = False
        self._rounds_ns = -LATELY_NS
        """When there were new ones."""
        self._now_ns = 0
        self._ask(self._grid.whole)

    def look(
        self,
        now_ns: int,
        critical: Sequence[tuple[int, int, str]],
        best_effort: Sequence[tuple[str, bool]],
        *,
        is_gated: bool = False,
        is_making: bool = False,
    ) -> None:
        """`critical`: slot, process and program of each worker of the critical vGPU; `best_effort`: programs of the space, and whether each has
        work; `is_gated`: most of theirs cannot give way; `is_making`: some cannot yet, as variants of them are being made."""
        is_whole = self._split == self._grid.whole
        at_work = frozenset(program for program, is_at_work in best_effort if is_at_work or is_whole)
        was_alone, self._was_alone = self._was_alone, not best_effort
        rounds = self._new_rounds(critical)
        self._now_ns = now_ns
        if rounds:
            self._rounds_ns = now_ns
        for each in rounds:
            if was_alone and self._was_alone:
                self._feedback.ran_alone(each.signature, each.took_ns)
            elif at_work and not is_making:
                self._feedback.round_ended(each.signature, self._split_of(each.split), each.took_ns)
        if not critical or not at_work:
            return
        pair = (
            frozenset(program for _, _, program in critical),
            frozenset(program for program, _ in best_effort),
        )
        self._search = self._pairs.turn_to(pair, self._grid.ends if is_gated else self._grid, self._slowdown)
        if self._search.split != self._split:
            self._ask(self._search.split)
        if (verdict := self._feedback.verdict()) is None:
            return
        outcome = Outcome(self._split, progress=self._progress(self._split), now_ns=now_ns, **vars(verdict))
        self._search.tell(outcome)
        self._feedback.heard()
        self._ask(self._search.split)

    def _new_rounds(self, critical: Sequence[tuple[int, int, str]]) -> list[Round]:
        """Since the look before, as far as they are kept."""
        heard: dict[tuple[int, int], int] = {}
        found: list[Round] = []
        for slot, pid, _ in critical:
            nr, rounds = self._page.rounds(slot)
            heard[slot, pid] = nr
            nr_new = min(nr - self._heard.get((slot, pid), 0), len(rounds))
            found += rounds[len(rounds) - nr_new :] if nr_new > 0 else []
        self._heard = heard
        return found

    @property
    def is_under_way(self) -> bool:
        """Whether it tries splits, and rounds come. What it hears soon costs fewer rounds over the target."""
        is_fed = self._now_ns - self._rounds_ns < LATELY_NS
        return is_fed and self._search is not None and not self._search.is_settled

    def told(self) -> SearchTold:
        """What it came to."""
        search = self._search
        return SearchTold(
            self._split,
            self._progress(self._split),
            "climb" if search is None else search.name,
            "waits for rounds beside best effort" if search is None else search.why,
            search is not None and search.is_settled,
            self._feedback.statistics(),
        )

    def _ask(self, split: Split) -> None:
        self._split = split
        self._feedback.split_changed(split)
        is_whole = split == self._grid.whole
        self._page.set_split(self.vgpu, lib.FGW_SPLIT_WHOLE if is_whole else split.n | split.k << 16)

    def _split_of(self, word: int) -> Split:
        return self._grid.whole if word == lib.FGW_SPLIT_WHOLE else Split(word & 0xFFFF, word >> 16)

    def _progress(self, split: Split) -> float:
        whole = self._grid.whole
        return 1 - split.n * split.k / (whole.n * whole.k)


class _Growing:
    """Which of some numbers, by slot and process of a worker, have grown lately."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, int], tuple[int, int]] = {}
        """Each number, and when it became that."""

    def has_grown(self, worker: tuple[int, int], number: int, now_ns: int) -> bool:
        """One that is seen for the first time has if it is not 0."""
        before, since_ns = self._seen.get(worker, (0, now_ns - LATELY_NS))
        self._seen[worker] = number, (now_ns if number != before else since_ns)
        return now_ns - self._seen[worker][1] < LATELY_NS

    def forget_all_but(self, workers: Collection[tuple[int, int]]) -> None:
        """Others have ended."""
        self._seen = {worker: seen for worker, seen in self._seen.items() if worker in workers}


class Searches:
    """Of one Gpu's spaces, by looks of whoever calls."""

    def __init__(self, page: ControlPage, spaces: Spaces, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._page, self._spaces, self._clock = page, spaces, clock
        self._of: dict[str, SpaceSearch] = {}
        self._used_ns, self._made = _Growing(), _Growing()
        """GPU time, and launches that went whole for want of a variant that is being made."""

    @property
    def are_under_way(self) -> bool:
        """Whether one of them tries splits."""
        return any(search.is_under_way for search in self._of.values())

    def look(self, readings: Sequence[WantReading]) -> None:
        """What all workers that serve a program say now."""
        now_ns = self._clock()
        grown = {each.slot for each in readings if self._used_ns.has_grown((each.slot, each.pid), each.gpu_ns, now_ns)}
        at_work = grown | {each.slot for each in readings if each.waits}
        found: dict[str, SpaceSearch] = {}
        for name, space, members in self._spaces.all():
            critical = next((vgpu for vgpu, each in members.items() if each.vgpu_class == CRITICAL), None)
            if space is None or critical is None or not space.multiprocessors or space.why_not:
                continue
            search = found[name] = self._search(name, space, critical, members[critical])
            behind = {vgpu for vgpu, each in members.items() if each.vgpu_class == BEST_EFFORT}
            best_effort = [
                (each.slot in at_work, self._page.worker(each.slot)) for each in readings if each.vgpu in behind
            ]
            workers = [reading for _, reading in best_effort if reading is not None]
            search.look(
                now_ns,
                [
                    (each.slot, each.pid, _program(self._page.worker(each.slot)))
                    for each in readings
                    if each.vgpu == critical
                ],
                [(_program(reading), is_at_work) for is_at_work, reading in best_effort],
                is_gated=_is_gated(workers),
                is_making=self._is_making(workers, now_ns),
            )
        self._of = found
        served = {(each.slot, each.pid) for each in readings}
        for growing in (self._used_ns, self._made):
            growing.forget_all_but(served)

    def _is_making(self, workers: Sequence[WorkerReading], now_ns: int) -> bool:
        """Whether some of these launched so lately."""
        grown = [
            self._made.has_grown((each.slot, each.pid), each.whole.get(Whole.BEING_MADE.text, 0), now_ns)
            for each in workers
        ]
        return any(grown)

    def told(self, name: str) -> SearchTold | None:
        """Of the space of this name; None: there is nothing to search."""
        search = self._of.get(name)
        return None if search is None else search.told()

    def _search(self, name: str, space: Space, vgpu: int, entitlement: Entitlement) -> SpaceSearch:
        search = self._of.get(name)
        if search is not None and (search.vgpu, search.entitlement.qos) == (vgpu, entitlement.qos):
            return search
        return SpaceSearch(self._page, vgpu, entitlement, space.multiprocessors)


def _program(reading: WorkerReading | None) -> str:
    return "" if reading is None else reading.program


def _is_gated(readings: Sequence[WorkerReading]) -> bool:
    """Whether more launches of these waited at the gate than went persistently."""
    return sum(each.nr_space_gated for each in readings) > sum(each.nr_sliced for each in readings)
