"""A control page whose daemon died, as the next one finds it; and workers that shared it meanwhile."""

import os
import time
from collections.abc import Iterator
from typing import Any

import pytest
from backend_host.worker._worker import ffi, lib

from backend_host.budgets import Budgets
from backend_host.device.control import NR_OBJECTS, ControlPage, ControlPageError
from backend_host.entitlement import Entitlement
from backend_host.grants import GrantKeeper
from scheduler.registry import make_policy
from tests.backend_host.claims import PHASES
from tests.backend_host.keeping import LastCome

SLICE_NS = 6_000_000
LONG_NS = 10_000_000
QUIET_NS = 1_000_000


class Worker:
    """One of a vGPU, in this process."""

    def __init__(self, page: ControlPage, vgpu: int) -> None:
        self.slot = page.worker_take()
        page.worker_assign(self.slot, os.getpid(), vgpu, 0)
        with page.for_worker(vgpu, self.slot) as objects:
            self.page = ControlPage.open(objects, vgpu)
        self.grantee: Any = ffi.new("struct fgw_grantee *")
        assert lib.fgw_grantee_attach(self.grantee, self.page.page, vgpu, self.slot)

    def enters(self) -> bool:
        is_in = bool(lib.fgw_grant_enter(self.grantee, time.monotonic_ns()))
        lib.fgw_grant_show_phase(self.grantee, PHASES["ready" if is_in else "waiting"])
        return is_in

    def nudge(self) -> None:
        lib.fgw_grant_nudge(self.grantee, time.monotonic_ns() + LONG_NS)

    def follow(self) -> int:
        lib.fgw_grant_follow(self.grantee)
        return int(self.grantee.epoch)


class Daemons:
    """One after another, over one page."""

    def __init__(self) -> None:
        self.page = ControlPage.create(SLICE_NS)
        self.vgpus = [self.page.vgpu_take(), self.page.vgpu_take()]
        self.workers = [Worker(self.page, vgpu) for vgpu in self.vgpus]

    def change(self, kept: list[Worker] | None = None) -> ControlPage:
        """The daemon dies, and the next one adopts what it left."""
        objects = [os.dup(fd) for fd in self.page.objects]
        self.page.close()
        self.page = ControlPage.adopt(objects, {each.slot for each in (self.workers if kept is None else kept)})
        return self.page

    def close(self) -> None:
        for worker in self.workers:
            worker.page.close()
        self.page.close()


@pytest.fixture
def daemons() -> Iterator[Daemons]:
    daemons = Daemons()
    yield daemons
    daemons.close()


def test_accounts_and_turns_go_on(daemons: Daemons) -> None:
    one, other = daemons.workers
    assert one.enters()
    assert not other.enters()
    daemons.page.set_quota(daemons.vgpus[0], 12345)
    page = daemons.change()
    assert page.holder().vgpu == daemons.vgpus[0]
    assert [waiting.vgpu for waiting in page.backlogged()] == [daemons.vgpus[1]]
    account = page.vgpu(daemons.vgpus[0])
    assert account is not None
    assert account.quota_bytes == 12345
    assert page.vgpu_take() not in daemons.vgpus


def test_a_worker_that_is_not_kept_gives_the_grant_back(daemons: Daemons) -> None:
    one, other = daemons.workers
    assert one.enters()
    assert not other.enters()
    page = daemons.change(kept=[other])
    assert [worker.slot for worker in page.workers()] == [other.slot]
    assert page.holder().vgpu == daemons.vgpus[1]


def test_who_lives_is_the_kernels_word(daemons: Daemons) -> None:
    one, other = daemons.workers
    one.page.close()
    page = daemons.change()
    assert (page.has_died(one.slot), page.has_died(other.slot)) == (True, False)
    assert not lib.fgw_life_has_ended(page.objects[2], lib.FGW_MAX_WORKERS), "the daemon lives"


def test_a_daemon_that_died_while_vgpus_were_apart(daemons: Daemons) -> None:
    """They share the grant under the next one, whether they noticed its death or not, and can be apart again."""
    noticed, unaware = daemons.workers
    apart = ffi.gc(lib.fgw_apart_new(daemons.page.page, QUIET_NS), lib.fgw_apart_free)
    lib.fgw_apart_begin(apart, ffi.new("uint32_t[64]"))
    assert (noticed.follow(), unaware.follow()) == (1, 1)
    assert not noticed.enters()
    objects = [os.dup(fd) for fd in daemons.page.objects]
    daemons.page.close()
    noticed.nudge()
    assert (noticed.follow(), unaware.follow()) == (2, 1)
    daemons.page = ControlPage.adopt(objects, {noticed.slot, unaware.slot})
    assert not daemons.page.audit().is_apart
    assert (noticed.follow(), unaware.follow()) == (2, 2)
    assert noticed.enters() or unaware.enters()
    again = ffi.gc(lib.fgw_apart_new(daemons.page.page, QUIET_NS), lib.fgw_apart_free)
    lib.fgw_apart_begin(again, ffi.new("uint32_t[64]"))
    assert (noticed.follow(), unaware.follow()) == (3, 3)
    lib.fgw_apart_end(again)
    assert (noticed.follow(), unaware.follow()) == (4, 4)


def test_what_is_no_page() -> None:
    with pytest.raises(ControlPageError, match="objects"):
        ControlPage.adopt([], ())
    page = ControlPage.create(SLICE_NS)
    objects = [os.dup(fd) for fd in page.objects]
    page.close()
    try:
        for spoiled in (0, 1, NR_OBJECTS - 1):
            other = os.memfd_create("no page")
            objects[spoiled], kept = other, objects[spoiled]
            with pytest.raises(ControlPageError, match="not a control page"):
                ControlPage.adopt(objects, ())
            os.close(other)
            objects[spoiled] = kept
        os.pwrite(objects[0], b"\1\1", 8)
        with pytest.raises(ControlPageError, match="not a control page"):
            ControlPage.adopt(objects, ())
    finally:
        for fd in objects:
            os.close(fd)


def one_ahead(daemons: Daemons, growth_of_second: float) -> tuple[int, int]:
    """Both vGPUs want the GPU, and the first one had 7 ms more than its part."""
    one, other = daemons.workers
    first, second = daemons.vgpus
    assert one.enters()
    assert not other.enters()
    daemons.page.set_standing(first, 9_000_000.0, 1.0, 0)
    daemons.page.set_standing(second, 2_000_000.0, growth_of_second, 0)
    return first, second


@pytest.mark.parametrize("policy", ["fair", "elastic"])
def test_leads_are_kept_among_those_that_want_the_gpu(daemons: Daemons, policy: str) -> None:
    """Who had more than its part waits for the other, as before."""
    first, second = one_ahead(daemons, 0.5)
    page = daemons.change()
    keeper = GrantKeeper(page, make_policy(policy), Budgets(0))
    keeper.adopt({first: Entitlement(weight=1), second: Entitlement(weight=2)})
    assert page.standing(first) - page.standing(second) == pytest.approx(7_000_000, rel=0.01)
    assert keeper.recent_shares(first, 0) == (0.0, 0.0, 0.0)


def test_a_lead_from_before_is_no_turn_that_others_are_owed_for(daemons: Daemons) -> None:
    """It may be a debt."""
    first, second = one_ahead(daemons, 1.0)
    policy = LastCome()
    GrantKeeper(daemons.change(), policy).adopt({first: Entitlement(1), second: Entitlement(1)})
    assert ("indebted", first, 7_000_000) in policy.told
    assert "charged" not in {told[0] for told in policy.told}
