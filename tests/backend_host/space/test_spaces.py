"""Who is in which space of a Gpu: what is refused, and where its workers come from and the page has it if its vGPUs take turns."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from backend_host.device.control import ControlPage
from backend_host.entitlement import Entitlement
from backend_host.errors import FairGVError, RefusedError
from backend_host.restart.store import Store
from backend_host.space.gated import Gated
from backend_host.space.setting import SpaceSettings
from backend_host.space.space import Space
from backend_host.space.spaces import Spaces
from backend_host.space.together import Together
from backend_host.worker_start import WorkerStart
from backend_host.workers import Workers

CRITICAL = Entitlement(vgpu_class="critical", qos="1.2", space="web")
BEST_EFFORT = Entitlement(vgpu_class="best-effort", space="web")
FAIR = Entitlement()


class Played:
    """A page and workers, which note what they are told."""

    def __init__(self) -> None:
        self.classes: dict[int, tuple[int, int]] = {}
        self.pools: dict[int, Any] = {}
        self.taken_back: list[int] = []

    def set_class(self, vgpu: int, class_number: int, space: int) -> None:
        self.classes[vgpu] = (class_number, space)

    def take_split_back(self, vgpu: int) -> None:
        self.taken_back.append(vgpu)

    def set_pool(self, vgpu: int, pool: Any) -> None:
        self.pools[vgpu] = pool


def no_way(name: str, uid: int) -> Together:
    raise AssertionError("nobody is together")


def spaces(played: Played, setting: str = "mps", why_not: str = "no MPS here") -> Spaces:
    settings = SpaceSettings(setting, why_not, no_way, 1)
    page, workers = cast(ControlPage, played), cast(Workers, played)
    return Spaces(0, page, workers, cast(WorkerStart, None), settings, Store())


def test_a_daemon_without_spaces_refuses_them_and_nothing_else() -> None:
    off = spaces(Played(), "off", "")
    off.check(FAIR, {})
    off.check(Entitlement(vgpu_class="critical", qos="2"), {"other": Entitlement(vgpu_class="critical", qos="2")})
    with pytest.raises(RefusedError, match=r"^--space: this daemon has each vGPU take turns; .* start --space mps"):
        off.check(BEST_EFFORT, {})


def test_a_second_critical_one_is_refused_with_the_name_of_the_first() -> None:
    found = spaces(Played())
    found.check(CRITICAL, {"trains": BEST_EFFORT, "other": Entitlement(vgpu_class="critical", qos="2", space="mail")})
    with pytest.raises(
        RefusedError, match=r"^--class critical: answers is the critical vGPU of the space web on GPU 0"
    ):
        found.check(CRITICAL, {"trains": BEST_EFFORT, "answers": CRITICAL})


def test_where_they_take_turns_the_page_has_them_in_no_space() -> None:
    played = Played()
    found = spaces(played)
    for vgpu, entitlement in enumerate((CRITICAL, BEST_EFFORT, FAIR)):
        found.join(vgpu, entitlement)
    assert played.classes == {0: (1, 0), 1: (2, 0), 2: (0, 0)}
    assert played.pools == {0: None, 1: None, 2: None}
    assert found.all() == [("web", None, {0: CRITICAL, 1: BEST_EFFORT})]
    assert found.why_turns("web") == "no MPS here"
    assert found.criticals() == {0: CRITICAL}
    assert found.holds("web")


def test_who_leaves_is_in_it_no_more() -> None:
    found = spaces(Played())
    found.join(0, CRITICAL)
    found.change(0, Entitlement(space="web"))
    assert found.criticals() == {}
    found.leave(0)
    found.leave(7)
    assert found.all() == []
    assert not found.holds("web")


def test_spaces_of_one_name_on_two_gpus_are_of_two_users() -> None:
    """The end of one ends all of MPS that is its user's."""
    tenants: list[str] = []
    uids: list[int] = []

    def take(tenant: str) -> SimpleNamespace:
        tenants.append(tenant)
        return SimpleNamespace(uid=1000 + tenants.index(tenant))

    def make(name: str, uid: int) -> Together:
        uids.append(uid)
        raise FairGVError("that is enough")

    start = cast(WorkerStart, SimpleNamespace(tenants=SimpleNamespace(take=take)))
    for gpu in (0, 1, 0):
        played = Played()
        page, workers = cast(ControlPage, played), cast(Workers, played)
        Spaces(gpu, page, workers, start, SpaceSettings("mps", "", make, 1), Store()).join(0, CRITICAL)
    assert uids == [1000, 1001, 1000]


def test_who_asks_best_effort_for_room() -> None:
    found = spaces(Played())
    for vgpu, entitlement in enumerate((CRITICAL, BEST_EFFORT, Entitlement(space="web"))):
        found.join(vgpu, entitlement)
    assert [found._asks(vgpu) for vgpu in range(4)] == [True, False, False, True], "the last may have, and has left"


@pytest.mark.parametrize(("vgpu", "steps"), [(0, ["look", "give back"]), (1, ["look"]), (7, [])])
def test_the_room_of_a_program_with_a_sticky_error_is_given_back(vgpu: int, steps: list[str]) -> None:
    found, done = spaces(Played()), list[str]()
    for number, entitlement in enumerate((CRITICAL, BEST_EFFORT)):
        found.join(number, entitlement)
    space = SimpleNamespace(look=lambda: done.append("look"), give_room_back=lambda: done.append("give back"))
    found._spaces["web"] = cast(Space, space)
    found.look_at(vgpu)
    assert done == steps


def test_where_the_split_word_was_cleared_its_critical_one_asks_for_nothing() -> None:
    played = Played()
    found = spaces(played)
    mail = Entitlement(vgpu_class="critical", qos="2", space="mail")
    for vgpu, entitlement in enumerate((BEST_EFFORT, CRITICAL, mail)):
        found.join(vgpu, entitlement)
    found._has_cleared("web")
    assert played.taken_back == [1]


def test_what_waited_at_the_gate_does_not_fall() -> None:
    """Though who waited leaves, is another class, or is told of no more while it ends; a space that begins anew begins with nothing."""
    found = spaces(Played())
    for vgpu in range(2):
        found.join(vgpu, BEST_EFFORT)
    found.join(2, Entitlement(space="mail"))
    assert found.gated("web", {0: Gated(3, 30), 1: Gated(2, 20), 2: Gated(9, 90)}) == (5, 50)
    found.change(1, Entitlement(space="web"))
    assert found.gated("web", {0: Gated(4, 40)}) == (6, 60)
    found.leave(1)
    assert found.gated("web", {0: Gated(4, 40), 1: Gated(7, 70)}) == (6, 60), "1 is elsewhere"
    found.join(1, BEST_EFFORT)
    assert found.gated("web", {0: Gated(4, 40), 1: Gated(1, 10)}) == (7, 70)
    for vgpu in range(2):
        found.leave(vgpu)
    found.join(0, BEST_EFFORT)
    assert found.gated("web", {}) == (0, 0)
    assert found.gated("mail", {2: Gated(9, 90)}) == (9, 90)
