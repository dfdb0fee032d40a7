"""The libvirtd of the demo and of the tests: nothing of its guests stays behind."""

from pathlib import Path

import pytest

from backend_host.vm.accelerator import AcceleratorChoice
from backend_host.vm.guest import Guest
from backend_host.vm.initramfs import build_image
from backend_host.vm.private_libvirt import PrivateLibvirt
from backend_host.vm.region_file import prepare_region_file, region_name
from tests.vm.guest_shell import shell_command

pytestmark = pytest.mark.vm


def test_a_region_that_is_made_anew_behind_a_guest_goes_too(tmp_path: Path, choice: AcceleratorChoice) -> None:
    """By a daemon that looked at the domain just before it was undefined, and was ended before it looked again."""
    image = build_image(tmp_path, [shell_command()], {})
    with PrivateLibvirt() as instance:
        with Guest(instance, "gone", image, choice) as guest:
            name = region_name(guest.uuid)
        late = prepare_region_file(name, 1 << 20)
        assert late.exists()
    assert not late.exists()
