"""The libvirtd of the demo and of the tests: nothing of its guests stays behind."""

import subprocess
import sys
from pathlib import Path

import pytest

from backend_host.config import PACKAGE_ROOT
from backend_host.vm.accelerator import AcceleratorChoice
from backend_host.vm.guest import Guest
from backend_host.vm.initramfs import build_image
from backend_host.vm.private_libvirt import PrivateLibvirt
from backend_host.vm.region_file import prepare_region_file, region_name
from tests.children import running
from tests.end_to_end.host import wait_until
from tests.vm.guest_shell import shell_command

pytestmark = pytest.mark.vm

OWNER = """
import sys
from backend_host.vm.accelerator import choose_accelerator
from backend_host.vm.guest import Guest
from backend_host.vm.initramfs import build_image
from backend_host.vm.private_libvirt import PrivateLibvirt
from tests.vm.guest_shell import shell_command
with PrivateLibvirt() as instance:
    folder = instance.folder / "left"
    folder.mkdir(mode=0o755)
    instance.hand_over(folder)
    image = build_image(folder, [shell_command()], {})
    with Guest(instance, "left", image, choose_accelerator()) as guest:
        guest.start()
        print(instance.folder, flush=True)
        sys.stdin.read()
"""


def processes_of(folder: str) -> list[str]:
    """Command lines that name it."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if folder in line:
            found.append(line)
    return found


def test_one_whose_owner_is_killed_goes_with_its_machines() -> None:
    command = [sys.executable, "-c", OWNER]
    with running(command, cwd=PACKAGE_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        folder = owner.stdout.readline().strip()
        there = " ".join(processes_of(folder))
        assert "libvirtd" in there
        assert "qemu" in there
        owner.kill()
    wait_until(lambda: not processes_of(folder), "all processes ended")
    assert not Path(folder).exists()


def test_a_region_that_is_made_anew_behind_a_guest_goes_too(tmp_path: Path, choice: AcceleratorChoice) -> None:
    """By a daemon that looked at the domain just before it was undefined, and was ended before it looked again."""
    image = build_image(tmp_path, [shell_command()], {})
    with PrivateLibvirt() as instance:
        with Guest(instance, "gone", image, choice) as guest:
            name = region_name(guest.uuid)
        late = prepare_region_file(name, 1 << 20)
        assert late.exists()
    assert not late.exists()
