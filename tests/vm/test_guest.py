"""What can happen to a guest under the whole house: a real domain, a real daemon on softgpu, programs that compute.

Whatever it is, the program gets a CUDA error, the host says why, nobody hangs, nothing is left, and the next program works. One guest
serves all tests; each asks for the state it needs and starts the guest only when it is not in it.
"""

import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from backend_host.cli import host_command
from backend_host.config import PACKAGE_ROOT
from backend_host.vm.accelerator import AcceleratorChoice
from backend_host.vm.guest import Guest, follow_guests
from backend_host.vm.initramfs import GUEST_LIBRARY_PATH, build_image
from backend_host.vm.private_libvirt import PrivateLibvirt
from backend_host.vm.region_file import region_name, region_path
from tests.conformance.build import RUNTIME, build_all
from tests.end_to_end.host import PROGRAMS, Host, start_host, stop_host, wait_until
from tests.vm.guest_shell import BOOT_LIMIT_S, Answer, GuestShell, shell_command

pytestmark = pytest.mark.vm

GUEST_LIBRARY = PACKAGE_ROOT / "build/guest/libcuda.so.1"
IN_THE_GUEST = ("vector_add", "spin", "device_query", "bandwidth")
NAME = "test-guest"
WEIGHT, MEMORY_BYTES, REGION_BYTES = 3, 24 << 20, 64 << 20
ATTACH = ("attach", NAME, "--weight", str(WEIGHT), "--memory", "24M", "--region", "64M")
MANAGED = ("in_turn", "copies", "arguments", "host_function", "graph", "threads", "system_calls")
HOSTED = ("from_each_state", "there_and_back", "copies", "small", "words", "graph", "system_calls")
"""What is to stay with the CPU."""
LONG_MS = 60_000
KERNEL_MS = 5_000
"""From when it may end. A guest is paused well before that, on a busy machine too."""
PAUSE_S = 8
MAY_END = "/tmp/may-end"
WAITING = "until grep -q running /tmp/spin; do /bin/busybox usleep 20000; done"


@dataclass
class House:
    """A daemon, and a guest defined in the tests' libvirt, with its shell."""

    host: Host
    uri: str
    guest: Guest
    shell: GuestShell
    free_bytes: int = 0
    """Free memory of the region while nobody uses it."""

    def command(self, *arguments: str) -> str:
        """One `fairgv-host` command that must succeed; what it says."""
        answer = host_command(self.host.state_dir, *arguments)
        assert answer.returncode == 0, answer.stderr
        return answer.stdout.strip()

    def vgpu(self) -> dict[str, Any]:
        """The guest's vGPU in `status --json`."""
        [entry] = [vgpu for vgpu in self.host.status()["vgpus"] if vgpu["name"] == NAME]
        found: dict[str, Any] = entry
        return found

    def attach(self) -> str:
        """Where it was not; no program has used its region by then."""
        said = self.command(*ATTACH)
        self.free_bytes = self.vgpu()["region_free_bytes"]
        assert 0 < self.free_bytes < REGION_BYTES
        return said

    def is_attached(self) -> bool:
        return any(vgpu["name"] == NAME for vgpu in self.host.status()["vgpus"])

    def boot(self) -> None:
        """Starts the guest anew, whatever state it is in."""
        if self.guest.domain.isActive():
            self.guest.domain.destroy()
            wait_until(lambda: not self.guest.domain.isActive(), "the domain is off")
        self.guest.start()
        self.shell.await_boot()

    def program(self, line: str, limit_s: float = 60) -> Answer:
        """Runs one program in the guest to its end."""
        return self.shell.run(f"/programs/{line}", limit_s)

    def start_spin(self, duration_ms: int, file: str = "") -> None:
        """Starts a program in the guest's background; returns when its kernel runs. Its output goes to /tmp/spin. With a file the time begins
        when the guest has that file."""
        line = f": >/tmp/spin; rm -f {MAY_END}; /programs/spin {duration_ms} {file} >/tmp/spin 2>&1 & {WAITING}"
        assert self.shell.run(line) == Answer("", 0)
        wait_until(lambda: len(self.vgpu()["clients"]) == 1, "the client is served")
        assert self.vgpu()["clients"][0]["program"] == "spin"

    def let_spin_end(self) -> None:
        assert self.shell.run(f": >{MAY_END}") == Answer("", 0)

    def end_of_spin(self, limit_s: float = 60) -> Answer:
        """Waits for that program."""
        return self.shell.run("wait $!; code=$?; cat /tmp/spin; (exit $code)", limit_s)

    def log(self) -> str:
        return self.host.log()


@pytest.fixture(scope="module")
def house(
    instance: PrivateLibvirt,
    choice: AcceleratorChoice,
    tmp_path_factory: pytest.TempPathFactory,
    beside_another_device: Callable[[str], str],
) -> Iterator[House]:
    """Not attached, not started."""
    folder = instance.folder / NAME
    folder.mkdir()
    folder.chmod(0o755)
    build_all()
    files = {PurePosixPath("/programs") / name: PROGRAMS / name for name in IN_THE_GUEST}
    files[PurePosixPath("/programs") / RUNTIME.name] = RUNTIME
    image = build_image(folder, [shell_command()], {**files, GUEST_LIBRARY_PATH: GUEST_LIBRARY})
    host = start_host(tmp_path_factory.mktemp("host"), libvirt_uri=instance.uri)
    try:
        with Guest(instance, NAME, image, choice, amend=beside_another_device) as guest:
            yield House(host, instance.uri, guest, GuestShell(guest))
    finally:
        stop_host(host)


@pytest.fixture
def attached(house: House) -> House:
    """With a vGPU, booted."""
    if not house.is_attached():
        if house.guest.domain.isActive():
            house.guest.domain.destroy()
        house.attach()
    if not house.guest.domain.isActive():
        house.boot()
    return house


def worker_is_there(pid: int) -> bool:
    """One whose daemon died is nobody's child: a zombie has ended too."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def has_mapped_region(pid: int, guest: Guest) -> bool:
    """Whether that worker can still read and write the guest's region."""
    try:
        return region_name(guest.uuid) in Path(f"/proc/{pid}/maps").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def assert_nothing_is_held(house: House, worker_pid: int) -> None:
    """Client, worker, device memory and region pages are gone."""
    wait_until(lambda: not house.vgpu()["clients"], "the client is gone")
    wait_until(lambda: not worker_is_there(worker_pid), "the worker ended")
    wait_until(lambda: house.vgpu()["memory_bytes"] == 0, "device memory was given back")
    wait_until(lambda: house.vgpu()["region_free_bytes"] == house.free_bytes, "region pages were given back")


def assert_a_program_passes(house: House) -> None:
    answer = house.program("vector_add")
    assert (answer.exit_code, answer.output.splitlines()[-1]) == (0, "PASS"), answer.output
    assert "fairgv: " not in answer.output


def assert_one_line(answer: Answer, error: str, line: str) -> None:
    """The program was told the CUDA error, and its user one line that says what to do."""
    assert answer.exit_code == 1
    assert re.search(error, answer.output), answer.output
    assert answer.output.count("fairgv: ") == 1, answer.output
    assert re.search(f"^fairgv: .*{line}", answer.output, re.MULTILINE), answer.output


def test_a_guest_without_a_device_then_attached_while_it_runs(house: House) -> None:
    if house.is_attached():
        house.command("detach", NAME)
    house.boot()
    assert_one_line(house.program("vector_add"), "cudaErrorNoDevice", "fairgv-host attach")
    assert "at the next start" in house.attach()
    assert_one_line(house.program("vector_add"), "cudaErrorNoDevice", "fairgv-host attach")
    house.boot()
    assert_a_program_passes(house)


@pytest.mark.parametrize("way", ["", "FAIRGV_TRAP=signal", "FAIRGV_MANAGED=host"])
def test_managed_memory_is_what_it_is_natively(attached: House, way: str) -> None:
    """The guest's kernel, not the host's, tells of touches; Linux before 6.4 does not tell which are writes."""
    names = [f"managed_{name}" for name in MANAGED if (name, way) != ("system_calls", "FAIRGV_TRAP=signal")]
    names += [f"managed_host_{name}" for name in HOSTED]
    native = attached.host.native(str(RUNTIME), *names)
    answer = attached.shell.run(f"{way} /programs/{RUNTIME.name} {' '.join(names)}", 240)
    assert (answer.exit_code, answer.output) == (0, native.stdout.rstrip("\n"))


def test_attach_shows_in_status_and_binds_the_guest(attached: House) -> None:
    vgpu = attached.vgpu()
    assert (vgpu["kind"], vgpu["weight"]) == ("domain", WEIGHT)
    assert (vgpu["quota_bytes"], vgpu["region_bytes"]) == (MEMORY_BYTES, REGION_BYTES)
    assert json.loads(attached.command("list", "--json"))[0]["name"] == NAME
    before = vgpu["totals"]
    answer = attached.program("device_query")
    assert f"global memory {MEMORY_BYTES} bytes" in answer.output
    assert answer.output.endswith("PASS")
    wait_until(lambda: attached.vgpu()["totals"]["nr_clients"] == before["nr_clients"] + 1, "the client is counted")
    answer = attached.program("bandwidth")
    assert answer.exit_code == 1
    assert "1048576 bytes: pinned right, pageable right" in answer.output
    assert "gave cudaErrorMemoryAllocation" in answer.output
    wait_until(lambda: attached.vgpu()["memory_bytes"] == 0, "device memory was given back")
    wait_until(lambda: attached.vgpu()["region_free_bytes"] == attached.free_bytes, "region pages were given back")
    totals = attached.vgpu()["totals"]
    assert 0 < totals["nr_round_trips"] <= totals["nr_calls"]
    assert totals["to_device_bytes"] > 1 << 20
    assert_a_program_passes(attached)


def test_attachments_outlast_a_start_without_libvirt(tmp_path: Path) -> None:
    """Nobody forgets a domain because libvirtd was late."""
    attachments = json.dumps(["5e9f6a2c-4d3b-4f10-9d3e-0d4c6e1f7a21"])
    (tmp_path / "domains.json").write_text(attachments)
    host = start_host(tmp_path, libvirt_uri=f"qemu+unix:///session?socket={tmp_path}/none")
    assert "the domains attached before are not served: no libvirtd answers" in host.log()
    stop_host(host)
    assert (tmp_path / "domains.json").read_text() == attachments


def test_a_second_attach_is_refused_and_harms_nothing(attached: House) -> None:
    answer = host_command(attached.host.state_dir, *ATTACH)
    assert answer.returncode == 1
    assert f"fairgv-host detach {NAME}" in answer.stderr
    assert len(answer.stderr.splitlines()) == 1
    assert_a_program_passes(attached)


def test_a_program_killed_during_a_call(attached: House) -> None:
    attached.start_spin(LONG_MS)
    pid = attached.vgpu()["clients"][0]["worker_pid"]
    assert attached.vgpu()["region_free_bytes"] < attached.free_bytes
    assert attached.shell.run("kill -9 $!; wait $!").exit_code == 128 + signal.SIGKILL
    assert_nothing_is_held(attached, pid)
    assert f"{NAME}: client 0 (spin) gives no sign of life; taken back" in attached.log()
    assert_a_program_passes(attached)


def test_a_paused_guest_keeps_everything(attached: House) -> None:
    """Longer than a silent program is given otherwise; its kernel ends meanwhile."""
    taken_back = attached.log().count("taken back")
    attached.start_spin(KERNEL_MS, MAY_END)
    [client] = attached.vgpu()["clients"]
    held_bytes = attached.vgpu()["region_free_bytes"]
    attached.let_spin_end()
    # No guest runs and nothing is to be waited for, so that the time itself is what is tested.
    attached.guest.domain.suspend()
    uptime_ns = attached.host.status()["uptime_ns"]
    wait_until(lambda: attached.host.status()["uptime_ns"] - uptime_ns > PAUSE_S * 1e9, "the pause is over")
    assert [each["worker_pid"] for each in attached.vgpu()["clients"]] == [client["worker_pid"]]
    assert attached.vgpu()["region_free_bytes"] == held_bytes
    attached.guest.domain.resume()
    answer = attached.end_of_spin()
    assert answer == Answer("running\nsynchronize: cudaSuccess\nPASS", 0)
    assert attached.log().count("taken back") == taken_back
    assert_a_program_passes(attached)


def test_a_worker_killed_during_a_call(attached: House) -> None:
    attached.start_spin(LONG_MS)
    pid = attached.vgpu()["clients"][0]["worker_pid"]
    os.kill(pid, signal.SIGKILL)
    assert_one_line(attached.end_of_spin(), "synchronize: cudaErrorDevicesUnavailable", "has ended")
    assert f"{NAME}: the worker of client 0 ended with status -9" in attached.log()
    assert_nothing_is_held(attached, pid)
    assert_a_program_passes(attached)


def test_a_reset_guest(attached: House) -> None:
    attached.start_spin(LONG_MS)
    pid = attached.vgpu()["clients"][0]["worker_pid"]
    attached.guest.domain.reset()
    assert_nothing_is_held(attached, pid)
    assert f"domain {NAME}: reset" in attached.log()
    attached.shell.await_boot()
    assert_a_program_passes(attached)
    assert attached.vgpu()["weight"] == WEIGHT


def test_a_destroyed_guest(attached: House) -> None:
    attached.start_spin(LONG_MS)
    pid = attached.vgpu()["clients"][0]["worker_pid"]
    attached.guest.domain.destroy()
    assert_nothing_is_held(attached, pid)
    assert f"domain {NAME}: stopped" in attached.log()
    follow_guests([attached.guest], BOOT_LIMIT_S)
    attached.boot()
    assert_a_program_passes(attached)


def test_the_daemon_goes_and_comes_back(attached: House) -> None:
    """The running program and the next one are told; the next daemon serves the domain again without a word of ours."""
    attached.start_spin(LONG_MS)
    pid = attached.vgpu()["clients"][0]["worker_pid"]
    stop_host(attached.host)
    assert not worker_is_there(pid)
    assert_one_line(attached.end_of_spin(), "synchronize: cudaErrorDevicesUnavailable", "start")
    assert_one_line(attached.program("vector_add"), "cudaErrorSystemNotReady", "fairgv-host start")
    assert json.loads((attached.host.state_dir / "domains.json").read_text()) == [attached.guest.uuid]
    start_host(attached.host.state_dir, libvirt_uri=attached.uri)
    vgpu = attached.vgpu()
    assert (vgpu["weight"], vgpu["quota_bytes"], vgpu["region_bytes"]) == (WEIGHT, MEMORY_BYTES, REGION_BYTES)
    assert_a_program_passes(attached)


def test_a_daemon_that_dies(attached: House) -> None:
    """No word to the guest this time. While no daemon is there no program can begin; the next one goes on with the one that runs."""
    attached.start_spin(0, MAY_END)
    wait_until(lambda: attached.vgpu()["used_ns"] > 0, "it is charged")
    before = attached.vgpu()
    pid = before["clients"][0]["worker_pid"]
    os.kill(attached.host.status()["pid"], signal.SIGKILL)
    assert_one_line(attached.program("vector_add"), "cudaErrorSystemNotReady", "fairgv-host start")
    start_host(attached.host.state_dir, libvirt_uri=attached.uri)
    vgpu = attached.vgpu()
    assert [client["worker_pid"] for client in vgpu["clients"]] == [pid]
    assert (vgpu["weight"], vgpu["quota_bytes"], vgpu["region_bytes"]) == (WEIGHT, MEMORY_BYTES, REGION_BYTES)
    assert vgpu["used_ns"] >= before["used_ns"] > 0
    assert host_command(attached.host.state_dir, "restart").returncode == 0
    attached.let_spin_end()
    assert "synchronize: cudaSuccess" in attached.end_of_spin().output
    assert_nothing_is_held(attached, pid)
    assert_a_program_passes(attached)


def test_a_daemon_and_then_the_machine_die(attached: House) -> None:
    """The next daemon finds another run of it, and takes back what was held."""
    attached.start_spin(LONG_MS)
    pid = attached.vgpu()["clients"][0]["worker_pid"]
    os.kill(attached.host.status()["pid"], signal.SIGKILL)
    attached.boot()
    start_host(attached.host.state_dir, libvirt_uri=attached.uri)
    assert_nothing_is_held(attached, pid)
    assert_a_program_passes(attached)


def test_a_region_that_was_replaced_while_no_daemon_was_there(attached: House) -> None:
    """Its programs are ended: nobody would see what they write any more. The next start of the machine has the new one."""
    attached.start_spin(LONG_MS)
    pid = attached.vgpu()["clients"][0]["worker_pid"]
    os.kill(attached.host.status()["pid"], signal.SIGKILL)
    path = region_path(region_name(attached.guest.uuid))
    path.unlink()
    path.write_bytes(bytes(REGION_BYTES))
    start_host(attached.host.state_dir, libvirt_uri=attached.uri)
    wait_until(lambda: not worker_is_there(pid), "the worker ended")
    assert not has_mapped_region(pid, attached.guest)
    attached.boot()
    assert_a_program_passes(attached)


def test_detach_takes_everything_back(attached: House) -> None:
    path = region_path(region_name(attached.guest.uuid))
    assert path.exists()
    attached.start_spin(LONG_MS)
    pid = attached.vgpu()["clients"][0]["worker_pid"]
    assert "keeps the device until it is shut down" in attached.command("detach", NAME)
    assert not attached.is_attached()
    assert not worker_is_there(pid)
    assert not path.exists()
    assert json.loads((attached.host.state_dir / "domains.json").read_text()) == []
    assert_one_line(attached.end_of_spin(), "synchronize: cudaErrorDevicesUnavailable", "start")
    assert_one_line(attached.program("vector_add"), "cudaErrorSystemNotReady", "fairgv-host start")
    attached.boot()
    assert_one_line(attached.program("vector_add"), "cudaErrorNoDevice", "fairgv-host attach")
    answer = host_command(attached.host.state_dir, "detach", NAME)
    assert (answer.returncode, "is not attached" in answer.stderr) == (1, True)
