"""No wake-up is lost: every interleaving of the parking protocols, on a machine with store buffers, enumerated.

The programs below are ivshmem/src/ring.c (commit, kick, park_prepare, park_sleep) and response.c (slot_wait, slot_rouse, slot_complete)
step by step. A plain store waits in its thread's buffer until it drains, at any later moment; an exchange and a system call first need the
buffer empty, as on x86. A state with no next step in which the consumer has not got everything is a lost wake-up. That the model is able to
find one is shown by weakening the protocol in each place where it could be weakened.

Wrong when: the C code is changed and this is not. Sleeps have no timeout here.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pytest

Memory = tuple[tuple[str, int], ...]
Buffer = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Thread:
    pc: str
    buffer: Buffer = ()
    head: int = 0
    is_asleep: bool = False


@dataclass(frozen=True)
class State:
    memory: Memory
    threads: tuple[Thread, ...]

    def load(self, who: int, word: str) -> int:
        for name, value in reversed(self.threads[who].buffer):
            if name == word:
                return value
        return dict(self.memory)[word]

    def write(self, word: str, value: int) -> "State":
        return replace(self, memory=tuple((name, value if name == word else old) for name, old in self.memory))

    def store(self, who: int, word: str, value: int, *, is_locked: bool) -> "State":
        """A locked store goes to memory (the caller made sure that the buffer is empty), a plain one into the buffer."""
        if is_locked:
            return self.write(word, value)
        return self.with_thread(who, buffer=(*self.threads[who].buffer, (word, value)))

    def with_thread(self, who: int, **changes: object) -> "State":
        threads = list(self.threads)
        threads[who] = replace(threads[who], **changes)  # type: ignore[arg-type]
        return replace(self, threads=tuple(threads))

    def wake(self) -> "State":
        return replace(self, threads=tuple(replace(thread, is_asleep=False) for thread in self.threads))


Step = Callable[[State, int], Iterator[State]]


def explore(start: State, programs: list[Step], is_done: Callable[[State], bool]) -> tuple[int, list[State], bool]:
    """All reachable states: their number, those that are stuck and not done, and whether the end can be reached from each."""
    successors: dict[State, list[State]] = {}
    waiting = [start]
    while waiting:
        state = waiting.pop()
        if state in successors:
            continue
        following: list[State] = []
        for who, thread in enumerate(state.threads):
            if thread.buffer:
                (word, value), *rest = thread.buffer
                following.append(state.with_thread(who, buffer=tuple(rest)).write(word, value))
            if not thread.is_asleep and thread.pc != "end":
                following.extend(programs[who](state, who))
        successors[state] = following
        waiting.extend(following)
    stuck = [state for state, following in successors.items() if not following and not is_done(state)]
    predecessors: dict[State, list[State]] = {}
    for state, following in successors.items():
        for next_state in following:
            predecessors.setdefault(next_state, []).append(state)
    finishing = {state for state in successors if is_done(state)}
    waiting = list(finishing)
    while waiting:
        for earlier in predecessors.get(waiting.pop(), []):
            if earlier not in finishing:
                finishing.add(earlier)
                waiting.append(earlier)
    return len(successors), stuck, len(finishing) == len(successors)


@dataclass(frozen=True)
class Ring:
    """The ring's protocol, with each of its guards removable."""

    nr_records: int
    producer_fence: bool = True
    consumer_fence: bool = True
    looks_again: bool = True
    futex_compares: bool = True
    is_bell: bool = False
    """A ring is kept until the next sleep, which it ends at once; nothing is compared."""
    keeps_rings: bool = True

    def producer(self, state: State, who: int) -> Iterator[State]:
        match state.threads[who].pc:
            case "commit":
                if not (self.producer_fence and state.threads[who].buffer):
                    stored = state.store(who, f"commit{who}", 1, is_locked=self.producer_fence)
                    yield stored.with_thread(who, pc="look")
            case "look":
                yield state.with_thread(who, pc="take" if state.load(who, "parked") else "end")
            case "take":
                if not state.threads[who].buffer:
                    was_parked = state.load(who, "parked")
                    yield state.write("parked", 0).with_thread(who, pc="wake" if was_parked else "end")
            case "wake":
                rung = state.write("rung", 1) if self.is_bell and self.keeps_rings else state
                yield rung.wake().with_thread(who, pc="end")

    def consumer(self, state: State, who: int) -> Iterator[State]:
        thread = state.threads[who]
        has_record = thread.head < self.nr_records and bool(state.load(who, f"commit{thread.head}"))
        match thread.pc:
            case "peek":
                if has_record:
                    head = thread.head + 1
                    yield state.with_thread(who, head=head, pc="end" if head == self.nr_records else "peek")
                else:
                    yield state.with_thread(who, pc="park")
            case "park":
                if not (self.consumer_fence and thread.buffer):
                    stored = state.store(who, "parked", 1, is_locked=self.consumer_fence)
                    yield stored.with_thread(who, pc="again" if self.looks_again else "sleep")
            case "again":
                yield state.with_thread(who, pc="unpark" if has_record else "sleep")
            case "sleep" if self.is_bell:
                is_rung = bool(state.load(who, "rung"))
                yield state.write("rung", 0).with_thread(who, pc="unpark", is_asleep=not is_rung)
            case "sleep":
                if not thread.buffer or not self.consumer_fence:
                    # The kernel compares under its own lock, after a full barrier: what this thread stored is in memory by then.
                    drained = state
                    for word, value in thread.buffer if self.futex_compares else ():
                        drained = drained.write(word, value)
                    drained = drained.with_thread(who, pc="unpark", buffer=() if self.futex_compares else thread.buffer)
                    sleeps = not self.futex_compares or dict(drained.memory)["parked"] == 1
                    yield drained.with_thread(who, is_asleep=sleeps)
            case "unpark":
                yield state.store(who, "parked", 0, is_locked=False).with_thread(who, pc="peek")

    def explore(self) -> tuple[int, list[State], bool]:
        words = [*(f"commit{i}" for i in range(self.nr_records)), "parked", "rung"]
        threads = (*(Thread("commit") for _ in range(self.nr_records)), Thread("peek"))
        start = State(tuple((word, 0) for word in words), threads)
        programs: list[Step] = [*([self.producer] * self.nr_records), self.consumer]
        return explore(start, programs, lambda state: state.threads[-1].pc == "end")


@pytest.mark.parametrize("is_bell", [False, True], ids=["futex", "bell"])
@pytest.mark.parametrize("nr_records", [1, 2, 3])
def test_the_ring_loses_no_wake_up(nr_records: int, is_bell: bool) -> None:
    nr_states, stuck, always_ends = Ring(nr_records, is_bell=is_bell).explore()
    assert nr_states > 10**nr_records
    assert stuck == []
    assert always_ends


@pytest.mark.parametrize(
    "weaker",
    [
        Ring(1, producer_fence=False),
        Ring(1, consumer_fence=False),
        Ring(1, looks_again=False),
        Ring(1, futex_compares=False),
        Ring(2, producer_fence=False),
        Ring(1, producer_fence=False, is_bell=True),
        Ring(1, consumer_fence=False, is_bell=True),
        Ring(1, looks_again=False, is_bell=True),
        Ring(1, keeps_rings=False, is_bell=True),
    ],
    ids=[
        "no fence in commit",
        "no fence in park_prepare",
        "no second look",
        "sleep without comparing",
        "two producers, no fence",
        "bell, no fence in commit",
        "bell, no fence in park_prepare",
        "bell, no second look",
        "bell that is forgotten",
    ],
)
def test_each_guard_of_the_ring_is_needed(weaker: Ring) -> None:
    _, stuck, _ = weaker.explore()
    assert stuck, "the model would not notice a lost wake-up"
    assert all(state.threads[-1].is_asleep for state in stuck)


WAITING, PARKED, DONE = 1, 2, 3


@dataclass(frozen=True)
class Slot:
    """A response slot: one word, changed by exchange only."""

    parks_by_compare: bool = True
    wakes_parked: bool = True
    wakes_roused: bool = True
    """False: who is roused is not woken, though nobody will find it parked any more."""

    def owner(self, state: State, who: int) -> Iterator[State]:
        seen = state.load(who, "state")
        match state.threads[who].pc:
            case "look":
                yield state.with_thread(who, pc="end" if seen == DONE else "park")
            case "park":
                if seen == WAITING or not self.parks_by_compare:
                    state = state.write("state", PARKED)
                    yield state.with_thread(who, pc="sleep")
                else:
                    yield state.with_thread(who, pc="look" if seen == DONE else "sleep")
            case "sleep":
                yield state.with_thread(who, pc="look", is_asleep=seen == PARKED)

    def host(self, state: State, who: int) -> Iterator[State]:
        match state.threads[who].pc:
            case "rouse" if state.load(who, "state") == PARKED:
                following = "wake roused" if self.wakes_roused else "complete"
                yield state.write("state", WAITING).with_thread(who, pc=following)
            case "rouse":
                yield state.with_thread(who, pc="complete")
            case "wake roused":
                yield state.wake().with_thread(who, pc="complete")
            case "complete":
                must_wake = state.load(who, "state") == PARKED and self.wakes_parked
                yield state.write("state", DONE).with_thread(who, pc="wake" if must_wake else "end")
            case "wake":
                yield state.wake().with_thread(who, pc="end")

    def explore(self) -> tuple[int, list[State], bool]:
        start = State((("state", WAITING),), (Thread("look"), Thread("rouse")))
        return explore(start, [self.owner, self.host], lambda state: state.threads[0].pc == "end")


@dataclass(frozen=True)
class BellSlot:
    """The same word with a bell: the owner sleeps while the count of rings is what it read before it parked."""

    counts_before_parking: bool = True

    def owner(self, state: State, who: int) -> Iterator[State]:
        seen = state.load(who, "state")
        thread = state.threads[who]
        order = ("count", "park") if self.counts_before_parking else ("park", "count")
        match thread.pc:
            case "look":
                yield state.with_thread(who, pc="end" if seen == DONE else order[0])
            case "count":
                following = order[1] if self.counts_before_parking else "sleep"
                yield state.with_thread(who, head=state.load(who, "rung"), pc=following)
            case "park" if seen == DONE:
                yield state.with_thread(who, pc="look")
            case "park":
                following = "sleep" if self.counts_before_parking else "count"
                yield state.write("state", PARKED).with_thread(who, pc=following)
            case "sleep":
                is_asleep = state.load(who, "rung") == thread.head
                yield state.with_thread(who, pc="look", is_asleep=is_asleep)

    def host(self, state: State, who: int) -> Iterator[State]:
        match state.threads[who].pc:
            case "rouse":
                must_wake = state.load(who, "state") == PARKED
                following = state.write("state", WAITING) if must_wake else state
                yield following.with_thread(who, pc="ring" if must_wake else "complete")
            case "ring":
                yield state.write("rung", state.load(who, "rung") + 1).wake().with_thread(who, pc="complete")
            case "complete":
                must_wake = state.load(who, "state") == PARKED
                yield state.write("state", DONE).with_thread(who, pc="wake" if must_wake else "end")
            case "wake":
                yield state.write("rung", state.load(who, "rung") + 1).wake().with_thread(who, pc="end")

    def explore(self) -> tuple[int, list[State], bool]:
        start = State((("state", WAITING), ("rung", 0)), (Thread("look"), Thread("rouse")))
        return explore(start, [self.owner, self.host], lambda state: state.threads[0].pc == "end")


def test_a_slot_with_a_bell_loses_no_wake_up() -> None:
    _, stuck, always_ends = BellSlot().explore()
    assert stuck == []
    assert always_ends


def test_the_count_of_a_bell_is_read_before_parking() -> None:
    _, stuck, _ = BellSlot(counts_before_parking=False).explore()
    assert stuck, "the model would not notice a lost wake-up"


def test_a_slot_loses_no_wake_up() -> None:
    _, stuck, always_ends = Slot().explore()
    assert stuck == []
    assert always_ends


@pytest.mark.parametrize("weaker", [Slot(parks_by_compare=False), Slot(wakes_parked=False), Slot(wakes_roused=False)])
def test_each_guard_of_a_slot_is_needed(weaker: Slot) -> None:
    _, stuck, always_ends = weaker.explore()
    assert stuck or not always_ends
