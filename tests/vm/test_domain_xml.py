"""What is read from definitions and put into them, without libvirt."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend_host.vm.domain_xml import (
    DomainXml,
    Settings,
    default_owner,
    device_xml,
    free_slot,
    without_empty_metadata,
)
from backend_host.vm.errors import VmError

UUID = "11111111-2222-3333-4444-555555555555"


def definition(devices: str = "", root: str = "pcie-root", arch: str = "x86_64", label: str = "") -> DomainXml:
    return DomainXml(
        f"<domain type='kvm'><name>one</name><uuid>{UUID}</uuid><os><type arch='{arch}' machine='pc-q35-7.2'/></os>"
        f"<devices><controller type='pci' index='0' model='{root}'/>{devices}</devices>{label}</domain>"
    )


@given(st.integers(1, 10_000), st.none() | st.integers(1, 1 << 60), st.integers(20, 40))
def test_settings_survive_the_metadata(weight: int, memory_bytes: int | None, exponent: int) -> None:
    settings = Settings(weight, memory_bytes, 1 << exponent)
    assert Settings.from_xml(settings.to_xml()) == settings


@pytest.mark.parametrize(
    "text",
    [
        "<vgpu/>",
        "<vgpu weight='x' region_bytes='1048576'/>",
        "<vgpu weight='0' region_bytes='1048576'/>",
        "<vgpu weight='1' region_bytes='3000000'/>",
        "<vgpu weight='1' memory_bytes='-5' region_bytes='1048576'/>",
        "<vgpu",
    ],
)
def test_damaged_metadata_is_refused(text: str) -> None:
    with pytest.raises(VmError):
        Settings.from_xml(text)


def test_our_device_is_found_among_others() -> None:
    other = device_xml("mine", 4 << 20)
    assert definition(other).our_device() is None
    both = definition(other + device_xml(f"fairgv-{UUID}", 64 << 20, 0x1D))
    assert f"fairgv-{UUID}" in (both.our_device() or "")
    assert both.region_bytes() == 64 << 20


def test_slots() -> None:
    assert free_slot(definition()) == 0x1D
    taken = "".join(f"<x><address type='pci' bus='0x00' slot='{slot:#x}'/></x>" for slot in range(5, 0x20))
    elsewhere = "<x><address type='pci' bus='0x01' slot='0x04'/></x>"
    assert free_slot(definition(taken + elsewhere)) == 4
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
