"""Which vGPUs move between devices: what holds for any demands, and what each rule is for."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.balance import (
    BALANCE,
    COMPACT,
    GAIN_OVER_PAUSE,
    HORIZON_NS,
    MODES,
    NR_LOOKS,
    OFF,
    OVER,
    RETURN_NS,
    STAY_NS,
    UNDER,
    Balancer,
    Device,
    Load,
    Move,
)

LOOK_NS = 100_000_000
GIB = 1 << 30
PAUSE_NS = 20_000_000
DEMANDS = st.integers(0, 100).map(lambda nr: nr / 100)
ACTIVE = st.sampled_from([BALANCE, COMPACT])


@dataclass
class World:
    """Devices and vGPUs; moves take so many looks."""

    devices: list[Device]
    loads: list[Load]
    mode: str = BALANCE
    pause_ns: Callable[[object, int], int | None] = lambda vgpu, device: PAUSE_NS
    nr_looks_of_a_move: int = 0
    now_ns: int = 0
    moves: list[tuple[int, Move]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.balancer = Balancer(self.mode)
        self._arrives: dict[object, int] = {}

    def look(self, demands: Sequence[float] | None = None) -> list[Move]:
        if demands is not None:
            self.loads = [replace(load, demand=demand) for load, demand in zip(self.loads, demands, strict=True)]
        self._arrive()
        moves = self.balancer.look(self.now_ns, self.devices, self.loads, self.pause_ns)
        targets = {move.vgpu: move.target for move in moves}
        assert len(targets) == len(moves)
        self.loads = [replace(load, to=targets.get(load.vgpu, load.to)) for load in self.loads]
        self.moves += [(self.now_ns, move) for move in moves]
        self._arrives |= dict.fromkeys(targets, self.nr_looks_of_a_move)
        if not self.nr_looks_of_a_move:
            self._arrive()
        self.now_ns += LOOK_NS
        return moves

    def _arrive(self) -> None:
        for place, load in enumerate(self.loads):
            if load.to is not None and self._arrives[load.vgpu] == 0:
                self.loads[place] = replace(load, device=load.to, to=None)
            elif load.to is not None:
                self._arrives[load.vgpu] -= 1

    def run(self, nr_looks: int) -> list[Move]:
        return [move for _ in range(nr_looks) for move in self.look()]

    def on(self, number: int) -> list[Load]:
        return [load for load in self.loads if load.device == number]

    def demand(self, number: int) -> float:
        return sum(load.demand or 0 for load in self.on(number))


def world(*demands: Sequence[float], mode: str = BALANCE, **more: int) -> World:
    """Of each device the demands of its vGPUs, which are numbered through."""
    loads: list[Load] = []
    devices = []
    for number, each in enumerate(demands):
        devices.append(Device(number))
        loads += [Load(len(loads) + place, number, demand) for place, demand in enumerate(each)]
    return World(devices, loads, mode, **more)  # type: ignore[arg-type]


@st.composite
def worlds(draw: st.DrawFn) -> World:
    nr_devices = draw(st.integers(1, 4))
    devices = [
        Device(
            number,
            memory=draw(st.none() | st.integers(1, 8).map(lambda nr: nr * GIB)),
            places=draw(st.integers(1, 8)),
            out=draw(st.sampled_from(["", "", "", "drained"])),
        )
        for number in range(nr_devices)
    ]
    loads = [
        Load(
            vgpu,
            draw(st.integers(0, nr_devices - 1)),
            draw(DEMANDS),
            memory=draw(st.integers(0, 3)) * GIB,
            request=float(draw(st.sampled_from([0, 0, 10, 30, 50]))),
        )
        for vgpu in range(draw(st.integers(0, 8)))
    ]
    pauses = draw(st.dictionaries(st.tuples(st.integers(0, 7), st.integers(0, 3)), st.none() | st.integers(0, 10**9)))

    def pause_ns(vgpu: object, device: int) -> int | None:
        return pauses.get((vgpu, device), PAUSE_NS)  # type: ignore[arg-type]

    return World(devices, loads, draw(ACTIVE), pause_ns, draw(st.integers(0, 4)))


def taken(world: World, number: int) -> tuple[float, int, int]:
    """Requests, memory and places, of vGPUs on their way on both devices."""
    there = [load for load in world.loads if number in (load.device, load.to)]
    return sum(load.request for load in there), sum(load.memory for load in there), len(there)


@given(worlds(), st.lists(st.lists(DEMANDS, min_size=8, max_size=8), min_size=1, max_size=30))
def test_a_move_fits_and_pays_whatever_is_wanted(world: World, looks: list[list[float]]) -> None:
    """Who brings no memory, or no request, comes also to a device that has too much of it already."""
    for demands in looks:
        for _ in range(NR_LOOKS):
            moves = world.look(demands[: len(world.loads)])
            for target in {move.target for move in moves}:
                device = world.devices[target]
                request, memory, nr_places = taken(world, target)
                came = [world.loads[move.vgpu] for move in moves if move.target == target]  # type: ignore[call-overload]
                assert request <= 100 or not any(load.request for load in came)
                assert device.memory is None or memory <= device.memory or not any(load.memory for load in came)
                assert nr_places <= device.places
                assert not device.out
            for move in moves:
                pause_ns = world.pause_ns(move.vgpu, move.target)
                assert pause_ns is not None
                assert move.gain_ns > GAIN_OVER_PAUSE * move.pause_ns >= GAIN_OVER_PAUSE * pause_ns
                assert move.source != move.target
                if move.mode == BALANCE:
                    assert move.source_demand > OVER
                    assert move.target_demand < UNDER
                    assert move.target_demand + move.demand <= OVER + 1e-6
                else:
                    assert world.mode == COMPACT
                    assert move.source_demand + move.target_demand < UNDER


@given(worlds(), st.lists(st.lists(DEMANDS, min_size=8, max_size=8), min_size=1, max_size=60), st.integers(1, 400))
def test_there_is_no_ping_pong_whatever_is_wanted(world: World, looks: list[list[float]], stretch: int) -> None:
    """Demands that an adversary chooses, each kept for up to 40 s."""
    for demands in looks:
        for _ in range(NR_LOOKS):
            world.look(demands[: len(world.loads)])
        world.now_ns += stretch * LOOK_NS
    last_ns: dict[object, int] = {}
    left_ns: dict[tuple[object, int], int] = defaultdict(lambda: -RETURN_NS)
    for now_ns, move in world.moves:
        assert now_ns - last_ns.get(move.vgpu, -STAY_NS) >= STAY_NS
        assert now_ns - left_ns[move.vgpu, move.target] >= RETURN_NS
        last_ns[move.vgpu] = left_ns[move.vgpu, move.source] = now_ns


@given(worlds())
def test_while_demands_stay_moves_end_and_nobody_goes_back(world: World) -> None:
    """Not after five minutes either."""
    visited: dict[object, set[int]] = {load.vgpu: {load.device} for load in world.loads}
    for _ in range(40):
        world.run(NR_LOOKS + 5)
        world.now_ns += STAY_NS
    world.now_ns += RETURN_NS
    world.run(10 * NR_LOOKS)
    for _, move in world.moves:
        assert move.target not in visited[move.vgpu]
        visited[move.vgpu].add(move.target)
    if world.mode == BALANCE:
        assert all(len(each) <= 2 for each in visited.values()), "who moved stands where nothing is overloaded"
    world.now_ns += RETURN_NS
    assert world.run(10 * NR_LOOKS) == []


@given(worlds())
def test_while_demands_stay_overload_only_falls(world: World) -> None:
    def overload() -> float:
        return sum(max(0.0, world.demand(device.number) - OVER) for device in world.devices)

    world.nr_looks_of_a_move = 0
    for _ in range(20):
        before, nr_before = overload(), len(world.moves)
        world.run(NR_LOOKS)
        assert overload() <= before + 1e-6
        if any(move.mode == BALANCE for _, move in world.moves[nr_before:]):
            assert overload() < before
        world.now_ns += STAY_NS


def test_the_heaviest_that_fits_goes_to_where_least_is_wanted() -> None:
    there = world([0.6, 0.5, 0.2], [0.55], [0.45], [0.6])
    moves = there.run(NR_LOOKS)
    assert [(move.vgpu, move.source, move.target) for move in moves] == [(1, 0, 2)], "0.6 fits nowhere, 0.5 on one"
    move = moves[0]
    assert (move.demand, move.source_demand, move.target_demand) == pytest.approx((0.5, 1.3, 0.45))
    assert move.gain_ns == pytest.approx(0.3 * HORIZON_NS), "what it wanted beyond the whole device"
    assert str(move) == (
        "balance: 1 (50%) goes from GPU 0 (130%) to GPU 2 (45%): 18.00 s of GPU time in 60 s for 20.0 ms of pause"
    )


def test_overload_is_seen_for_three_looks_in_a_row() -> None:
    there = world([0.6, 0.6], [])
    assert there.look([0.6, 0.6]) == there.look([0.6, 0.6]) == there.look([0.6, 0.4]) == []
    assert there.look([0.6, 0.6]) == there.look([0.6, 0.6]) == []
    assert len(there.look([0.6, 0.6])) == 1


def test_a_problem_is_not_moved() -> None:
    assert world([1.0, 0.6], [0.5]).run(50) == [], "either would overload the other device"
    assert world([1.3], []).run(50) == [], "nor one that wants more than a device"
    assert [move.vgpu for move in world([1.0, 0.6], [0.4]).run(50)] == [1]


def test_one_below_nine_tenths_is_given_to() -> None:
    assert world([0.98, 0.08], [0.91]).run(50) == []
    assert [move.vgpu for move in world([0.98, 0.08], [0.89]).run(50)] == [1]


def test_several_leave_until_nothing_is_overloaded() -> None:
    there = world([0.5, 0.5, 0.5, 0.5], [], [])
    assert [(move.vgpu, move.target) for move in there.run(NR_LOOKS)] == [(0, 1), (1, 2)]
    assert there.demand(0) == 1.0


def test_a_move_gains_ten_times_its_pause() -> None:
    there = world([0.8, 0.25], [])
    there.pause_ns = lambda vgpu, device: 300_000_000 if vgpu == 0 else 299_999_999
    assert [move.vgpu for move in there.run(NR_LOOKS)] == [1], "0.05 of a minute is ten times 300 ms, and not more"
    there = world([0.8, 0.25], [])
    there.pause_ns = lambda vgpu, device: None
    assert there.run(50) == [], "who cannot move does not"


def test_who_has_moved_stays_for_a_while() -> None:
    there = world([0.7, 0.6], [0.2], [0.1])
    assert [(move.vgpu, move.target) for move in there.run(NR_LOOKS)] == [(0, 2)]
    nr_looks = STAY_NS // LOOK_NS - 1
    busy = [0.7, 0.2, 0.2, 0.6]
    assert [move.vgpu for _ in range(nr_looks) for move in there.look(busy)] == [3], "the other one has not moved"


def test_requests_memory_and_places_are_kept_clear_on_both_devices_until_a_move_has_ended() -> None:
    there = world([0.6, 0.6], [0.1], [0.3], nr_looks_of_a_move=10)
    there.loads = [replace(load, request=50.0, memory=GIB) for load in there.loads]
    there.devices = [Device(0, 3 * GIB), Device(1, 2 * GIB), Device(2, places=1)]
    assert [(move.vgpu, move.target) for move in there.run(NR_LOOKS)] == [(0, 1)]
    there.loads += [Load(4, 0, 0.3, memory=GIB), Load(5, 0, 0.8)]
    assert there.run(5) == [], "on device 1 is no memory left, on device 2 no place"
    there.devices[1] = Device(1, 3 * GIB)
    assert [(move.vgpu, move.target) for move in there.run(1)] == [(4, 1)]


def test_an_unknown_demand_keeps_others_away_and_itself_at_home() -> None:
    there = world([0.7, 0.6], [0.1], mode=COMPACT)
    there.loads[2] = replace(there.loads[2], demand=None)
    assert there.run(50) == []
    there.loads[2] = replace(there.loads[2], demand=0.1)
    assert len(there.run(NR_LOOKS)) == 1


def test_compact_joins_the_two_that_are_used_least() -> None:
    there = world([0.5], [0.3, 0.1], [0.2], [], mode=COMPACT)
    moves = there.run(NR_LOOKS)
    assert [(move.vgpu, move.source, move.target) for move in moves] == [(3, 2, 1)]
    assert (moves[0].source_demand, moves[0].target_demand) == pytest.approx((0.2, 0.4))
    assert (moves[0].gain_ns, moves[0].pause_ns) == (HORIZON_NS, PAUSE_NS)
    assert str(moves[0]).endswith("60.00 s of an empty GPU in 60 s for 20.0 ms of pause")
    there.now_ns += STAY_NS
    assert there.run(50) == [], "0.5 and 0.6 are too much"


def test_compact_empties_a_device_whole_or_not_at_all() -> None:
    there = world([0.1, 0.1], [0.3], mode=COMPACT)
    there.devices[1] = Device(1, 3 * GIB)
    there.loads = [replace(load, memory=2 * GIB) for load in there.loads]
    there.devices[0] = Device(0, 4 * GIB)
    assert there.run(50) == [], "one has room on either device, two have not"
    there.devices[0] = Device(0, 6 * GIB)
    assert [(move.vgpu, move.target) for move in there.run(NR_LOOKS)] == [(2, 0)], "the other way round"


def test_compact_weighs_the_pauses_of_all() -> None:
    there = world([0.1, 0.1], [0.3], mode=COMPACT)
    there.pause_ns = lambda vgpu, device: 3_000_000_000
    assert [move.vgpu for move in there.run(NR_LOOKS)] == [2], "one pause of three seconds pays, two do not"
    assert world([0.1], [0.3], mode=BALANCE).run(50) == []


def test_compact_ends_overload_first() -> None:
    there = world([0.7, 0.5], [0.2], [0.1], mode=COMPACT)
    assert [(move.mode, move.vgpu, move.target) for move in there.run(NR_LOOKS)] == [(BALANCE, 0, 2)]
    assert there.devices[0].out == ""


def test_what_was_drained_gives_and_does_not_get() -> None:
    there = world([0.1], [0.2], mode=COMPACT)
    there.devices[0] = Device(0, out="drained")
    assert [(move.source, move.target) for move in there.run(NR_LOOKS)] == [(0, 1)]
    there.devices[1] = Device(1, out="failed: Xid 79")
    there.now_ns += STAY_NS
    assert there.run(50) == []


def test_off_looks_at_nothing_and_remembers_nothing() -> None:
    there = world([0.7, 0.6], [], mode=OFF)
    assert there.run(50) == []
    there.balancer.mode = BALANCE
    assert there.run(NR_LOOKS - 1) == []
    assert len(there.look()) == 1
    assert MODES == (OFF, BALANCE, COMPACT)


def test_who_is_gone_is_forgotten() -> None:
    """Another vGPU of its name moves as if it were the first one."""
    there = world([0.7, 0.6], [])
    assert [move.vgpu for move in there.run(NR_LOOKS)] == [0]
    gone, there.loads = there.loads[0], there.loads[1:]
    there.look()
    there.loads = [replace(gone, device=0), *there.loads]
    assert [move.vgpu for move in there.run(NR_LOOKS)] == [0]
