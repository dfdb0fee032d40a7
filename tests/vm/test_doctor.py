"""What `doctor` reads from a libvirtd: its version, and the regions of the domains that are defined."""

import pytest

from backend_host.doctor.domains import libvirt, read_libvirt
from backend_host.vm.connection import connected
from backend_host.vm.private_libvirt import PrivateLibvirt

pytestmark = pytest.mark.vm

DEVICES = {
    "with": "<shmem name='fairgv-doctor'><model type='ivshmem-plain'/><size unit='M'>16</size></shmem>",
    "without": "<shmem name='others'><model type='ivshmem-plain'/><size unit='M'>4</size></shmem>",
}


def definition(name: str) -> str:
    machine = "<os><type arch='x86_64' machine='q35'>hvm</type></os>"
    return (
        f"<domain type='qemu'><name>doctor-{name}</name><memory unit='MiB'>64</memory>{machine}"
        f"<devices>{DEVICES[name]}</devices></domain>"
    )


def test_regions_of_defined_domains(instance: PrivateLibvirt) -> None:
    before = read_libvirt(instance.uri)
    assert before.trouble == ""
    with connected(instance.uri) as connection:
        domains = [connection.defineXML(definition(name)) for name in DEVICES]
        try:
            reading = read_libvirt(instance.uri)
        finally:
            for domain in domains:
                domain.undefine()
        version = connection.getLibVersion()
    assert reading.nr_domains == before.nr_domains + 2
    assert reading.regions == {**(before.regions or {}), "fairgv-doctor": 16 << 20}
    assert reading.version == version
    assert reading.qemu is not None
    assert reading.qemu.uid == instance.folder.stat().st_uid
    assert f"libvirt {version // 1_000_000}." in libvirt(reading).text
