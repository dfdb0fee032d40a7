"""A keeper's page with players on it: workers' sides of the grant, and a policy that keeps what it was told."""

import math

from backend_host.worker._worker import lib

from backend_host.device.control import ControlPage
from backend_host.entitlement import Entitlement
from backend_host.grants import GrantKeeper
from scheduler.first_come import FirstCome
from scheduler.policy import Standing
from tests.backend_host.grantees import attach

EVENTS = ("joined", "left", "backlogged", "blocked", "dispatched", "charged", "indebted", "standing")
SLICE_NS = 6_000_000


class Player:
    """A worker's side of the grant; time is handed in."""

    def __init__(self, page: ControlPage) -> None:
        self.vgpu = page.vgpu_take()
        self.slot, self.grantee = attach(page, self.vgpu)

    def enter(self, now_ns: int) -> bool:
        return bool(lib.fgw_grant_enter(self.grantee, now_ns))

    def leave(self, now_ns: int) -> None:
        lib.fgw_grant_leave(self.grantee, False, now_ns)

    def give_way(self, now_ns: int) -> None:
        """At the end of its slice; it wants another one."""
        lib.fgw_grant_close(self.grantee)
        lib.fgw_grant_leave(self.grantee, True, now_ns)

    def charge(self, from_ns: int, to_ns: int) -> None:
        lib.fgw_grant_charge(self.grantee, from_ns, to_ns)

    def quit(self, page: ControlPage) -> None:
        page.worker_free(self.slot)
        page.vgpu_free(self.vgpu)


class LastCome(FirstCome):
    """Whoever came last is next; keeps what it was told."""

    name = "last-come"

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[object, ...]] = []

    def charged(self, vgpu: int, used_ns: int, now_ns: int) -> None:
        self.told.append(("charged", vgpu, used_ns))

    def indebted(self, vgpu: int, debt_ns: int, now_ns: int) -> None:
        self.told.append(("indebted", vgpu, debt_ns))

    def weight_changed(self, vgpu: int, weight: int, now_ns: int) -> None:
        self.told.append(("weight_changed", vgpu, weight))

    def dispatched(self, vgpu: int, now_ns: int) -> None:
        super().dispatched(vgpu, now_ns)
        self.told.append(("dispatched", vgpu))

    def blocked(self, vgpu: int, now_ns: int) -> None:
        super().blocked(vgpu, now_ns)
        self.told.append(("blocked", vgpu))

    def standing(self, vgpu: int, now_ns: int) -> Standing:
        value, per_ns, _ = super().standing(vgpu, now_ns)
        return Standing(value if math.isinf(value) else -value, per_ns)


class Broken(FirstCome):
    """Raises at one event, or ranks by something that is no number."""

    name = "broken"

    def __init__(self, event: str = "", answer: object = None) -> None:
        super().__init__()
        self._event = event
        self._answer = answer

    def __getattribute__(self, name: str) -> object:
        if name in EVENTS and name == object.__getattribute__(self, "_event"):
            raise ZeroDivisionError(name)
        return object.__getattribute__(self, name)

    def standing(self, vgpu: int, now_ns: int) -> Standing:
        return self._answer if self._answer is not None else super().standing(vgpu, now_ns)  # type: ignore[return-value]


def next_of(page: ControlPage) -> int | None:
    """Who would be handed the GPU now, of those that wait."""
    waiting = [entry.vgpu for entry in page.backlogged() if entry.vgpu != page.holder().vgpu]
    return min(waiting, key=page.standing, default=None)


def three(page: ControlPage, keeper: GrantKeeper) -> tuple[Player, Player, Player]:
    """One holds the GPU, two wait, the second of them came later."""
    holder, early, late = Player(page), Player(page), Player(page)
    for player in (holder, early, late):
        keeper.join(player.vgpu, Entitlement(1))
    assert holder.enter(1)
    assert not early.enter(2)
    assert not late.enter(3)
    return holder, early, late
