"""Which vGPUs should change their device: `balance`, which ends overload, and `compact`, which also empties devices that are used little.

Both are of DCUDA (section 3.3, steps 1 and 2). A device is overloaded when its vGPUs have wanted more than all of it for three looks. It gives
to one below 90 % what it has heaviest that fits there, that is, without making that one overloaded: then the problem would only have moved.
Where nothing is overloaded, `compact` joins the two devices that are used least, if both together stay below 90 %. The space between 90 and
100 % is the hysteresis. The paper's third step, slices for groups of programs, is what turns by fair queuing are.

A move costs a pause, so it has to gain ten times as much. Demands are means of the last minute, and taken to hold for the next one, so what it
gains is reckoned over a minute: GPU time that is used then and was not before, or with `compact` the time of the device that becomes free.

No ping-pong: a vGPU moves once in 10 s at most, and does not go back to a device within five minutes after it left it. While demands stay as
they are, a device that was given to does not become overloaded by it, so nobody moves because of a move.

Good when: programs last for much longer than looks. Bad when: only a swap of two vGPUs would help, as none is looked for; or when devices
differ in speed, as a vGPU's demand is taken to be the same on each.
Wrong when: demand is what was used. A vGPU that gets half of what it wants has the demand of what it wants.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from scheduler.placement import Candidate, Wish, fits

OFF, BALANCE, COMPACT = MODES = ("off", "balance", "compact")

OVER = 1.0
"""Of a device: more demand than this is overload."""
UNDER = 0.9
"""Below this a device may be given to, and two of them together are joined."""
NR_LOOKS = 3
"""What is seen so often in a row is acted on."""
STAY_NS = 10_000_000_000
"""From one move of a vGPU to the next one."""
RETURN_NS = 300_000_000_000
"""From a move of a vGPU off a device to one back to it. Its demand is a mean of a minute, which by then is another one altogether."""
HORIZON_NS = 60_000_000_000
"""For so long demands are taken to hold."""
GAIN_OVER_PAUSE = 10
_WHOLE = 100.0
_HAIR = 1e-9
"""Sums of demands in another order differ by less."""


@dataclass(frozen=True)
class Device:
    """One device, without what vGPUs take of it."""

    number: int
    memory: int | None = None
    """Bytes that its vGPUs may have together; None: they are not counted."""
    places: int = 64
    out: str = ""
    """Why it takes nobody, drained or failed for example. It may give."""


@dataclass(frozen=True)
class Load:
    """One vGPU, by a key of the caller's."""

    vgpu: Hashable
    device: int
    demand: float | None
    """GPU time that it wants in a second: burst over burst and pauses, of all of its programs. None: not known yet, so it stays, and nobody
    comes to where it is."""
    memory: int = 0
    """Bytes that it is to find on another device: its quota, or what it has allocated if it has none."""
    request: float = 0.0
    """Percent."""
    to: int | None = None
    """Where it is on its way to. Until it is there it has memory, request and place on both."""

    @property
    def goes_by(self) -> int:
        """The device that its demand counts for."""
        return self.device if self.to is None else self.to


@dataclass(frozen=True)
class Move:
    """A decision, with the numbers that it was made by. Demands of devices are those before it, without the vGPU's on the target."""

    mode: str
    vgpu: Hashable
    source: int
    target: int
    demand: float
    source_demand: float
    target_demand: float
    gain_ns: int
    """GPU time, or time of a free device, within `HORIZON_NS`; with `compact` of all moves that empty the device together."""
    pause_ns: int
    """Of all these moves as well."""

    def __str__(self) -> str:
        wins = "of GPU time" if self.mode == BALANCE else "of an empty GPU"
        return (
            f"{self.mode}: {self.vgpu} ({self.demand:.0%}) goes from GPU {self.source} ({self.source_demand:.0%}) to GPU {self.target} "
            f"({self.target_demand:.0%}): {self.gain_ns / 1e9:.2f} s {wins} in {HORIZON_NS / 1e9:g} s for {self.pause_ns / 1e6:.1f} ms of pause"
        )


Pauses = Callable[[Hashable, int], int | None]
"""How long the pause of a vGPU's move to a device is planned to be, in ns; None: it cannot move there."""


class Balancer:
    """Look after look, 10 in a second. Times are of any one clock. `mode` may change at any time."""

    def __init__(self, mode: str = OFF) -> None:
        self.mode = mode
        self._nr_over: dict[int, int] = {}
        """Looks in a row at which a device was overloaded."""
        self._joined: tuple[int, int] | None = None
        """Source and target that could be joined at the last `_nr_joined` looks."""
        self._nr_joined = 0
        self._moved_ns: dict[Hashable, int] = {}
        self._left_ns: dict[tuple[Hashable, int], int] = {}

    def look(self, now_ns: int, devices: Sequence[Device], loads: Sequence[Load], pause_ns: Pauses) -> list[Move]:
        """What is to move now, in this order. The next look has it on its way, or where it was if it could not move."""
        self._forget(loads)
        if self.mode == OFF:
            self._nr_over.clear()
            self._nr_joined = 0
            return []
        view = _View(now_ns, devices, list(loads), pause_ns, self._moved_ns, self._left_ns)
        moves = self._balance(view)
        if self.mode == COMPACT:
            moves += self._compact(view)
        for move in moves:
            self._moved_ns[move.vgpu] = self._left_ns[move.vgpu, move.source] = now_ns
        return moves

    def _balance(self, view: "_View") -> list[Move]:
        """The most overloaded device first."""
        over = sorted((number for number in view.devices if view.is_over(number)), key=view.demand, reverse=True)
        self._nr_over = {number: self._nr_over.get(number, 0) + 1 for number in over}
        moves = []
        for number in over:
            if self._nr_over[number] >= NR_LOOKS:
                while view.is_over(number) and (move := view.relief(number)) is not None:
                    moves.append(move)
                    view.carry_out(move)
                    self._nr_over[number] = 0
        return moves

    def _compact(self, view: "_View") -> list[Move]:
        """One device at most. Where something is overloaded, or on its way, all have to wait."""
        is_calm = not self._nr_over and all(load.to is None for load in view.loads)
        found = view.join() if is_calm else []
        pair = (found[0].source, found[0].target) if found else None
        self._nr_joined = self._nr_joined + 1 if pair == self._joined else 1
        self._joined = pair
        if pair is None or self._nr_joined < NR_LOOKS:
            return []
        self._joined = None
        return found

    def _forget(self, loads: Sequence[Load]) -> None:
        there = {load.vgpu for load in loads}
        self._moved_ns = {vgpu: at_ns for vgpu, at_ns in self._moved_ns.items() if vgpu in there}
        self._left_ns = {key: at_ns for key, at_ns in self._left_ns.items() if key[0] in there}


class _View:
    """One look, and what was decided at it."""

    def __init__(
        self,
        now_ns: int,
        devices: Sequence[Device],
        loads: list[Load],
        pause_ns: Pauses,
        moved_ns: dict[Hashable, int],
        left_ns: dict[tuple[Hashable, int], int],
    ) -> None:
        self.devices = {device.number: device for device in devices}
        self.loads = loads
        self._now_ns, self._pause_ns = now_ns, pause_ns
        self._moved_ns, self._left_ns = moved_ns, left_ns

    def demand(self, number: int) -> float:
        """What is known of it."""
        return sum(load.demand or 0.0 for load in self.loads if load.goes_by == number)

    def is_over(self, number: int) -> bool:
        return self.demand(number) > OVER + _HAIR

    def carry_out(self, move: Move) -> None:
        """The vGPU is on its way."""
        self.loads = [replace(load, to=move.target) if load.vgpu == move.vgpu else load for load in self.loads]

    def relief(self, source: int) -> Move | None:
        """The heaviest of an overloaded device that fits elsewhere, to where least is wanted."""
        able = [load for load in self.loads if load.device == source and load.to is None and load.demand is not None]
        targets = [number for number in self._targets() if number != source and self.demand(number) < UNDER]
        for load in sorted(able, key=lambda load: load.demand or 0.0, reverse=True):
            for target in targets:
                move = self._relieving(load, target)
                if move is not None:
                    return move
        return None

    def _relieving(self, load: Load, target: int) -> Move | None:
        demand, before, there = load.demand or 0.0, self.demand(load.device), self.demand(target)
        gained = min(demand, before - OVER)
        if gained <= 0 or there + demand > OVER + _HAIR or not self._may_go(load, target, self.loads):
            return None
        gain_ns, pause_ns = int(gained * HORIZON_NS), self._pause_ns(load.vgpu, target)
        if pause_ns is None or gain_ns <= GAIN_OVER_PAUSE * pause_ns:
            return None
        return Move(BALANCE, load.vgpu, load.device, target, demand, before, there, gain_ns, pause_ns)

    def join(self) -> list[Move]:
        """Moves that empty a device: of the two that are used least, the one that is used less, if not the other one."""
        used = [number for number in self.devices if self._is_known(number) and self._on(number)]
        pairs = [pair for pair in combinations(sorted(used, key=self.demand), 2) if sum(map(self.demand, pair)) < UNDER]
        for pair in sorted(pairs, key=lambda pair: sum(map(self.demand, pair))):
            for source, target in (pair, pair[::-1]):
                moves = self._emptying(source, target)
                if moves:
                    return moves
        return []

    def _emptying(self, source: int, target: int) -> list[Move]:
        """All of a device's vGPUs, or none."""
        loads, pauses = list(self.loads), []
        if self.devices[target].out:
            return []
        leaving = self._on(source)
        for load in leaving:
            pause_ns = self._pause_ns(load.vgpu, target) if self._may_go(load, target, loads) else None
            if pause_ns is None:
                return []
            pauses.append(pause_ns)
            loads[loads.index(load)] = replace(load, to=target)
        if GAIN_OVER_PAUSE * sum(pauses) >= HORIZON_NS:
            return []
        demands = self.demand(source), self.demand(target)
        return [
            Move(COMPACT, load.vgpu, source, target, load.demand or 0.0, *demands, HORIZON_NS, sum(pauses))
            for load in leaving
        ]

    def _on(self, number: int) -> list[Load]:
        return [load for load in self.loads if load.device == number]

    def _is_known(self, number: int) -> bool:
        return all(load.demand is not None for load in self.loads if load.goes_by == number)

    def _targets(self) -> list[int]:
        """The one that is used least comes first."""
        open_ones = [number for number, device in self.devices.items() if not device.out and self._is_known(number)]
        return sorted(open_ones, key=self.demand)

    def _may_go(self, load: Load, target: int, loads: Sequence[Load]) -> bool:
        """It has been where it is for long enough, and memory, request and place are there, beside these."""
        now_ns = self._now_ns
        if now_ns - self._moved_ns.get(load.vgpu, now_ns - STAY_NS) < STAY_NS:
            return False
        if now_ns - self._left_ns.get((load.vgpu, target), now_ns - RETURN_NS) < RETURN_NS:
            return False
        there = [each for each in loads if target in (each.device, each.to)]
        device = self.devices[target]
        candidate = Candidate(
            target,
            demand=None,
            weight=0,
            memory_left=None if device.memory is None else device.memory - sum(each.memory for each in there),
            request_left=_WHOLE - sum(each.request for each in there),
            places_left=device.places - len(there),
            out=device.out,
        )
        return fits(candidate, Wish(load.memory, load.request)) is None
