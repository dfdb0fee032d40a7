"""What is read from definitions and put into them, without libvirt."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend_host.config import MAX_REGION_BYTES
from backend_host.entitlement import MAX_QUOTA_BYTES, MAX_WEIGHT, PLAIN, Entitlement
from backend_host.vm.access import check_locked_memory, denial_remedy
from backend_host.vm.domain_xml import (
    DomainXml,
    PciSlot,
    Settings,
    check_region_size,
    default_owner,
    device_xml,
    free_slot,
    without_empty_metadata,
)
from backend_host.vm.errors import VmError

UUID = "11111111-2222-3333-4444-555555555555"


def definition(
    devices: str = "",
    root: str = "pcie-root",
    arch: str = "x86_64",
    label: str = "",
    more: str = "",
    kind: str = "kvm",
) -> DomainXml:
    return DomainXml(
        f"<domain type='{kind}'><memory unit='GiB'>2</memory>{more}<name>one</name><uuid>{UUID}</uuid>"
        f"<os><type arch='{arch}' machine='pc-q35-7.2'/></os>"
        f"<devices><controller type='pci' index='0' model='{root}'/>{devices}</devices>{label}</domain>"
    )


SIZES = st.none() | st.integers(1, 1 << 60)


@given(st.integers(1, MAX_WEIGHT), st.integers(0, MAX_QUOTA_BYTES), SIZES, SIZES)
def test_settings_survive_the_metadata(
    weight: int, quota_bytes: int, region_bytes: int | None, pinned_bytes: int | None
) -> None:
    settings = Settings(Entitlement(weight, quota_bytes), region_bytes, pinned_bytes)
    assert Settings.from_xml(settings.to_xml(), PLAIN) == settings
    assert Settings.from_xml(settings.to_xml(), Entitlement(7, 1 << 30)) == settings, (
        "what was said is not as configured"
    )


@pytest.mark.parametrize(
    "text",
    [
        "<vgpu weight='x'/>",
        "<vgpu weight='0'/>",
        f"<vgpu weight='{MAX_WEIGHT + 1}'/>",
        "<vgpu weight='1' memory_bytes='-5'/>",
        "<vgpu weight='1' memory_bytes='much'/>",
        "<vgpu weight='1' pinned_bytes='-5'/>",
        "<vgpu weight='1' pinned_bytes='much'/>",
        "<vgpu",
    ],
)
def test_damaged_metadata_is_refused(text: str) -> None:
    with pytest.raises(VmError):
        Settings.from_xml(text, PLAIN)


def test_our_device_is_found_among_others() -> None:
    other = device_xml("mine", 4 << 20)
    assert definition(other).our_device() is None
    both = definition(other + device_xml(f"fairgv-{UUID}", 64 << 20, PciSlot(0, 0x1D)))
    assert f"fairgv-{UUID}" in (both.our_device() or "")
    assert (both.shm_name(), both.region_bytes()) == (f"fairgv-{UUID}", 64 << 20)
    both.check_device()


def test_what_a_person_wrote() -> None:
    """A name of one's own, sizes in any unit, settings or none."""
    device = "<shmem name='fairgv-web'><model type='ivshmem-plain'/><size unit='G'>1</size></shmem>"
    plain = definition(device)
    plain.check_device()
    assert (plain.shm_name(), plain.region_bytes(), plain.settings()) == ("fairgv-web", 1 << 30, Settings())
    vgpu = "<fairgv:vgpu xmlns:fairgv='https://fairgv.dev/xmlns/domain/1' weight='3' memory_bytes='4096'/>"
    assert definition(device, more=f"<metadata>{vgpu}</metadata>").settings() == Settings(Entitlement(3, 4096))


def test_what_is_not_said_is_as_configured() -> None:
    configured = Entitlement(weight=5, quota_bytes=1 << 30)
    assert definition().settings(configured).entitlement == configured
    vgpu = "<fairgv:vgpu xmlns:fairgv='https://fairgv.dev/xmlns/domain/1' weight='3'/>"
    found = definition(more=f"<metadata>{vgpu}</metadata>").settings(configured).entitlement
    assert found == Entitlement(weight=3, quota_bytes=1 << 30)


def test_a_device_with_a_doorbell_has_its_size_in_the_settings() -> None:
    device = device_xml("fairgv-a", 64 << 20, PciSlot(0, 0x1D), Path("/run/a&b.sock"))
    vgpu = "<fairgv:vgpu xmlns:fairgv='https://fairgv.dev/xmlns/domain/1' region_bytes='67108864'/>"
    found = definition(device, more=f"<metadata>{vgpu}</metadata>")
    found.check_device()
    assert (found.region_bytes(), found.server()) == (64 << 20, Path("/run/a&b.sock"))


@pytest.mark.parametrize(
    ("device", "reason"),
    [
        ("<shmem name='fairgv-a'><model type='ivshmem'/><size unit='M'>64</size></shmem>", "make it ivshmem-plain"),
        ("<shmem name='fairgv-a'><model type='ivshmem-doorbell'/></shmem>", "no server"),
        (device_xml("fairgv-a", 64 << 20, server=Path("/run/a.sock")), "how large its region is"),
        ("<shmem name='fairgv-a' role='master'><model type='ivshmem-plain'/><size unit='M'>64</size></shmem>", "role"),
        (device_xml("fairgv-a", 64 << 20) + device_xml("fairgv-b", 64 << 20), "several devices"),
        ("<shmem name='fairgv-a'><model type='ivshmem-plain'/><size unit='M'>48</size></shmem>", "a power of two"),
        ("<shmem name='fairgv-softgpu'><model type='ivshmem-plain'/><size unit='M'>64</size></shmem>", "softgpu"),
    ],
)
def test_devices_that_cannot_be_served(device: str, reason: str) -> None:
    with pytest.raises(VmError, match=reason):
        definition(device).check_device()


@pytest.mark.parametrize("size", [0, 1 << 19, 3 << 20, MAX_REGION_BYTES << 1, 1 << 70])
def test_a_region_is_a_bar(size: int) -> None:
    with pytest.raises(VmError, match="a power of two"):
        check_region_size(size)


def test_slots() -> None:
    assert free_slot(definition()) == PciSlot(0, 0x1D)
    taken = "".join(f"<x><address type='pci' bus='0x00' slot='{slot:#x}'/></x>" for slot in range(5, 0x20))
    elsewhere = "<x><address type='pci' bus='0x01' slot='0x04'/></x>"
    assert free_slot(definition(taken + elsewhere)) == PciSlot(0, 4)
    full = "".join(f"<x><address type='pci' bus='0x00' slot='{slot:#x}'/></x>" for slot in range(1, 0x20))
    with pytest.raises(VmError, match="has no free slot"):
        free_slot(definition(full))


def test_machines() -> None:
    assert definition().has_pci_express_root()
    assert not definition(root="pci-root").has_pci_express_root()
    with pytest.raises(VmError, match="has no PCI bus"):
        DomainXml("<domain><os><type machine='microvm'/></os><devices/></domain>").has_pci_express_root()
    with pytest.raises(VmError, match="is aarch64"):
        definition(arch="aarch64").check_architecture()


def test_owner() -> None:
    capabilities = (
        "<capabilities><host><secmodel><model>none</model></secmodel><secmodel><model>dac</model>"
        "<baselabel type='kvm'>+64055:+64055</baselabel><baselabel type='qemu'>+1:+1</baselabel></secmodel></host>"
        "</capabilities>"
    )
    assert default_owner(capabilities, "kvm") == "+64055:+64055"
    assert default_owner("<capabilities><host/></capabilities>", "kvm") is None
    own = "<seclabel type='static' model='dac'><label>me:us</label></seclabel>"
    assert definition(label=own).static_owner() == "me:us"
    assert definition().static_owner() is None


def test_only_an_empty_metadata_element_goes() -> None:
    assert without_empty_metadata("<a>\n  <metadata/>\n  <b/>\n</a>") == "<a>\n  <b/>\n</a>"
    kept = "<a>\n  <metadata>\n    <x/>\n  </metadata>\n</a>"
    assert without_empty_metadata(kept) == kept


def port(index: int) -> str:
    return f"<controller type='pci' index='{index}' model='pcie-root-port'/>"


def test_free_root_ports_and_their_windows() -> None:
    assert definition().root_ports() == []
    used = "<disk><address type='pci' domain='0x0000' bus='0x01' slot='0x00' function='0x0'/></disk>"
    assert definition(port(1) + port(2) + used).root_ports() == [(2, 0)]
    qemu = "xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'"
    one = (
        f"<qemu:override {qemu}><qemu:device alias='pci.2'><qemu:frontend><qemu:property name='pref64-reserve' type='unsigned' "
        "value='268435456'/></qemu:frontend></qemu:device></qemu:override>"
    )
    assert definition(port(1) + port(2), more=one).root_ports() == [(1, 0), (2, 256 << 20)]
    every = f"<qemu:commandline {qemu}><qemu:arg value='-global'/><qemu:arg value='pcie-root-port.pref64-reserve=1G'/></qemu:commandline>"
    assert definition(port(1) + port(2), more=every).root_ports() == [(1, 1 << 30), (2, 1 << 30)]


def test_addresses_of_machine_type_pc() -> None:
    assert definition(root="pci-root").hole64_bytes() == 2 << 30
    hole = "<controller type='pci' index='0' model='pci-root'><pcihole64 unit='KiB'>8388608</pcihole64></controller>"
    text = f"<domain><devices>{hole}</devices></domain>"
    assert DomainXml(text).hole64_bytes() == 8 << 30


def with_arguments(*arguments: str) -> DomainXml:
    texts = "".join(f"<qemu:arg value='{argument}'/>" for argument in arguments)
    return DomainXml(
        "<domain xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>"
        f"<qemu:commandline>{texts}</qemu:commandline></domain>"
    )


CHARDEV = "socket,id=a,path=/run/fairgv-memory/web.sock,server=on,wait=off"


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        ((), None),
        (("-chardev", CHARDEV), None),
        (
            ("-chardev", CHARDEV, "-device", "fairgv-memory,chardev=a,window=4G,addr=0x1e"),
            "/run/fairgv-memory/web.sock",
        ),
        (("-device", "fairgv-memory,chardev=a", "-chardev", CHARDEV), "/run/fairgv-memory/web.sock"),
        (("-device", "virtio-rng,chardev=a", "-chardev", CHARDEV), None),
        (("-device", "fairgv-memory,chardev=b", "-chardev", CHARDEV), None),
        (("-device", "fairgv-memory", "-chardev", "socket,path=/x,server=on"), None),
        (("-device", "fairgv-memory,chardev=a", "-chardev", CHARDEV.replace("server=on", "server=off")), None),
        (("-device", "fairgv-memory,chardev=a", "-chardev", CHARDEV.replace("socket", "file")), None),
        (("-device", "fairgv-memory,chardev=a", "-chardev", "socket,id=a,server=on"), None),
        (("-device", "fairgv-memory,chardev=a", "-chardev", "socket,id=a,path=/a,,b,server,nowait"), "/a,b"),
        (("-device", "fairgv-memory,chardev=a", "-chardev"), None),
    ],
)
def test_where_the_memory_device_listens(arguments: tuple[str, ...], path: str | None) -> None:
    assert with_arguments(*arguments).memory_socket() == (None if path is None else Path(path))


@pytest.mark.parametrize(
    ("more", "region_bytes", "is_refused"),
    [
        ("", 64 << 30, False),
        ("<memoryBacking><locked/></memoryBacking>", 1 << 30, False),
        ("<memoryBacking><locked/></memoryBacking>", 2 << 30, True),
        (
            "<memoryBacking><locked/></memoryBacking><memtune><hard_limit unit='GiB'>4</hard_limit></memtune>",
            2 << 30,
            False,
        ),
        (
            "<memoryBacking><locked/></memoryBacking><memtune><hard_limit unit='GiB'>2</hard_limit></memtune>",
            1 << 20,
            True,
        ),
    ],
)
def test_locked_memory(more: str, region_bytes: int, is_refused: bool) -> None:
    with pytest.raises(VmError, match=r"hard_limit") if is_refused else contextlib.nullcontext():
        check_locked_memory(definition(more=more), region_bytes)


@pytest.mark.parametrize(
    ("kind", "vcpus", "is_refused"),
    [
        ("qemu", "", True),
        ("qemu", "<vcpu placement='static'>1</vcpu>", True),
        ("qemu", "<vcpu placement='static' current='1'>2</vcpu>", False),
        ("kvm", "", False),
    ],
)
def test_emulated_atomics(kind: str, vcpus: str, is_refused: bool) -> None:
    with pytest.raises(VmError, match=r"<vcpu current='1'>2</vcpu>") if is_refused else contextlib.nullcontext():
        definition(kind=kind, more=vcpus).check_atomics()
    bell = device_xml(f"fairgv-{UUID}", 64 << 20, server=Path("/run/fairgv/bell"))
    sized = (
        "<metadata><fairgv:vgpu xmlns:fairgv='https://fairgv.dev/xmlns/domain/1' region_bytes='67108864'/></metadata>"
    )
    with pytest.raises(VmError, match=r"<vcpu current='1'>2</vcpu>") if is_refused else contextlib.nullcontext():
        definition(bell, kind=kind, more=vcpus + sized).check_device()


def test_labels() -> None:
    own = (
        "<seclabel type='dynamic' model='selinux'><label>system_u:system_r:svirt_t:s0:c1,c2</label>"
        "<imagelabel>system_u:object_r:svirt_image_t:s0:c1,c2</imagelabel></seclabel>"
    )
    assert definition(label=own).label("selinux") == "system_u:object_r:svirt_image_t:s0:c1,c2"
    assert definition(label=own).label("apparmor") is None
    assert "ausearch" in denial_remedy(definition(label=own))
    profile = "<seclabel type='dynamic' model='apparmor'><label>libvirt-1</label></seclabel>"
    assert "/dev/shm/fairgv-*" in denial_remedy(definition(label=profile))
    assert denial_remedy(definition()) == ""


def test_scheduling_of_its_own() -> None:
    assert not definition().has_fixed_vcpu_scheduling()
    own = "<cputune><vcpusched vcpus='0' scheduler='fifo' priority='1'/></cputune>"
    assert definition(more=own).has_fixed_vcpu_scheduling()
