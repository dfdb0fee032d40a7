"""The device fairgv-memory through the guest's kernel module, as an ordinary user: what it gives, what it refuses, what goes away under a
program.

The guests are those of test_memory_device.py, behind its tests.
"""

import errno
import mmap

import pytest

from tests.end_to_end.host import wait_until
from tests.qemu.machine import WINDOW_BYTES
from tests.qemu.peer import HELLO, RESET, WANT, Peer
from tests.qemu.scene import Scene
from tests.vm.guest_package import MODULE, USER, is_well, prepare
from tests.vm.guest_shell import Answer

pytestmark = pytest.mark.qemu

MIB = 1 << 20
NODE = "/dev/fairgv-memory0"
DRIVER = "/sys/bus/pci/drivers/fairgv-memory"
PCI = "$(dirname $(grep -l 0x10f0 /sys/bus/pci/devices/*/device))"


def user(*steps: str) -> str:
    return f"su {USER} -c '/programs/memory_module {' '.join(steps)}'"


def run(scene: Scene, *steps: str) -> Answer:
    return scene.shell.run(user(*steps))


def begin(scene: Scene, *steps: str) -> None:
    """Starts the program, to be ended by `scene.finish`."""
    scene.shell.run(f": >/tmp/output; chmod 666 /tmp/output; {user(*steps)} >/tmp/output 2>&1 &")


def begin_to_hold(scene: Scene) -> None:
    begin(scene, "hold")
    scene.shell.run("until grep -q holding /tmp/output; do usleep 20000; done")


def replug(scene: Scene) -> None:
    scene.replug()
    open_to_group(scene)


def open_to_group(scene: Scene) -> None:
    wait_until(lambda: scene.shell.run(f"chgrp fairgv {NODE} 2>/dev/null").exit_code == 0, "the module has the device")


def unbind(scene: Scene) -> None:
    assert scene.shell.run(f"name=$(basename {PCI}); echo $name >{DRIVER}/unbind").exit_code == 0


def bind(scene: Scene) -> None:
    """The device that was unbound last."""
    assert scene.shell.run(f"echo $name >{DRIVER}/bind").exit_code == 0
    open_to_group(scene)


def words_wrong(memory: mmap.mmap) -> int:
    return sum(int.from_bytes(memory[each : each + 4], "little") != each // 4 for each in range(0, len(memory), 4))


@pytest.fixture(scope="module", autouse=True)
def loaded(scene: Scene) -> None:
    """The module, and a device that remembers nothing."""
    answer = scene.shell.run(f"{prepare()}; insmod {MODULE}")
    assert answer.exit_code == 0, answer.output
    replug(scene)


def test_an_ordinary_user_grows_it(scene: Scene, peer: Peer) -> None:
    begin(scene, f"info grow {2 * MIB} fill grow {2 * MIB} grow 0 check grow {3 * MIB} info")
    first = peer.give(peer.expect(WANT))
    want = peer.expect(WANT)
    assert (want.offset, want.nr_bytes) == (2 * MIB, MIB)
    assert words_wrong(first) == 0
    peer.give(want, 2 * MIB)
    assert scene.finish().splitlines() == [
        f"window {WINDOW_BYTES} mapped 0",
        f"grow: 0 mapped {2 * MIB}",
        f"{MIB // 2} words",
        f"grow: 0 mapped {2 * MIB}",
        f"grow: 0 mapped {2 * MIB}",
        f"{MIB // 2} words, 0 wrong",
        f"grow: 0 mapped {4 * MIB}",
        f"window {WINDOW_BYTES} mapped {4 * MIB}",
    ]
    interrupts = scene.shell.run("grep fairgv-memory0 /proc/interrupts").output
    assert int(interrupts.split()[1]) >= 2, interrupts


def test_what_it_must_not_give(scene: Scene, peer: Peer) -> None:
    answer = run(scene, "attack")
    assert (answer.exit_code, answer.output) == (0, "PASS")
    scene.shell.run(f"chgrp 0 {NODE}")
    assert run(scene, "info").output == f"not open: {errno.EACCES}"
    open_to_group(scene)


def test_what_the_host_refuses(scene: Scene, peer: Peer) -> None:
    begin(scene, f"grow {5 * MIB} grow {6 * MIB}")
    peer.refuse(peer.expect(WANT))
    peer.give(peer.expect(WANT))
    assert scene.finish().splitlines() == [f"grow: {errno.ENOMEM} mapped {4 * MIB}", f"grow: 0 mapped {6 * MIB}"]
    peer.socket.close()
    wait_until(lambda: run(scene, f"grow {7 * MIB}").output.startswith(f"grow: {errno.ENOTCONN} "), "nobody is there")


def test_one_asks_at_a_time(scene: Scene, peer: Peer) -> None:
    scene.shell.run(f"{user(f'grow {8 * MIB}')} >/tmp/other 2>&1 & other=$!")
    first = peer.expect(WANT)
    begin(scene, f"grow {9 * MIB}")
    peer.give(first)
    second = peer.expect(WANT)
    assert (second.offset, second.nr_bytes) == (8 * MIB, MIB)
    peer.give(second)
    assert scene.finish() == f"grow: 0 mapped {9 * MIB}"
    assert scene.shell.run("wait $other; cat /tmp/other").output.startswith("grow: 0 ")


def test_a_signal_ends_the_wait_and_not_the_question(scene: Scene, peer: Peer) -> None:
    assert run(scene, f"interrupt {10 * MIB}").output == f"interrupt: {errno.EINTR} mapped {9 * MIB}"
    want = peer.expect(WANT)
    begin(scene, f"grow {10 * MIB} grow {11 * MIB}")
    peer.give(want)
    want = peer.expect(WANT)
    assert (want.offset, want.nr_bytes) == (10 * MIB, MIB)
    peer.give(want)
    assert scene.finish().splitlines() == [f"grow: 0 mapped {size * MIB}" for size in (10, 11)]


def test_a_driver_that_is_unbound_under_a_program(scene: Scene) -> None:
    begin_to_hold(scene)
    unbind(scene)
    assert scene.finish().splitlines()[1:] == [f"gone, info: {errno.ENODEV} mapped 0 no"]
    assert scene.shell.run(f"ls {NODE}").exit_code != 0
    bind(scene)
    assert run(scene, "info").output == f"window {WINDOW_BYTES} mapped {11 * MIB}"


def test_a_device_without_interrupt(scene: Scene, peer: Peer) -> None:
    bus = f"$(dirname $(readlink -f {PCI}))/msi_bus"
    unbind(scene)
    scene.shell.run(f"echo 0 >{bus}")
    bind(scene)
    assert not scene.shell.run("grep fairgv-memory0 /proc/interrupts").output
    begin(scene, f"grow {12 * MIB}")
    peer.give(peer.expect(WANT))
    assert scene.finish() == f"grow: 0 mapped {12 * MIB}"
    scene.shell.run(f"echo 1 >{bus}")


def test_a_device_that_is_reset_under_a_program(scene: Scene, peer: Peer) -> None:
    begin_to_hold(scene)
    assert scene.shell.run(f"device={PCI}; echo 1 >$device/reset").exit_code == 0
    peer.expect(RESET)
    assert scene.finish().splitlines()[1:] == ["gone, info: 0 mapped 0 no"]
    begin(scene, f"grow {2 * MIB} fill check")
    peer.give(peer.expect(WANT))
    assert scene.finish().endswith(" 0 wrong")


def test_a_device_that_is_unplugged_under_programs(scene: Scene) -> None:
    with Peer(scene.machine.peer_path) as peer:
        assert peer.expect(HELLO).offset == 2 * MIB
        scene.shell.run(f"{user(f'grow {3 * MIB}')} >/tmp/other 2>&1 & other=$!")
        peer.expect(WANT)
        begin_to_hold(scene)
        replug(scene)
        assert scene.finish().splitlines()[1:] == [f"gone, info: {errno.ENODEV} mapped 0 no"]
        assert scene.shell.run("wait $other; cat /tmp/other").output == f"grow: {errno.ENODEV} mapped 0"
    wait_until(lambda: scene.machine.nr_pieces_held() == 0, "QEMU has let go of all pieces")


def test_a_peer_that_breaks_the_protocol(scene: Scene, peer: Peer) -> None:
    begin(scene, f"grow {MIB} grow {MIB}")
    peer.expect(WANT)
    peer.send(b"\xff" * 100)
    assert scene.finish().splitlines() == [f"grow: {errno.EIO} mapped 0"] * 2
    assert scene.machine.is_running()


def test_the_module_has_done_no_wrong_and_can_go(scene: Scene) -> None:
    said = scene.shell.run("dmesg").output
    assert is_well(said), said
    answer = scene.shell.run(f"rmmod fairgv; ls {NODE}")
    assert answer.exit_code != 0
    assert scene.status()["mapped"] == 0, "root has it from sysfs"
