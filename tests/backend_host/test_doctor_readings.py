"""What `doctor` reads from a host: from this one, and from folders that look like another's. And its table and its JSON."""

import json
import os
import re
import socket
from pathlib import Path

import pytest
from rich.console import Console

from backend_host import config as configuration
from backend_host.cli import main
from backend_host.config import PACKAGE_ROOT, Config
from backend_host.doctor import command, confinement, daemon, device, domains, machine, memory, walls
from backend_host.doctor.verdict import State, failed, passed, warned
from backend_host.walls.settings import PLAIN, WALLS

WIDTH = 80


def test_a_member_of_the_group_has_the_system_s_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As commands have it, unless one says where."""
    monkeypatch.setattr(daemon, "default_state_dir", lambda: tmp_path / "own")
    system = tmp_path / "system"
    system.mkdir()
    (system / "control.sock").touch()
    assert daemon.socket_of(Config(state_dir=tmp_path / "own"), system) == system / "control.sock"
    assert daemon.socket_of(Config(state_dir=tmp_path / "other"), system) == tmp_path / "other" / "control.sock"


def test_kvm(tmp_path: Path) -> None:
    assert not machine.read_kvm(tmp_path / "kvm").is_there
    (tmp_path / "kvm").touch()
    reading = machine.read_kvm(tmp_path / "kvm")
    assert reading.is_there
    assert os.strerror(reading.error) == "Inappropriate ioctl for device"


def test_qemu_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    emulator = tmp_path / "qemu-system-x86_64"
    emulator.write_text("#!/bin/sh\necho 'QEMU emulator version 9.1 (x)'\necho 'name \"ivshmem-plain\", bus PCI'\n")
    emulator.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert machine.read_qemu() == machine.QemuReading("9.1", frozenset({"ivshmem-plain"}))
    emulator.write_text("#!/bin/sh\nexit 3\n")
    assert "status 3" in machine.read_qemu().trouble
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert "is not installed" in machine.read_qemu().trouble


def test_the_qemu_of_rhel_is_on_no_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    emulator = tmp_path / "qemu-kvm"
    emulator.write_text(
        '#!/bin/sh\n[ $1 = --version ] && echo "QEMU emulator version 9.1" || echo \'name "virtio-net-pci"\'\n'
    )
    emulator.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(machine, "RHEL_EMULATOR", emulator)
    assert machine.read_qemu() == machine.QemuReading("9.1", frozenset({"virtio-net-pci"}), is_of_rhel=True)


def test_a_libvirt_that_is_not_there(tmp_path: Path) -> None:
    reading = domains.read_libvirt(f"qemu+unix:///session?socket={tmp_path}/none")
    assert str(tmp_path) in reading.trouble
    assert not reading.is_missing
    assert domains.libvirt(reading).state is State.FAIL


def test_another_machines_libvirt() -> None:
    assert "another machine" in domains.read_libvirt("qemu+ssh://elsewhere/system").trouble


def test_hooks(tmp_path: Path) -> None:
    assert domains.read_hooks(tmp_path) == []
    (tmp_path / "qemu.d").mkdir()
    for name in ("lxc", "qemu", "qemu.d/10-mine"):
        (tmp_path / name).touch()
    (tmp_path / "qemu").chmod(0o755)
    (tmp_path / "qemu.d/10-mine").chmod(0o644)
    expected = [(str(tmp_path / "qemu"), True), (str(tmp_path / "qemu.d/10-mine"), False)]
    assert [(hook.path, hook.is_executable) for hook in domains.read_hooks(tmp_path)] == expected


def test_libvirt_guests(tmp_path: Path) -> None:
    assert domains.read_guests(tmp_path) == domains.GuestsReading(False, "")
    script = tmp_path / "usr/lib/libvirt/libvirt-guests.sh"
    script.parent.mkdir(parents=True)
    script.write_text('ON_SHUTDOWN="suspend"\nif true; then\n    ON_SHUTDOWN=shutdown\nfi\n')
    wanted = tmp_path / "etc/systemd/system/multi-user.target.wants/libvirt-guests.service"
    wanted.parent.mkdir(parents=True)
    wanted.touch()
    assert domains.read_guests(tmp_path) == domains.GuestsReading(True, "suspend")
    settings = tmp_path / "etc/default/libvirt-guests"
    settings.parent.mkdir()
    settings.write_text("#ON_SHUTDOWN=suspend\nON_SHUTDOWN=shutdown\n")
    assert domains.read_guests(tmp_path) == domains.GuestsReading(True, "shutdown")


def test_mps(tmp_path: Path) -> None:
    for pid, name in (("12", "nvidia-cuda-mps"), ("9", "nvidia-cuda-mps"), ("13", "bash")):
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "comm").write_text(f"{name}\n")
    ours = tmp_path / "spaces"
    (tmp_path / "9" / "environ").write_text(f"PATH=/bin\0CUDA_MPS_PIPE_DIRECTORY={ours}/0-web/pipe\0")
    assert device.read_mps(ours, tmp_path) == [12], "those of our spaces are meant to be there"
    assert device.read_mps(tmp_path / "others", tmp_path) == [9, 12]


def test_room_for_regions(tmp_path: Path) -> None:
    (tmp_path / "fairgv-a").write_bytes(bytes(4096))
    (tmp_path / "fairgv-other").write_bytes(bytes(4096))
    reading = memory.read_shm({"fairgv-a": 4096, "fairgv-b": 8192}, 1 << 24, tmp_path)
    assert (reading.reserved, reading.to_come) == ({"fairgv-a": 4096}, {"fairgv-b": 8192})
    assert 0 < reading.free_bytes <= reading.total_bytes
    assert "No such file" in memory.read_shm({}, 1 << 24, tmp_path / "none").trouble


def test_locked_memory_and_userfaultfd_of_this_process() -> None:
    assert memory.memlock(memory.read_memlock("qemu:///system", 1 << 28)).state is State.PASS
    reading = memory.read_userfaultfd()
    assert reading.is_allowed or reading.features == 0


def test_cgroups_of_this_host() -> None:
    reading = walls.read_cgroups()
    assert reading.version1 | reading.version2


def test_users_of_this_host() -> None:
    reading = walls.read_tenants(PLAIN)
    assert reading.own == (PLAIN.first_uid, PLAIN.last_uid)
    assert reading.mapped
    assert reading.taken == {}


def test_state_directories(tmp_path: Path) -> None:
    assert not daemon.read_state_dir(tmp_path / "none").is_there
    assert daemon.state_dir(daemon.read_state_dir(tmp_path)).state is State.PASS
    tmp_path.chmod(0o777)
    assert daemon.state_dir(daemon.read_state_dir(tmp_path)).state is State.FAIL
    (tmp_path / "file").touch()
    assert daemon.read_state_dir(tmp_path / "file/below").trouble


def test_a_socket_where_nobody_answers(tmp_path: Path) -> None:
    """As systemd's is, while the daemon fails at each start."""
    path = tmp_path / "control.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        assert daemon.read_daemon(path, 0.1) == daemon.DaemonReading(trouble="no answer for 0.1 s", has_socket=True)


def test_a_socket_that_was_left(tmp_path: Path) -> None:
    assert not daemon.read_daemon(tmp_path / "control.sock").has_socket
    (tmp_path / "control.sock").touch()
    reading = daemon.read_daemon(tmp_path / "control.sock")
    assert reading.status is None
    assert reading.has_socket


def test_the_device_is_opened_where_no_daemon_runs(tmp_path: Path) -> None:
    reading = device.read_device(Config(state_dir=tmp_path, device="soft", trusted_guests=True), None)
    assert (reading.kind, reading.trouble) == ("soft", "")
    fallen_back = Config(state_dir=tmp_path, cuda_library=str(tmp_path / "none.so"), trusted_guests=True)
    reading = device.read_device(fallen_back, None)
    assert (reading.asked, reading.kind) == ("auto", "soft")
    assert str(tmp_path) in reading.why_soft
    missing = Config(state_dir=tmp_path, device="soft", softgpu_library=str(tmp_path / "none.so"))
    assert "is not built" in device.read_device(missing, None).trouble


def test_a_daemon_is_asked_for_its_device(tmp_path: Path) -> None:
    """Whose library is not opened then: this one does not exist."""
    config = Config(state_dir=tmp_path, device="cuda", cuda_library=str(tmp_path / "none.so"))
    status = {"gpus": [{"name": "one", "kind": "cuda", "uuid": uuid} for uuid in ("GPU-1", "GPU-2")]}
    reading = device.read_device(config, status)
    assert (reading.kind, reading.names, reading.is_served) == ("cuda", ("one", "one"), True)


def test_confinement_of_this_host() -> None:
    assert confinement.apparmor(confinement.read_apparmor()).check == "apparmor"
    assert confinement.selinux(confinement.read_selinux(["fairgv-none"])).check == "selinux"


LONG = {
    "one": [
        passed("state directory", "word " * 40),
        warned("kvm", "/a/path/without/a/blank" * 10, "do " * 60),
        failed("qemu", "it said \x1b[2J[red]x[/red]\nand more", "a remedy"),
    ],
    "two": [passed("mps", "short")],
}


def test_the_table_fits_80_columns() -> None:
    console = Console(width=WIDTH, color_system=None)
    with console.capture() as capture:
        console.print(command.table(LONG))
    text = capture.get()
    assert max(map(len, text.splitlines())) <= WIDTH
    assert "…" not in text
    assert "\x1b" not in text
    assert "[red]x[/red]?and more" in text
    assert text.count("Remedy: ") == 2
    assert "/a/path/without/a/blank" * 10 in re.sub(r"\s+|warn|kvm", "", text)


@pytest.fixture
def no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(configuration, "SYSTEM_FILE", tmp_path / "none.toml")
    return tmp_path


def test_the_command(no_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On this host, whatever it has: what is said is whole, and the exit status is the worst of it."""
    file = no_file / "config.toml"
    file.write_text('device = "soft"\n[walls]\nallow_missing = ["cgroup"]\n')
    arguments = ["--state-dir", str(no_file / "state"), "doctor", "--config", str(file)]
    status = main([*arguments, "--json"])
    checks = json.loads(capsys.readouterr().out)
    assert status == any(check["state"] == "fail" for check in checks)
    assert all(set(check) == {"group", "check", "state", "text", "remedy"} for check in checks)
    assert all((check["remedy"] == "") == (check["state"] == "pass") for check in checks)
    found = {check["check"]: check for check in checks}
    assert len(found) == len(checks)
    assert {f"wall {wall}" for wall in WALLS} <= found.keys()
    assert found["daemon"]["text"] == "does not run"
    assert found["state directory"]["state"] == "pass"
    assert main(arguments) == status
    output = capsys.readouterr().out
    assert all(name in output for name in found)
    assert not (no_file / "state").exists(), "who looks makes nothing"


def test_every_check_is_told_of() -> None:
    """On the page about it, by its name."""
    page = (PACKAGE_ROOT / "docs/doctor.md").read_text()
    names = {verdict.check for verdicts in command.examine(Config(device="soft")).values() for verdict in verdicts}
    assert [name for name in sorted(names) if f"`{name}`" not in page and not name.startswith("wall ")] == []
