"""The label under which a QEMU that SELinux confines may open a region. A kernel without SELinux keeps labels too, for whoever is root."""

import os
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend_host.vm import access
from backend_host.vm.access import label_region
from backend_host.vm.errors import VmError
from backend_host.vm.region_file import prepare_region_file, region_name, remove_region_file

pytestmark = pytest.mark.vm

ATTRIBUTE = "security.selinux"
OF_THE_DOMAIN = "system_u:object_r:svirt_image_t:s0:c12,c34"


@pytest.fixture
def region() -> Iterator[Path]:
    name = region_name(str(uuid.uuid4()))
    yield prepare_region_file(name, 1 << 20)
    remove_region_file(name)


@pytest.fixture
def selinux(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As a host that has it looks from here."""
    state = tmp_path / "enforce"
    state.write_text("1")
    monkeypatch.setattr(access, "SELINUX_STATE", state)


def can_label() -> bool:
    """Root with all its rights can, where there is no SELinux that would judge."""
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as probe:
        try:
            os.setxattr(probe.name, ATTRIBUTE, b"label\0")
        except OSError:
            return False
    return True


@pytest.mark.usefixtures("selinux")
@pytest.mark.skipif(not can_label(), reason="files cannot be labelled here")
def test_the_label_follows_the_domain(region: Path) -> None:
    """That of images while the domain is off, its own once it runs."""
    label_region(region, None)
    assert os.getxattr(region, ATTRIBUTE) == b"system_u:object_r:svirt_image_t:s0\0"
    label_region(region, OF_THE_DOMAIN)
    assert os.getxattr(region, ATTRIBUTE) == OF_THE_DOMAIN.encode() + b"\0"


@pytest.mark.usefixtures("selinux")
def test_a_label_that_cannot_be_given_is_said(region: Path) -> None:
    region.unlink()
    with pytest.raises(
        VmError,
        match=r"cannot be given the SELinux label system_u:object_r:svirt_image_t:s0 .*: run fairgv-host as root",
    ):
        label_region(region, None)


def test_without_selinux_nothing_is_labelled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, region: Path) -> None:
    monkeypatch.setattr(access, "SELINUX_STATE", tmp_path / "enforce")
    before = os.listxattr(region)
    label_region(region, OF_THE_DOMAIN)
    assert os.listxattr(region) == before
