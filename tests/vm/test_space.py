"""Two virtual machines, one critical and one of best effort: in a space a kernel of the one ends while an endless one of the other goes on, and
without a space it does not."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pytest

from backend_host.cli import host_command
from backend_host.config import PACKAGE_ROOT
from backend_host.vm.accelerator import AcceleratorChoice
from backend_host.vm.guest import Guest
from backend_host.vm.initramfs import GUEST_LIBRARY_PATH, GuestImage, build_image
from backend_host.vm.private_libvirt import PrivateLibvirt
from tests.end_to_end.host import PROGRAMS, Host, start_host, stop_host, wait_until
from tests.vm.guest_shell import GuestShell, shell_command

pytestmark = pytest.mark.vm

GUEST_LIBRARY = PACKAGE_ROOT / "build/guest/libcuda.so.1"
REGION = "64M"
FAST, SLOW = "space-fast", "space-slow"
WITH_SPACE = {
    FAST: ("--class", "critical", "--qos", "2", "--space", "web"),
    SLOW: ("--class", "best-effort", "--space", "web"),
}
WITHOUT_SPACE: dict[str, tuple[str, ...]] = {FAST: (), SLOW: ()}
ENDLESS = "rm -f /tmp/end; /programs/spin 1 /tmp/end >/tmp/spin 2>&1 & until grep -q running /tmp/spin; do /bin/busybox usleep 20000; done"
"""A kernel that ends when a file is there."""


@dataclass
class Scene:
    """A daemon, and the shells of its two guests."""

    host: Host
    fast: GuestShell
    slow: GuestShell

    def is_at_work(self) -> bool:
        """The endless kernel has not ended."""
        return self.slow.run("grep -q synchronize /tmp/spin").exit_code != 0

    def end_it(self) -> None:
        answer = self.slow.run(": >/tmp/end; wait; cat /tmp/spin")
        assert answer.output.splitlines()[-1] == "PASS", answer.output

    def phase(self, name: str) -> str:
        [vgpu] = [each for each in self.host.status()["vgpus"] if each["name"] == name]
        return " ".join(client["phase"] for client in vgpu["clients"])


@pytest.fixture(scope="module")
def image(instance: PrivateLibvirt) -> GuestImage:
    folder = instance.folder / "space"
    folder.mkdir()
    folder.chmod(0o755)
    files = {PurePosixPath("/programs") / name: PROGRAMS / name for name in ("vector_add", "spin")}
    return build_image(folder, [shell_command()], {**files, GUEST_LIBRARY_PATH: GUEST_LIBRARY})


@pytest.fixture
def scene(
    request: pytest.FixtureRequest,
    instance: PrivateLibvirt,
    image: GuestImage,
    choice: AcceleratorChoice,
    tmp_path: Path,
) -> Iterator[Scene]:
    options: dict[str, tuple[str, ...]] = request.param
    host = start_host(tmp_path, libvirt_uri=instance.uri, space="mps", watchdog_s=0)
    with contextlib.ExitStack() as stack:
        stack.callback(stop_host, host)
        guests = [stack.enter_context(Guest(instance, name, image, choice)) for name in (FAST, SLOW)]
        for guest in guests:
            attached = host_command(tmp_path, "attach", guest.name, "--region", REGION, *options[guest.name])
            assert attached.returncode == 0, attached.stderr
            guest.start()
        shells = [GuestShell(guest) for guest in guests]
        for shell in shells:
            shell.await_boot()
        yield Scene(host, *shells)


@pytest.mark.parametrize("scene", [WITH_SPACE], indirect=True, ids=["a space"])
def test_in_a_space_a_critical_kernel_ends_beside_an_endless_one(scene: Scene) -> None:
    scene.slow.run(ENDLESS)
    for _ in range(3):
        answer = scene.fast.run("/programs/vector_add")
        assert (answer.exit_code, answer.output.splitlines()[-1]) == (0, "PASS"), answer.output
    assert scene.is_at_work()
    scene.end_it()


@pytest.mark.parametrize("scene", [WITHOUT_SPACE], indirect=True, ids=["turns"])
def test_without_a_space_it_waits_for_that_to_end(scene: Scene) -> None:
    scene.slow.run(ENDLESS)
    scene.fast.run("/programs/vector_add >/tmp/out 2>&1 &")
    for _ in range(3):
        wait_until(lambda: scene.phase(FAST) == "waiting", "it waits for its turn")
        assert "PASS" not in scene.fast.run("cat /tmp/out").output
    assert scene.is_at_work()
    scene.end_it()
    answer = scene.fast.run("wait; cat /tmp/out")
    assert answer.output.splitlines()[-1] == "PASS", answer.output
