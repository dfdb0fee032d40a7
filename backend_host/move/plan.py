"""Whether a vGPU can move to another Gpu, and what that takes: a plan, or all that is in the way. Pure: facts are handed in.

The vGPU is to be on the target with its quota and its request, as a new one would be (scheduler/placement.py), and what its programs take now
has to fit. Both devices must be of one kind: code, addresses and what programs were told of their device stay.

There are two movers. Replay has the shorter pause by far, and moves programs that are bound to nothing that the driver placed, of a daemon that
keeps them ready for it; a checkpoint moves nearly all. All programs of a vGPU move by one.

Wrong when: a process that is none of ours takes the target's memory between the plan and the move. And its times are of one kind of host.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from backend_host.device.control import MAX_VGPUS
from backend_host.device.readings import NOT_BOUND, Bound, Keeps, WorkerReading
from backend_host.errors import RefusedError
from backend_host.lacking import refusal_text
from backend_host.move.words import AUTO, CHECKPOINT, MOVERS, REPLAY
from backend_host.service.events import printable
from backend_host.sizes import format_size
from scheduler.placement import Candidate, Wish, fits

PAUSE_S = 0.65
PAUSE_S_PER_GIB = 0.07
AHEAD_S_PER_GIB = 0.2
"""Contexts are checkpointed and restored, of all processes at once; linear memory is copied out and in; before that, while programs run on, the
host's memory is made ready for it. From docs/lab/moves.md."""
DRIVER_BYTES_PER_S = 1e9
"""What does not leave a device by itself the driver moves, at about that, out and in again."""
REPLAY_PAUSE_S = 0.007
REPLAY_PAUSE_S_PER_GIB = 0.004
REPLAY_AHEAD_S = 0.5
REPLAY_AHEAD_S_PER_GIB = 0.02
"""By replay: programs let go of one device and are on the other, and all of their memory is copied again, as nobody knows beforehand how much
of it changes; before that contexts with their objects are made, and memory is copied from one device to the other. From docs/lab/moves.md."""
_GIB = 1 << 30
_NO_FAST_MOVES = "its programs are not kept ready for replay: fast_moves is not set (docs/migration.md)"


@dataclass(frozen=True)
class Plan:
    """How a vGPU would move, from one Gpu to another, by their numbers. `memory_bytes`: its programs' linear memory. `pause_s`, of `seconds`:
    they stand still. `no_replay`: why it does not move by replay, where that is to be had."""

    name: str
    origin: int
    target: int
    mover: str
    nr_programs: int
    memory_bytes: int
    seconds: float
    pause_s: float
    no_replay: tuple[str, ...] = ()


class NoPlanError(RefusedError):
    """A vGPU cannot move there. `reasons`: all that is in the way."""

    def __init__(self, name: str, target: int, reasons: Sequence[str]) -> None:
        super().__init__(f"{name} cannot move to GPU {target}: {'; '.join(reasons)}")
        self.reasons = tuple(reasons)


@dataclass(frozen=True)
class Traveller:
    """A vGPU as it is now, with its programs."""

    name: str
    wish: Wish
    """What it is entitled to, as far as others on a Gpu have less."""
    programs: Sequence[WorkerReading] = ()
    space: str = ""
    """That it is in."""
    host_left_bytes: int | None = None
    """Of the host's memory, for what its programs take beside linear memory while they are on no device; None: that is not bounded."""

    @property
    def memory_bytes(self) -> int:
        """What its programs take of their device, contexts included."""
        return sum(each.memory_bytes for each in self.programs)

    @property
    def linear_bytes(self) -> int:
        """What they allocated of that, and can leave the device by itself."""
        return sum(each.linear_bytes for each in self.programs)

    @property
    def allocated_bytes(self) -> int:
        """What they allocated, that and what stays where it is made."""
        return sum(each.allocated_bytes for each in self.programs)

    @property
    def fixed_bytes(self) -> int:
        """What they take beside linear memory."""
        return sum(each.fixed_bytes for each in self.programs)

    def beside_bytes(self, context_bytes: int) -> int:
        """Of that, what is not for contexts, of which each takes so many."""
        return sum(max(0, each.fixed_bytes - context_bytes) for each in self.programs)

    @property
    def is_bound(self) -> bool:
        """Whether one of its programs does not move by replay."""
        return any(map(why_bound, self.programs))


@dataclass(frozen=True)
class Side:
    """One Gpu as it is now, without the vGPU if it is the target."""

    candidate: Candidate
    """For placement."""
    name: str
    capability: str
    memory_bytes: int
    policy: str
    takes_requests: bool
    failed: str = ""
    """Why it serves nobody any more."""
    no_mover: str | None = ""
    """Why no program's contexts can leave it or come there by checkpoint; "": they can, None: nobody knows yet."""
    context_bytes: int = 0
    """Of the device's memory, that a program's context takes."""
    has_fast_moves: bool = False
    """Programs are kept ready for replay."""
    left_bytes: int | None = None
    """Of the device's memory, by what vGPUs take there; None: what has no room waits in the host's."""
    allocatable_left_bytes: int | None = None
    """Of what programs may allocate there; None: that is not bounded."""
    movable_bytes: int | None = None
    """Of linear memory, that may be on the device at a time; None: all of it has to be there."""
    unfixed_bytes: int = 0
    """Of the device's memory, beside what stays there."""
    largest_bytes: int = 0
    """Linear memory of that program there which has the most."""

    @property
    def number(self) -> int:
        """Of the Gpu."""
        return self.candidate.number

    @property
    def chip(self) -> str:
        """What devices have in common between which programs can move."""
        return f"{self.name}, compute capability {self.capability}, {format_size(self.memory_bytes)}"

    def is_like(self, other: "Side") -> bool:
        """Whether programs can move between them."""
        return (self.name, self.capability, self.memory_bytes) == (other.name, other.capability, other.memory_bytes)


def make_plan(traveller: Traveller, origin: Side, target: Side, mover: str = AUTO) -> Plan:
    """Raises NoPlanError, and RefusedError for a mover that is not known."""
    if mover not in MOVERS:
        raise RefusedError(f"no mover is called {mover!r}; there are {', '.join(MOVERS)}")
    if origin.number == target.number:
        raise NoPlanError(traveller.name, target.number, ["it is there already"])
    has_fast_moves = origin.has_fast_moves and target.has_fast_moves
    place = list(_of_place(traveller, origin, target))
    bound = list(_of_replay(traveller, target)) if has_fast_moves else [_NO_FAST_MOVES]
    if mover == REPLAY or (mover == AUTO and not place and not bound):
        return _planned(traveller, origin, target, REPLAY, [*place, *bound])
    no_replay = bound if mover == AUTO and has_fast_moves else []
    stuck = list(_of_programs(traveller, origin, target))
    return _planned(traveller, origin, target, CHECKPOINT, [*place, *stuck, *(no_replay if stuck else ())], no_replay)


def _planned(
    traveller: Traveller,
    origin: Side,
    target: Side,
    mover: str,
    reasons: Sequence[str],
    no_replay: Sequence[str] = (),
) -> Plan:
    """Raises NoPlanError where there are reasons."""
    if reasons:
        raise NoPlanError(traveller.name, target.number, list(dict.fromkeys(reasons)))
    seconds, pause_s = _times(mover, traveller, origin.context_bytes) if traveller.programs else (0.0, 0.0)
    return Plan(
        traveller.name,
        origin.number,
        target.number,
        mover,
        len(traveller.programs),
        traveller.linear_bytes,
        seconds=seconds,
        pause_s=pause_s,
        no_replay=tuple(no_replay),
    )


def _times(mover: str, traveller: Traveller, context_bytes: int) -> tuple[float, float]:
    """In all, and of that the pause; in s."""
    gib = traveller.linear_bytes / _GIB
    if mover == REPLAY:
        pause_s = REPLAY_PAUSE_S + REPLAY_PAUSE_S_PER_GIB * gib
        return pause_s + REPLAY_AHEAD_S + REPLAY_AHEAD_S_PER_GIB * gib, pause_s
    pause_s = PAUSE_S + PAUSE_S_PER_GIB * gib + 2 * traveller.beside_bytes(context_bytes) / DRIVER_BYTES_PER_S
    return pause_s + AHEAD_S_PER_GIB * gib, pause_s


def why_bound(program: WorkerReading) -> str:
    """Why replay does not move it; "": it does."""
    texts = (program.bound | (Bound.SHARED if program.keeps is Keeps.SHARED else NOT_BOUND)).texts()
    return f"{printable(program.program)} (worker {program.pid}) {', '.join(texts)}" if texts else ""


def _of_place(traveller: Traveller, origin: Side, target: Side) -> Iterator[str]:
    number, wish = target.number, traveller.wish
    if origin.failed:
        yield f"GPU {origin.number} has failed, and gives nothing back: {origin.failed}"
    if traveller.space:
        yield f"{traveller.name} is in the space {traveller.space}, which is on GPU {origin.number}, and a space is on one"
    if (refusal := fits(target.candidate, wish)) is not None:
        yield refusal_text({number: refusal}, MAX_VGPUS)
    if not target.is_like(origin):
        yield f"GPU {number} is another chip ({target.chip}) than GPU {origin.number} ({origin.chip})"
    if wish.request and not target.takes_requests:
        yield f"the policy {target.policy} of GPU {number} knows no requests, and {traveller.name} has one of {wish.request:g} %"
    if target.left_bytes is not None and traveller.memory_bytes > max(0, target.left_bytes):
        left, taken = format_size(max(0, target.left_bytes)), format_size(traveller.memory_bytes)
        yield f"GPU {number} has {left} of memory left, where the programs of {traveller.name} take {taken}"
    bound = target.allocatable_left_bytes
    if bound is not None and traveller.allocated_bytes > max(0, bound):
        left, taken = format_size(max(0, bound)), format_size(traveller.allocated_bytes)
        yield f"GPU {number} has {left} left that programs may allocate, where those of {traveller.name} have {taken}"
    if target.movable_bytes is not None and traveller.programs:
        largest = max(target.largest_bytes, *(each.linear_bytes for each in traveller.programs))
        room = max(0, min(target.movable_bytes, target.unfixed_bytes - traveller.fixed_bytes))
        if largest > room:
            left, taken = format_size(room), format_size(largest)
            beside = f"beside what stays there and what of {traveller.name} would"
            yield f"GPU {number} has room for {left} {beside}, where one program needs {taken} at once"


def _of_replay(traveller: Traveller, target: Side) -> Iterator[str]:
    yield from filter(None, map(why_bound, traveller.programs))
    if traveller.programs and target.left_bytes is None:
        yield f"GPU {target.number} makes room for memory of the programs that are there (oversubscribe), not for what comes ahead"


def _of_programs(traveller: Traveller, origin: Side, target: Side) -> Iterator[str]:
    for side in (origin, target) if traveller.programs else ():
        if side.no_mover is None:
            yield f"whether programs can move is still being tried on GPU {side.number}: ask again in a minute"
        elif side.no_mover:
            yield f"programs of GPU {side.number} cannot move: {side.no_mover}"
    left = traveller.host_left_bytes
    if traveller.programs and left is not None and traveller.fixed_bytes > left:
        taken, more = format_size(traveller.memory_bytes), format_size(traveller.fixed_bytes - left)
        yield (
            f"the programs of {traveller.name} take {taken}, {more} more than is left of the host's memory for what leaves a device: raise "
            "swap_bytes, or resume another vGPU"
        )
    for each in traveller.programs:
        if each.keeps is Keeps.SHARED:
            yield f"{printable(each.program)} (worker {each.pid}) shares memory with other programs"
        if Bound.MANAGED in each.bound:
            yield f"{printable(each.program)} (worker {each.pid}) has managed variables, which drivers do not checkpoint"
