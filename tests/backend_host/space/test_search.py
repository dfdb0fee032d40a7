"""Which split is asked for, by what workers say of rounds: one of the grid, and all of the device while there is nothing to split."""

import random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from backend_host.worker._worker import lib
from hypothesis import given, settings
from hypothesis import strategies as st

from backend_host.device.control import ControlPage
from backend_host.device.spaces_told import Round
from backend_host.entitlement import Entitlement
from backend_host.space.search import MOST_EACH, Searches, SpaceSearch
from backend_host.space.spaces import Spaces

NR = 132
WHOLE = lib.FGW_SPLIT_WHOLE
LOOK_NS = 100_000_000
CRITICAL = Entitlement(vgpu_class="critical", qos="1.5", space="web")
BEST_EFFORT = Entitlement(vgpu_class="best-effort", space="web")


class Page:
    """Rounds of one worker, and the split of one vGPU."""

    def __init__(self) -> None:
        self.split = 0
        self.nr = 0
        self.nr_sliced = self.nr_gated = self.nr_being_made = 0
        self.newest: list[Round] = []

    def set_split(self, vgpu: int, split: int) -> None:
        self.split = split

    def rounds(self, slot: int) -> tuple[int, list[Round]]:
        return self.nr, list(self.newest)

    def worker(self, slot: int) -> Any:
        return SimpleNamespace(
            slot=slot,
            pid=slot,
            program=f"program-{slot}",
            nr_sliced=self.nr_sliced,
            nr_space_gated=self.nr_gated,
            whole={"being made": self.nr_being_made} if self.nr_being_made else {},
        )

    def add(self, rounds: list[Round]) -> None:
        self.nr += len(rounds)
        self.newest = [*self.newest, *rounds][-lib.FGW_NR_ROUNDS :]


class Scene:
    """A program whose rounds take longer the less it gets: one of `needs` of the GPU's blocks is enough."""

    def __init__(self, qos: str = "1.5", needs: float = 0.25) -> None:
        self.page = Page()
        self.needs = needs
        self.leaving = 1.0
        """How much longer rounds with all of the GPU take, as best effort has to leave first."""
        self.random = random.Random(1)
        entitlement = Entitlement(vgpu_class="critical", qos=qos, space="web")
        self.search = SpaceSearch(cast(ControlPage, self.page), 3, entitlement, NR)
        self.asked: list[int] = []
        self.now_ns = 0
        self.nr_rounds = 0

    def _took_ns(self, word: int, has_company: bool) -> int:
        if word == WHOLE:
            return round(1_000_000 * self.leaving) if has_company else 1_000_000
        part = (word & 0xFFFF) * (word >> 16) / (NR * MOST_EACH)
        return round(1_000_000 * (1 + max(0.0, self.needs - part) * 4) * self.random.uniform(0.99, 1.01))

    def look(self, *best_effort: str) -> None:
        rounds = []
        for _ in range(10):
            self.nr_rounds += 1
            is_whole = self.nr_rounds % 50 == 0
            split = WHOLE if is_whole else self.page.split
            rounds.append(Round(7, split, self._took_ns(split, bool(best_effort))))
        self.page.add(rounds)
        self.now_ns += LOOK_NS
        self.search.look(self.now_ns, [(0, 100, "answers")], [(program, True) for program in best_effort])
        self.asked.append(self.page.split)


def words_of_grid() -> set[int]:
    return {0, WHOLE} | {n | k << 16 for n in range(0, NR + 1, 4) for k in range(1, MOST_EACH + 1) if n}


def test_it_begins_with_all_and_ends_where_best_effort_keeps_most_within_the_target() -> None:
    scene = Scene(needs=0.25)
    for _ in range(400):
        scene.look("trains")
        if scene.search.told().is_settled:
            break
    told = scene.search.told()
    assert scene.asked[0] == WHOLE
    assert told.is_settled
    assert told.progress > 0.7, told
    assert told.statistics.nr_missed < told.statistics.nr_rounds / 10
    assert set(scene.asked) <= words_of_grid()


def test_a_target_that_only_all_of_the_device_holds_is_kept_to_that() -> None:
    scene = Scene(qos="1.05", needs=1.0)
    for _ in range(200):
        scene.look("trains")
    assert scene.page.split == WHOLE
    assert scene.search.told().progress == 0.0


def test_a_target_may_be_a_time() -> None:
    scene = Scene(qos="3ms", needs=0.25)
    for _ in range(400):
        scene.look("trains")
        if scene.search.told().is_settled:
            break
    assert scene.search.told().is_settled
    assert scene.search.told().progress > 0.9, "a round takes 1 to 2 ms whatever is left"


def test_without_best_effort_nothing_is_tried() -> None:
    scene = Scene()
    for _ in range(50):
        scene.look()
    assert set(scene.asked) == {WHOLE}
    told = scene.search.told()
    assert told.statistics.nr_rounds == told.statistics.nr_whole == 0
    assert told.why == "waits for rounds beside best effort"


@pytest.mark.parametrize(("nr_alone", "slowdown"), [(0, 1 / 1.5), (10, 1.0)])
def test_slowdowns_are_over_rounds_without_best_effort_where_there_were_any(nr_alone: int, slowdown: float) -> None:
    """With all of the GPU they take half as long again here, as best effort has to leave first; beside it as long as without."""
    scene = Scene(needs=0)
    scene.leaving = 1.5
    for _ in range(nr_alone):
        scene.look()
    for _ in range(100):
        scene.look("trains")
    assert scene.search.told().statistics.slowdown_p50 == pytest.approx(slowdown, rel=0.05)


@settings(max_examples=50)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 2**64 - 1),
            st.lists(st.tuples(*[st.integers(0, 2**32 - 1)] * 2, st.integers(0, 2**63)), max_size=16),
        ),
        max_size=40,
    )
)
def test_whatever_workers_say_the_split_is_of_the_grid(looks: list[tuple[int, list[tuple[int, int, int]]]]) -> None:
    scene = Scene()
    for nr, rounds in looks:
        scene.page.nr, scene.page.newest = nr, [Round(*each) for each in rounds]
        scene.now_ns += LOOK_NS
        scene.search.look(scene.now_ns, [(0, 100, "answers")], [("trains", True)])
        assert scene.page.split in words_of_grid()


class House:
    """A space with a critical vGPU 1 and a best-effort vGPU 2, each with one worker."""

    def __init__(self, page: Page, look_ns: int = LOOK_NS) -> None:
        self.look_ns = look_ns
        self.space: Any = SimpleNamespace(multiprocessors=NR, why_not="")
        self.members = {1: CRITICAL, 2: BEST_EFFORT}
        self.searches = Searches(cast(ControlPage, page), cast(Spaces, self), lambda: self.now_ns)
        self.gpu_ns = self.now_ns = 0

    def all(self) -> list[Any]:
        return [("web", self.space, self.members)]

    def look(self, *, is_at_work: bool = True, waits: bool = False) -> None:
        self.gpu_ns += is_at_work
        self.now_ns += self.look_ns
        readings = [
            SimpleNamespace(slot=vgpu, pid=vgpu, vgpu=vgpu, gpu_ns=self.gpu_ns, waits=waits) for vgpu in self.members
        ]
        self.searches.look(cast(Any, readings))


def test_best_effort_is_let_in_to_show_what_it_has_and_counts_then_by_that() -> None:
    page = Page()
    house = House(page)
    for _ in range(5):
        page.add([Round(7, WHOLE, 1_000_000)] * 10)
        house.look(is_at_work=False)
    assert page.split != WHOLE, "with all of the device for rounds it could not show that it has work"
    tried = page.split
    for _ in range(20):
        page.add([Round(7, tried, 1_000_000)] * 10)
        house.look(is_at_work=False)
    assert page.split == tried, "rounds beside nobody say nothing of a split"
    for _ in range(20):
        page.add([Round(7, page.split, 1_000_000)] * 10)
        house.look(is_at_work=True)
    assert page.split != tried
    for _ in range(5):
        page.add([Round(7, page.split, 1_000_000)] * 10)
        house.look(is_at_work=False, waits=True)
    told = house.searches.told("web")
    assert told is not None
    assert told.statistics.nr_missed == 0


@pytest.mark.parametrize("change", ["no critical one", "turns", "not begun"])
def test_where_there_is_nothing_to_search_nothing_is_told(change: str) -> None:
    house = House(Page())
    house.look()
    assert house.searches.told("web") is not None
    if change == "no critical one":
        house.members = {2: BEST_EFFORT}
    elif change == "turns":
        house.space = None
    else:
        house.space.multiprocessors = 0
    house.look()
    assert house.searches.told("web") is None
    assert house.searches.told("other") is None


def test_where_best_effort_cannot_give_way_the_gate_is_shut_or_open() -> None:
    page = Page()
    house = House(page)
    page.nr_gated, page.nr_sliced = 7, 3
    asked = set()
    for _ in range(40):
        page.add([Round(7, page.split, 1_000_000)] * 10)
        house.look()
        asked.add(page.split)
    assert asked == {WHOLE, 0}
    assert page.split == 0, "rounds take no longer with it open"
    told = house.searches.told("web")
    assert told is not None
    assert (told.is_settled, told.progress) == (True, 1.0)
    for _ in range(5):
        page.add([Round(7, page.split, 2_000_000)] * 10)
        house.look()
    assert page.split == WHOLE, "and shut again when they do"


def test_where_most_of_best_effort_gives_way_splits_are_tried() -> None:
    page = Page()
    house = House(page)
    page.nr_gated, page.nr_sliced = 3, 3
    asked = set()
    for _ in range(40):
        page.add([Round(7, page.split, 1_000_000)] * 10)
        house.look()
        asked.add(page.split)
    assert len(asked - {WHOLE, 0}) > 0


def test_while_variants_are_being_made_rounds_say_nothing() -> None:
    """Launches that cannot give way yet make rounds longer, whatever they ask for."""
    page = Page()
    house = House(page)
    page.add([Round(7, WHOLE, 1_000_000)] * 10)
    house.look()
    for _ in range(10):
        page.nr_being_made += 3
        page.add([Round(7, WHOLE, 9_000_000)] * 10)
        house.look()
    told = house.searches.told("web")
    assert told is not None
    assert (told.statistics.nr_whole, told.is_settled) == (10, False)
    for _ in range(5):
        page.add([Round(7, page.split, 1_000_000)] * 10)
        house.look()
    assert page.split != WHOLE, "then it begins"


def test_it_is_under_way_until_it_has_settled_and_while_rounds_come() -> None:
    page = Page()
    house = House(page, look_ns=LOOK_NS // 10)
    assert not house.searches.are_under_way
    house.look()
    assert not house.searches.are_under_way, "no round yet"
    seen = []
    for _ in range(200):
        page.add([Round(7, page.split, 1_000_000)] * 10)
        house.look()
        told = house.searches.told("web")
        assert told is not None
        assert house.searches.are_under_way is not told.is_settled
        seen.append(told.is_settled)
        if not told.is_settled and len(seen) == 3:
            for _ in range(10):
                house.look()
            assert not house.searches.are_under_way, "a program that rests is not looked at more often"
    assert seen[-1]


def test_work_that_is_charged_now_and_then_goes_on_between() -> None:
    """A kernel of best effort is charged each half a millisecond, and not while it has no place: looks may come in between."""
    counted = []
    for every in (1, 9):
        page = Page()
        house = House(page, look_ns=LOOK_NS // 10)
        for nr in range(100):
            page.add([Round(7, page.split, 1_000_000)] * 4)
            house.look(is_at_work=nr % every == 0)
        told = house.searches.told("web")
        assert told is not None
        counted.append(told.statistics.nr_rounds)
    assert counted[0] == counted[1] > 300
