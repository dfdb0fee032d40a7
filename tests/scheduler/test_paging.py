"""Whose memory is on the device: what holds for any programs, and what each rule is for."""

from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st

from scheduler.fair import PAUSE_NS
from scheduler.paging import MOST_STAY_NS, STEP_BYTES, Holding, Plan, stepwise

MS = 1_000_000
TICK_NS = 5 * MS
GIB = 1 << 30
ROOM = 16 * GIB
COST = 0.05
SIZES = st.integers(0, 16 * GIB // STEP_BYTES).map(lambda nr: nr * STEP_BYTES)


@st.composite
def holdings(draw: st.DrawFn) -> dict[int, Holding]:
    found = {}
    for key in range(draw(st.integers(0, 6))):
        allocated = draw(SIZES)
        found[key] = Holding(
            allocated=allocated,
            resident=min(draw(SIZES), allocated),
            standing=draw(st.floats(0, 100)),
            wants=draw(st.booleans()),
            is_kept=draw(st.booleans()) and draw(st.booleans()),
        )
    return found


LOOKS = st.lists(st.tuples(st.integers(0, 10_000 * MS), holdings()), min_size=1, max_size=8)


def kept_of(held: dict[int, Holding]) -> dict[int, int]:
    return {key: each.resident for key, each in held.items() if each.is_kept}


@given(LOOKS)
def test_targets_fit_the_room(looks: list[tuple[int, dict[int, Holding]]]) -> None:
    """But for what is kept, which stays whole."""
    plan = Plan(COST)
    now_ns = 0
    for passed_ns, held in looks:
        now_ns += passed_ns
        targets = plan.targets(now_ns, ROOM, held)
        kept = kept_of(held)
        assert targets.keys() == held.keys()
        assert all(target >= kept.get(key, 0) for key, target in targets.items())
        assert sum(targets.values()) <= max(ROOM, sum(kept.values()))
        assert plan.again_ns(now_ns, held) >= now_ns


@given(LOOKS)
def test_somebody_that_wants_the_device_is_admitted_before_long(looks: list[tuple[int, dict[int, Holding]]]) -> None:
    """Whatever was before, if the room is there."""
    plan = Plan(COST)
    now_ns = 0
    for passed_ns, held in looks:
        now_ns += passed_ns
        targets = plan.targets(now_ns, ROOM, held)
    targets = plan.targets(now_ns + MOST_STAY_NS + 1, ROOM, held)
    wanting = {key: each for key, each in held.items() if each.wants}
    if wanting and not kept_of(held):
        assert any(targets[key] >= each.allocated for key, each in wanting.items())


@given(
    st.dictionaries(st.integers(0, 5), st.tuples(SIZES, SIZES, SIZES), max_size=6),
    st.integers(0, 32).map(lambda nr: nr * GIB),
)
def test_targets_rise_only_as_others_leave(each: dict[int, tuple[int, int, int]], room: int) -> None:
    wanted = {key: most for key, (most, _, _) in each.items()}
    now = {key: min(most, target) for key, (most, target, _) in each.items()}
    resident = {key: nr_bytes for key, (_, _, nr_bytes) in each.items()}
    targets = stepwise(room, wanted, now, resident)
    assert all(now[key] <= targets[key] <= wanted[key] for key in each)
    before = sum(max(now[key], resident[key]) for key in each)
    after = sum(max(targets[key], resident[key]) for key in each)
    assert after <= max(room, before)


@dataclass
class Device:
    """Programs that always want it, and a GPU that serves one of those that have their memory, the one of least standing."""

    sizes: dict[int, int]
    weights: dict[int, int]
    bytes_per_tick: int = 250_000_000
    stand_alike: bool = False
    pauses: bool = False
    """Who has worked for four ticks rests for one."""

    def __post_init__(self) -> None:
        self.plan = Plan(COST)
        self.resident = dict.fromkeys(self.sizes, 0)
        self.used_ns = dict.fromkeys(self.sizes, 0)
        self.targets = dict.fromkeys(self.sizes, 0)
        self.moved = self.idle_ns = 0
        self.pausing: frozenset[int] = frozenset()

    def holdings(self) -> dict[int, Holding]:
        standing = {key: 0.0 if self.stand_alike else self.used_ns[key] / self.weights[key] for key in self.sizes}
        return {key: Holding(size, self.resident[key], standing[key], wants=True) for key, size in self.sizes.items()}

    def run(self, duration_ns: int, resting: frozenset[int] = frozenset()) -> None:
        for now_ns in range(0, duration_ns, TICK_NS):
            held = {
                key: replace(each, wants=key not in resting | self.pausing) for key, each in self.holdings().items()
            }
            wanted = self.plan.targets(now_ns, ROOM, held)
            lowered = {key: min(self.targets[key], target) for key, target in wanted.items()}
            self.targets = stepwise(ROOM, wanted, lowered, self.resident)
            self._move()
            assert sum(self.resident.values()) <= ROOM
            whole = [key for key, each in held.items() if each.wants and not each.lacking]
            self.pausing = frozenset()
            if whole:
                served = min(whole, key=lambda key: self.used_ns[key] / self.weights[key])
                self.used_ns[served] += TICK_NS
                if self.pauses and self.used_ns[served] % (4 * TICK_NS) == 0:
                    self.pausing = frozenset((served,))
            else:
                self.idle_ns += TICK_NS

    def _move(self) -> None:
        """Both ways at once."""
        for sign in (-1, 1):
            left = self.bytes_per_tick
            for key, target in self.targets.items():
                lack = sign * (min(target, self.sizes[key]) - self.resident[key])
                step = min(left, max(0, lack))
                self.resident[key] += sign * step
                left -= step
                self.moved += step


def shares(device: Device) -> dict[int, float]:
    return {key: used_ns / sum(device.used_ns.values()) for key, used_ns in device.used_ns.items()}


def test_moving_takes_no_more_of_the_time_than_it_may() -> None:
    device = Device({1: ROOM * 9 // 10, 2: ROOM * 9 // 10}, {1: 1, 2: 1})
    device.run(60_000 * MS)
    assert device.idle_ns < 60_000 * MS * (COST + 0.04), "5 s is the longest stay, and the first moves count"
    assert abs(shares(device)[1] - 0.5) < 0.07


def test_shares_follow_weights_through_the_moves() -> None:
    device = Device({1: ROOM * 9 // 10, 2: ROOM * 9 // 10}, {1: 1, 2: 3})
    device.run(120_000 * MS)
    assert abs(shares(device)[1] - 0.25) < 0.05


def test_a_pause_between_kernels_costs_nobody_its_place() -> None:
    device = Device({1: ROOM * 9 // 10, 2: ROOM * 9 // 10}, {1: 1, 2: 3}, pauses=True)
    device.run(120_000 * MS)
    assert abs(shares(device)[1] - 0.25) < 0.05


def test_who_rests_for_longer_than_a_pause_is_not_waited_for() -> None:
    """It had its memory after 100 ms, and so may stay for 2 s."""
    plan = Plan(COST)
    one, two = Holding(ROOM, 0, 0.0, wants=True), Holding(ROOM, 0, 1.0, wants=True)
    plan.targets(0, ROOM, {1: one, 2: two})
    one = replace(one, resident=ROOM)
    for now_ns in (100 * MS, 2_200 * MS):
        assert plan.targets(now_ns, ROOM, {1: one, 2: two}) == {1: ROOM, 2: 0}
    resting = replace(one, wants=False)
    assert plan.targets(2_201 * MS, ROOM, {1: resting, 2: two}) == {1: ROOM, 2: 0}, "it may be a pause"
    again_ns = plan.again_ns(2_201 * MS, {1: resting, 2: two})
    assert again_ns == 2_201 * MS + PAUSE_NS
    assert plan.targets(again_ns, ROOM, {1: resting, 2: two}) == {2: ROOM, 1: 0}


def test_programs_of_one_vgpu_that_do_not_fit_together_take_turns() -> None:
    """They stand alike, always."""
    device = Device({1: ROOM * 9 // 10, 2: ROOM * 9 // 10}, {1: 1, 2: 1}, stand_alike=True)
    device.run(60_000 * MS)
    assert abs(shares(device)[1] - 0.5) < 0.1


def test_everybody_gets_the_device() -> None:
    device = Device(
        {key: ROOM * size // 100 for key, size in enumerate((90, 14, 14, 40, 55, 2))}, dict.fromkeys(range(6), 1)
    )
    device.run(200_000 * MS)
    assert min(shares(device).values()) > 0.6 / 6


def test_where_all_fits_nothing_moves_twice() -> None:
    device = Device({1: ROOM // 2, 2: ROOM // 4, 3: ROOM // 4}, {1: 1, 2: 1, 3: 1})
    device.run(2_000 * MS)
    assert device.moved == ROOM


def test_only_what_has_no_room_moves() -> None:
    """Each exchange is of the half that does not fit, a whole program less than what is left of the room."""
    device = Device({1: ROOM * 3 // 4, 2: ROOM * 3 // 4}, {1: 1, 2: 1})
    device.run(20_000 * MS)
    nr_exchanges = (device.moved - ROOM) / ROOM
    assert 1 <= nr_exchanges <= 5


def test_places_are_kept_through_pauses_and_given_up_by_who_rests_for_long() -> None:
    """It had its memory after 100 ms, and so may stay for 2 s."""
    plan = Plan(COST)
    one = Holding(ROOM, 0, 0.0, wants=True)
    two = Holding(ROOM, 0, 1.0, wants=True)
    assert plan.targets(0, ROOM, {1: one, 2: two}) == {1: ROOM, 2: 0}
    one = replace(one, resident=ROOM, standing=2.0)
    assert plan.targets(100 * MS, ROOM, {1: one, 2: two}) == {1: ROOM, 2: 0}
    resting = replace(one, wants=False)
    assert plan.targets(200 * MS, ROOM, {1: resting, 2: two}) == {1: ROOM, 2: 0}
    again_ns = plan.again_ns(200 * MS, {1: resting, 2: two})
    assert 200 * MS < again_ns < 2_100 * MS
    assert plan.targets(again_ns, ROOM, {1: one, 2: two}) == {1: ROOM, 2: 0}, "it works again"
    assert plan.targets(2_000 * MS, ROOM, {1: resting, 2: two}) == {1: ROOM, 2: 0}, "since a moment ago"
    assert plan.targets(2_101 * MS, ROOM, {1: resting, 2: two}) == {2: ROOM, 1: 0}, "it has had its time"


def test_who_rests_gives_way_before_its_time_where_nobody_works() -> None:
    plan = Plan(COST)
    one, two = Holding(ROOM, 0, 0.0, wants=True), Holding(ROOM, 0, 1.0, wants=True)
    plan.targets(0, ROOM, {1: one, 2: two})
    resting = replace(one, resident=ROOM, wants=False)
    plan.targets(1_000 * MS, ROOM, {1: replace(resting, wants=True), 2: two})
    again_ns = plan.again_ns(1_000 * MS, {1: resting, 2: two})
    assert again_ns < 1_000 * MS + MOST_STAY_NS
    assert plan.targets(again_ns - 1, ROOM, {1: resting, 2: two}) == {1: ROOM, 2: 0}
    assert plan.targets(again_ns + 1, ROOM, {1: resting, 2: two}) == {2: ROOM, 1: 0}


def test_memory_that_is_kept_is_nobody_elses() -> None:
    kept = Holding(ROOM, ROOM // 2, 5.0, wants=False, is_kept=True)
    other = Holding(ROOM // 2, 0, 9.0, wants=True)
    targets = Plan(COST).targets(0, ROOM, {1: kept, 2: other})
    assert targets == {2: ROOM // 2, 1: ROOM // 2}
