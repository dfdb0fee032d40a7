"""`fairgv-host list`: every vGPU, and every domain that has the device, with its state and why it is not served."""

from dataclasses import replace

import pytest

from backend_host.entitlement import Entitlement
from backend_host.listing import Listed, listing
from backend_host.statistics import CoschedulingStatistics, DeviceStatistics, GpuStatistics, Totals, VGpuStatistics
from backend_host.vm.domain import Attachment, Sight
from backend_host.vm.region_file import RegionOwner
from tests.backend_host.told import CLIENT, UUID

DEVICE = DeviceStatistics("a device", "soft", "/lib", "8.0", 4 << 30, 13000, False)
GPU = GpuStatistics(
    **vars(DEVICE),
    number=0,
    uuid=UUID,
    pci_bus_id="",
    policy="elastic",
    slice_ns=1,
    used_ns=0,
    vgpus=(),
    walls=(),
    used_bytes=0,
    recent_shares={},
)
VGPU = VGpuStatistics(
    name="vm",
    kind="domain",
    weight=3,
    quota_bytes=1 << 30,
    gpu_number=0,
    gpu_uuid=UUID,
    region_bytes=1,
    region_free_bytes=1,
    memory_bytes=0,
    used_ns=0,
    held_ns=0,
    share=0,
    nr_grants=0,
    coscheduling=CoschedulingStatistics("off", False, 0, 0),
    totals=Totals(),
    clients=(),
)
SIGHT = Sight("uuid", "vm", True, True, None, "", "running")


def attachment(entitlement: Entitlement) -> Attachment:
    return Attachment("vm", "uuid", "fairgv-vm", 1, entitlement, True, False, 1, "now", RegionOwner(0, 0))


def listed(
    vgpus: list[VGpuStatistics],
    sights: list[Sight],
    banned: frozenset[str] = frozenset(),
    troubles: dict[str, str] | None = None,
    with_all: bool = False,
) -> list[Listed]:
    return list(listing(vgpus, [GPU], sights, banned=banned, troubles=troubles or {}, with_all=with_all))


@pytest.mark.parametrize("state", ["running", "paused", "shut off"])
def test_a_domain_that_is_served(state: str) -> None:
    is_running = state != "shut off"
    [found] = listed([VGPU], [replace(SIGHT, state=state, is_running=is_running, holds_device=is_running)])
    assert (found.name, found.kind, found.state, found.is_served, found.why_not) == ("vm", "domain", state, True, "")
    assert (found.weight, found.quota_bytes, found.gpu_number, found.gpu_name) == (3, 1 << 30, 0, "a device")


def test_a_domain_whose_guest_has_not_got_the_device_yet() -> None:
    [found] = listed([VGPU], [replace(SIGHT, holds_device=False)])
    assert not found.is_served
    assert "from its next start on" in found.why_not


def test_a_domain_whose_region_was_cut_short() -> None:
    [found] = listing([VGPU], [GPU], [SIGHT], banned=frozenset(), troubles={}, with_all=False, cut=frozenset({"vm"}))
    assert not found.is_served
    assert "was cut short" in found.why_not


def test_a_domain_while_libvirt_is_away() -> None:
    [found] = listed([VGPU], [])
    assert (found.state, found.is_served) == ("unknown", True)


def test_a_session_and_its_programs() -> None:
    session = replace(VGPU, kind="session")
    assert [found.state for found in listed([session], [])] == ["idle"]
    assert [found.state for found in listed([replace(session, clients=(CLIENT,))], [])] == ["running"]


def test_one_that_is_banned() -> None:
    [found] = listed([replace(VGPU, kind="session")], [], banned=frozenset({"vm"}))
    assert not found.is_served
    assert "fairgv-host unban vm" in found.why_not


def test_a_domain_whose_definition_cannot_be_served() -> None:
    [found] = listed([], [replace(SIGHT, trouble="two domains have one name")], troubles={"uuid": "something else"})
    assert (found.is_served, found.why_not) == (False, "two domains have one name")
    assert (found.weight, found.gpu_number) == (None, None)


def test_a_domain_that_was_tried_in_vain() -> None:
    sight = replace(SIGHT, attachment=attachment(Entitlement(7)))
    [found] = listed([], [sight], troubles={"uuid": "domain vm is not served: all vGPUs are taken"})
    assert (found.why_not, found.weight) == ("domain vm is not served: all vGPUs are taken", 7)


def test_a_domain_that_nobody_attached() -> None:
    [found] = listed([], [replace(SIGHT, attachment=attachment(Entitlement()))])
    assert 'adopt = "all"' in found.why_not
    assert "fairgv-host detach vm" in found.why_not


def test_domains_without_a_device_are_there_when_all_are_wanted() -> None:
    sights = [replace(SIGHT, name=name, holds_device=False) for name in ("zoo", "abc")]
    assert listed([], sights) == []
    found = listed([VGPU], sights, with_all=True)
    assert [each.name for each in found] == ["abc", "vm", "zoo"], "by name"
    assert found[0].why_not == "it has no vGPU; give it one with: fairgv-host attach abc"


def test_a_session_of_a_domains_name_is_not_the_domain() -> None:
    found = listed([replace(VGPU, kind="session")], [replace(SIGHT, attachment=attachment(Entitlement()))])
    assert sorted((each.kind, each.is_served) for each in found) == [("domain", False), ("session", True)]
