"""The model beside the C code: one function after another, each by one worker alone, on a real control page and in the model.

It is compared after each: the grant word, its sequence number, who is a user, who waits, how many members each vGPU has, whether the caller
got in. What happens when functions run at the same time is the model's affair: this shows that its tables are those of the C code.
"""

from __future__ import annotations

import os
import random
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pytest
from backend_host.worker._worker import ffi, lib

from backend_host.device.control import ControlPage
from tests.backend_host.grantees import attach
from tests.model.engine import NO_CHOICE, CState, CSuccessor, Model, Setting
from tests.model.mutants import MUTANTS
from tests.model.programs import FUNCTIONS, Function

SLICE_NS = 6_000_000
OLD_NS = 10_000_000
NR_SHARED = 3
"""Objects of a page that all workers share; then come those of each vGPU."""
SAVED_BYTES = 32 << 10
"""Of each: all of what is shared, an account, and slots of a few workers."""
RESTS = {"out", "waiting", "asleep", "in", "gone", "idle"}
DAEMON_DEEDS = {"repair", "evict"}
EVERYTHING = ("nudges", "cancels", "ends", "evictions")


@dataclass(frozen=True)
class Action:
    """What one process does; `worker` is the dead one for the daemon's "repair"."""

    worker: int
    deed: str


@dataclass(frozen=True)
class Page:
    """What is compared. `holder` is None when the grant is free."""

    holder: int | None
    is_closed: bool
    nr_handed: int
    users: frozenset[int]
    waiting: frozenset[int]
    nr_members: tuple[int, ...]


class Modelled:
    """The model's side: states between functions."""

    def __init__(
        self, vgpu_of: tuple[int, ...], rank: tuple[int, ...], functions: Mapping[str, Function] = FUNCTIONS
    ) -> None:
        self.model = Model(Setting(vgpu_of=vgpu_of, rank=rank, nr_deaths=1, may=EVERYTHING, functions=functions))
        self.vgpu_of = vgpu_of

    def label(self, state: CState, process: int) -> str:
        instruction = self.model.program.instructions[state.processes[process].pc]
        return instruction.label if instruction.function in ("worker", "daemon") else ""

    def actions(self, state: CState) -> Iterator[Action]:
        for worker in range(len(self.vgpu_of)):
            label = self.label(state, worker)
            if label == "in":
                has = state.holder == self.vgpu_of[worker] + 1 and not state.is_closed
                yield from (
                    Action(worker, deed) for deed in (("close", "leave") if has else ("leave", "leave for more"))
                )
            elif label in ("waiting", "asleep"):
                yield from (Action(worker, deed) for deed in ("enter", "young nudge", "old nudge", "cancel"))
            elif label == "out":
                yield Action(worker, "enter")
            if label != "gone":
                yield Action(worker, "end")
                yield from [Action(worker, "die")] * (state.nr_deaths != 0)
            if state.unknown >> worker & 1:
                yield Action(worker, "repair")
        yield Action(0, "evict")

    def do(self, state: CState, action: Action) -> tuple[CState, int]:
        """Runs one process alone to where it rests. Gives the state then, and how often the grant was handed on."""
        process = len(self.vgpu_of) if action.deed in DAEMON_DEEDS else action.worker
        nr_handed, is_first = 0, True
        while is_first or self.label(state, process) not in RESTS:
            steps = [step for step in self.model.successors(state) if step.process == process]
            wanted = [step for step in steps if self._fits(state, step, action)]
            assert len(wanted) == 1, (action, self.label(state, process))
            nr_handed += self.model.program.instructions[wanted[0].pc].doing.op in ("hand on", "take")
            is_first = self.label(state, process) == "asleep" and action.deed != "die"
            state = wanted[0].state
        return state, nr_handed

    def _fits(self, state: CState, step: CSuccessor, action: Action) -> bool:
        if step.is_death or action.deed == "die":
            return bool(step.is_death) and action.deed == "die"
        if step.choice == NO_CHOICE:
            return True
        at = self.model.program.instructions[state.processes[step.process].pc]
        slot = step.state.processes[step.process].slot
        if action.deed == "repair":
            return bool(at.names[step.choice] == "repair" and slot == action.worker + 1)
        age, _, deed = action.deed.rpartition(" ")
        wanted = {age, deed} if deed == "nudge" else {action.deed}
        return at.names[step.choice] in wanted

    def page(self, state: CState, nr_handed: int) -> Page:
        users, waiting, members = (
            frozenset(worker for worker in range(len(self.vgpu_of)) if bits >> worker & 1) for bits in state.sets
        )
        return Page(
            holder=state.holder - 1 if state.holder else None,
            is_closed=bool(state.is_closed),
            nr_handed=nr_handed,
            users=users,
            waiting=waiting,
            nr_members=tuple(
                sum(self.vgpu_of[worker] == vgpu for worker in members) for vgpu in range(max(self.vgpu_of) + 1)
            ),
        )


@dataclass(frozen=True)
class Snapshot:
    """A real page, object by object, and each worker's own view."""

    page: tuple[bytes, ...]
    views: tuple[bytes, ...]


class Real:
    """The C code's side. Slots of a fresh page are those of the model's workers."""

    def __init__(self, control: ControlPage, vgpu_of: tuple[int, ...], rank: tuple[int, ...]) -> None:
        self.control, self.nr_vgpus = control, len(rank)
        self.objects = control.objects[: NR_SHARED + len(rank)]
        for standing in rank:
            control.set_standing(control.vgpu_take(), float(standing), 0.0, charged_ns=0)
        self.views = [attach(control, vgpu)[1] for vgpu in vgpu_of]

    def save(self) -> Snapshot:
        page = tuple(os.pread(fd, SAVED_BYTES, 0) for fd in self.objects)
        return Snapshot(page, tuple(bytes(ffi.buffer(view)) for view in self.views))

    def restore(self, snapshot: Snapshot) -> None:
        for fd, saved in zip(self.objects, snapshot.page, strict=True):
            os.pwrite(fd, saved, 0)
        for view, saved in zip(self.views, snapshot.views, strict=True):
            ffi.buffer(view)[:] = saved

    def do(self, action: Action) -> bool | None:
        """Gives what the function answers: whether the worker got in."""
        view, now_ns = self.views[action.worker], time.monotonic_ns()
        match action.deed:
            case "enter":
                return bool(lib.fgw_grant_enter(view, now_ns))
            case "close":
                lib.fgw_grant_close(view)
            case "leave" | "leave for more":
                lib.fgw_grant_leave(view, action.deed != "leave", now_ns)
            case "cancel":
                lib.fgw_grant_wait_cancel(view)
            case "young nudge":
                lib.fgw_grant_nudge(view, self.control.holder().since_ns)
            case "old nudge":
                lib.fgw_grant_nudge(view, now_ns + OLD_NS)
            case "end":
                lib.fgw_grantee_detach(view)
            case "repair":
                self.control.repair(action.worker)
            case "evict":
                self.control.evict(self.control.holder().sequence)
        return None

    def page(self) -> Page:
        grant = self.control.holder()
        workers = [worker for slot in range(len(self.views)) if (worker := self.control.worker(slot)) is not None]
        vgpus = [account for vgpu in range(self.nr_vgpus) if (account := self.control.vgpu(vgpu)) is not None]
        return Page(
            holder=grant.vgpu,
            is_closed=grant.is_closed,
            nr_handed=grant.sequence,
            users=frozenset(worker.slot for worker in workers if worker.is_user),
            waiting=frozenset(worker.slot for worker in workers if worker.is_waiting),
            nr_members=tuple(account.nr_workers for account in vgpus),
        )


def step_both(modelled: Modelled, real: Real, state: CState, nr_handed: int, action: Action) -> tuple[CState, int]:
    """Makes both do it, and compares."""
    after, nr = modelled.do(state, action)
    is_in = real.do(action)
    if is_in is not None:
        assert is_in == (modelled.label(after, action.worker) == "in"), action
    assert real.page() == modelled.page(after, nr_handed + nr), action
    return after, nr_handed + nr


@pytest.fixture
def control() -> Iterator[ControlPage]:
    with ControlPage.create(SLICE_NS) as page:
        yield page


SETTINGS = [((0, 1), (2, 1)), ((0, 1, 1), (1, 2)), ((0, 1, 2), (2, 3, 1))]


def compare_all(modelled: Modelled, real: Real) -> int:
    """Does all that can be done in each state between functions that can be reached; gives how much that was."""
    first = modelled.model.first()
    seen = {bytes(first)}
    queue = deque([(first, 0, real.save())])
    nr_compared = 0
    while queue:
        state, nr_handed, saved = queue.popleft()
        for action in modelled.actions(state):
            real.restore(saved)
            after, nr = step_both(modelled, real, state, nr_handed, action)
            nr_compared += 1
            if bytes(after) not in seen:
                seen.add(bytes(after))
                queue.append((after, nr, real.save()))
    return nr_compared


@pytest.mark.parametrize(("vgpu_of", "rank"), SETTINGS)
def test_every_function_from_every_state_between_functions(
    control: ControlPage, vgpu_of: tuple[int, ...], rank: tuple[int, ...]
) -> None:
    assert compare_all(Modelled(vgpu_of, rank), Real(control, vgpu_of, rank)) > 500


@pytest.mark.parametrize(
    "name",
    [
        "fgw_grant_leave does not hand on",
        "drop takes no grant away that its vGPU does not use",
        "fgw_grant_nudge takes nothing from an idle holder",
        "fgw_grant_pass does not look for users",
        "fgw_grant_clear does not hand on",
    ],
)
def test_a_table_that_is_not_that_of_the_code_is_found(control: ControlPage, name: str) -> None:
    """Those of the faults that one function shows by itself."""
    functions = next(mutant.mutated.functions for mutant in MUTANTS if mutant.name == name)
    vgpu_of, rank = SETTINGS[0]
    with pytest.raises(AssertionError):
        compare_all(Modelled(vgpu_of, rank, functions), Real(control, vgpu_of, rank))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("vgpu_of", "rank"), SETTINGS)
def test_long_random_rows_of_functions(
    control: ControlPage, vgpu_of: tuple[int, ...], rank: tuple[int, ...], seed: int
) -> None:
    modelled, real = Modelled(vgpu_of, rank), Real(control, vgpu_of, rank)
    choice = random.Random(seed)
    state, nr_handed = modelled.model.first(), 0
    for _ in range(500):
        rare = 1 if choice.random() < 0.01 else 0
        actions = [action for action in modelled.actions(state) if rare or action.deed not in ("end", "die")]
        state, nr_handed = step_both(modelled, real, state, nr_handed, choice.choice(actions))


def test_a_renewal_moves_nothing(control: ControlPage) -> None:
    """So the model has none: it changes when the slice began, which the model does not know."""
    real = Real(control, (0, 1), (1, 2))
    assert real.do(Action(0, "enter"))
    assert not real.do(Action(1, "enter"))
    before = real.page()
    assert lib.fgw_grant_renew(real.views[0], time.monotonic_ns())
    assert not lib.fgw_grant_renew(real.views[1], time.monotonic_ns())
    assert real.page() == before
