"""A daemon that was there before libvirtd."""

from pathlib import Path

import pytest

from backend_host.vm.connection import load_libvirt
from backend_host.vm.private_libvirt import PrivateLibvirt
from backend_host.vm.region_file import region_path
from tests.end_to_end.host import start_host, stop_host, wait_until

pytestmark = pytest.mark.vm

LATE = """<domain type='qemu'><name>late</name><memory unit='MiB'>64</memory><os><type arch='x86_64' machine='q35'>hvm</type></os>
<devices><shmem name='fairgv-late'><model type='ivshmem-plain'/><size unit='M'>16</size></shmem></devices></domain>"""


def test_a_libvirtd_that_comes_late(instance: PrivateLibvirt, tmp_path: Path) -> None:
    """The daemon waits for it, and says so; nobody has to tell it."""
    socket = tmp_path / "libvirt-sock"
    host = start_host(tmp_path, libvirt_uri=f"qemu+unix:///session?socket={socket}", adopt="all")
    try:
        assert "no domains are served: no libvirtd answers" in host.log()
        domain = load_libvirt().open(instance.uri).defineXML(LATE)
        try:
            socket.symlink_to(instance.folder / "run/libvirt/libvirt-sock")
            wait_until(lambda: [vgpu["name"] for vgpu in host.status()["vgpus"]] == ["late"], "the domain is served")
            assert host.status()["vgpus"][0]["region_bytes"] == 16 << 20
        finally:
            domain.undefine()
        wait_until(lambda: host.status()["vgpus"] == [], "it is gone")
        wait_until(lambda: not region_path("fairgv-late").exists(), "its region is gone")
    finally:
        stop_host(host)
