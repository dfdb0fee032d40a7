"""Two virtual machines, one with an echo server, one that computes: by callbacks both get on, and the socket is the machine's. A server that
polls keeps the device, until the watchdog ends it."""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import pytest

from backend_host.cli import host_command
from backend_host.config import PACKAGE_ROOT
from backend_host.vm.accelerator import AcceleratorChoice
from backend_host.vm.guest import Guest
from backend_host.vm.initramfs import GUEST_LIBRARY_PATH, build_image
from backend_host.vm.private_libvirt import PrivateLibvirt
from benchmarks.gloop.build import LOAD, build
from tests.end_to_end.host import PROGRAMS, Host, start_host, stop_host, wait_until
from tests.vm.guest_shell import GuestShell, shell_command

pytestmark = pytest.mark.vm

GUEST_LIBRARY = PACKAGE_ROOT / "build/guest/libcuda.so.1"
REGION = "64M"
SERVES, COMPUTES = "gloop-serves", "gloop-computes"
WATCHDOG_S = 1
PORT = 4000
NR_REQUESTS = 30


@dataclass
class Scene:
    """A daemon, and the shells of its two guests."""

    host: Host
    serves: GuestShell
    computes: GuestShell

    def serve(self, way: str) -> None:
        """Returns when it listens."""
        self.serves.run(begun(f"/programs/echo --way {way} --port {PORT} --connections 1", "listening", "/tmp/echo"))

    def vgpu(self, name: str) -> dict[str, Any]:
        [found] = [each for each in self.host.status()["vgpus"] if each["name"] == name]
        return dict(found)

    def phases(self, name: str) -> list[str]:
        return [client["phase"] for client in self.vgpu(name)["clients"]]


def begun(command: str, word: str, output: str) -> str:
    """A line for a shell: it starts the command, and goes on when that has said this word."""
    return f"{command} >{output} 2>&1 & until grep -q {word} {output}; do /bin/busybox usleep 20000; done"


def report(output: str) -> dict[str, Any]:
    """The last line of a program's."""
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def scene(
    instance: PrivateLibvirt, choice: AcceleratorChoice, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scene]:
    folder = instance.folder / "gloop"
    folder.mkdir()
    folder.chmod(0o755)
    programs = (build("echo"), build(LOAD), PROGRAMS / "steady")
    files = {PurePosixPath("/programs") / program.name: program for program in programs}
    image = build_image(folder, [shell_command()], {**files, GUEST_LIBRARY_PATH: GUEST_LIBRARY})
    state_dir = tmp_path_factory.mktemp("gloop")
    host = start_host(state_dir, libvirt_uri=instance.uri, watchdog_s=WATCHDOG_S)
    with contextlib.ExitStack() as stack:
        stack.callback(stop_host, host)
        guests = [stack.enter_context(Guest(instance, name, image, choice)) for name in (SERVES, COMPUTES)]
        for guest in guests:
            attached = host_command(state_dir, "attach", guest.name, "--region", REGION)
            assert attached.returncode == 0, attached.stderr
            guest.start()
        shells = [GuestShell(guest) for guest in guests]
        for shell in shells:
            shell.await_boot()
        assert shells[0].run("/bin/busybox ifconfig lo 127.0.0.1 up").exit_code == 0
        yield Scene(host, *shells)


def test_a_server_by_callbacks_and_a_program_both_get_on(scene: Scene) -> None:
    scene.computes.run(begun("/programs/steady /tmp/end", "running", "/tmp/steady"))
    scene.serve("gloop")
    before = scene.vgpu(COMPUTES)["used_ns"]
    asked = scene.serves.run(f"/programs/{LOAD} echo --port {PORT} --requests {NR_REQUESTS} --quit")
    assert report(asked.output)["requests"] == NR_REQUESTS, asked.output
    assert scene.vgpu(COMPUTES)["used_ns"] > before
    served = scene.serves.run("wait; cat /tmp/echo")
    assert report(served.output)["served"] == NR_REQUESTS, served.output
    computed = scene.computes.run(": >/tmp/end; wait; cat /tmp/steady")
    assert computed.output.splitlines()[-1] == "PASS", computed.output
    assert [scene.vgpu(name)["nr_timed_out"] for name in (SERVES, COMPUTES)] == [0, 0]


def test_beside_one_that_polls_it_waits_until_the_watchdog_ends_that(scene: Scene) -> None:
    scene.serve("plain")
    wait_until(lambda: scene.phases(SERVES) == ["running"], "its kernel is on the device")
    computed = scene.computes.run("/programs/steady")
    assert computed.output.splitlines()[-1] == "PASS", computed.output
    assert scene.vgpu(SERVES)["nr_timed_out"] == 1
