"""Where the device goes, and what is said before libvirt is asked when a running guest has no room for it.

That it works where it is said to work, real guests show (test_domains.py).
"""

import re

import pytest

from backend_host.vm.domain_xml import DomainXml, PciSlot
from backend_host.vm.plug import lasting_slot, plug

pytestmark = pytest.mark.vm

REGION_BYTES = 256 << 20
Q35 = "<controller type='pci' index='0' model='pcie-root'/>"
PC = "<controller type='pci' index='0' model='pci-root'/>"
PORT = "<controller type='pci' index='1' model='pcie-root-port'/>"
NAMESPACES = "xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'"


def text(devices: str, reserve: str = "") -> str:
    argument = f"<qemu:arg value='pcie-root-port.pref64-reserve={reserve}'/>" if reserve else ""
    return (
        f"<domain type='kvm' {NAMESPACES}><name>one</name><os><type arch='x86_64' machine='some-machine'/></os>"
        f"<devices>{devices}</devices><qemu:commandline>{argument}</qemu:commandline></domain>"
    )


class RunningDomain:
    """A domain of this definition that takes whatever it is given."""

    def __init__(self, definition: str) -> None:
        self._definition = definition
        self.plugged: list[str] = []

    def name(self) -> str:
        return "one"

    def XMLDesc(self) -> str:  # noqa: N802  (libvirt's name)
        return self._definition

    def attachDeviceFlags(self, device: str, _flags: int) -> None:  # noqa: N802
        self.plugged.append(device)


@pytest.mark.parametrize(
    ("definition", "region_bytes", "said"),
    [
        (text(Q35), REGION_BYTES, "at a free pcie-root-port only, and it has none: shut it down"),
        (text(Q35 + PORT), REGION_BYTES, "has 256 MiB in reserve, and its free port reserves none: .*pref64-reserve"),
        (text(Q35 + PORT, "64M"), REGION_BYTES, "has 256 MiB in reserve, and its free port reserves 64 MiB"),
        (text(PC), 4 << 30, "has 2 GiB of addresses for devices, and the region needs 4 GiB: .*smaller --region"),
    ],
    ids=["no port", "no reserve", "small reserve", "no addresses"],
)
def test_no_room(definition: str, region_bytes: int, said: str) -> None:
    domain = RunningDomain(definition)
    explanation = plug(domain, "fairgv-a", region_bytes)
    assert explanation.startswith("attached; it takes effect at the next start of one, because")
    assert re.search(said, explanation), explanation
    assert domain.plugged == []


@pytest.mark.parametrize(
    ("definition", "region_bytes", "address"),
    [(text(Q35 + PORT, "1G"), REGION_BYTES, "bus='1' slot='0x0'"), (text(PC), 2 << 30, None)],
    ids=["q35", "pc"],
)
def test_room(definition: str, region_bytes: int, address: str | None) -> None:
    domain = RunningDomain(definition)
    assert plug(domain, "fairgv-a", region_bytes) == ""
    [device] = domain.plugged
    assert address in device if address else "<address" not in device


def test_a_definition_prefers_a_port_from_which_it_can_be_taken_out() -> None:
    assert lasting_slot(DomainXml(text(Q35 + PORT, "1G")), REGION_BYTES) == PciSlot(1, 0)
    assert lasting_slot(DomainXml(text(Q35 + PORT, "64M")), REGION_BYTES) == PciSlot(0, 0x1D)
    assert lasting_slot(DomainXml(text(PC)), REGION_BYTES) is None
