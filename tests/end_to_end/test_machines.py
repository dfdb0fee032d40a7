"""`fairgv-host attach --shm`, and files that come by themselves: programs that reach the daemon by the file alone, as a guest's do."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend_host.cli import host_command
from backend_host.config import PACKAGE_ROOT, load_as_said
from backend_host.launching import start_in_background
from tests.backend_host.played_machine import machine, make_file, memory_file, new_path
from tests.end_to_end.host import PROGRAMS, WALLS, Host, own_device, stop_host, wait_until

REGION_BYTES = 64 << 20


@pytest.fixture
def files_host(tmp_path: Path) -> Iterator[Host]:
    """A daemon with a pattern, and a folder vgpus.d."""
    (tmp_path / "vgpus.d").mkdir()
    file = tmp_path / "config.toml"
    pattern = f"/dev/shm/test-machine-{os.getpid()}-*-pve"
    file.write_text(f'adopt = "attached"\nshm_files = "{pattern}"\n[walls]\ncache_dir = "{WALLS.cache_dir}"\n')
    with pytest.MonkeyPatch.context() as environment:
        for name, value in own_device(tmp_path / "state").items():
            environment.setenv(name, value)
        start_in_background(load_as_said(file, WALLS.allow_missing, state_dir=tmp_path / "state", device="soft"))
    running = Host(tmp_path / "state", "soft")
    yield running
    stop_host(running)


def command(host: Host, *arguments: str) -> str:
    """One that must succeed; what it says."""
    answer = host_command(host.state_dir, *arguments)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout.strip()


def refusal(host: Host, *arguments: str) -> str:
    """One that must not."""
    answer = host_command(host.state_dir, *arguments)
    assert answer.returncode == 1, answer.stdout
    return answer.stderr


def start(path: Path, program: str, *arguments: str) -> subprocess.Popen[str]:
    """A program that finds the region where a guest's would find its device."""
    library = PACKAGE_ROOT / "build/guest"
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library), "FAIRGV_REGION": str(path)}
    line = [str(PROGRAMS / program), *arguments]
    return subprocess.Popen(line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def run(path: Path, program: str, *arguments: str) -> tuple[int, str]:
    with start(path, program, *arguments) as child:
        output, _ = child.communicate(timeout=120)
    return child.returncode, output


def listed(host: Host) -> dict[str, dict[str, object]]:
    return {entry["name"]: entry for entry in json.loads(command(host, "list", "--json"))}


def programs_of(host: Host, name: str) -> list[object]:
    [vgpu] = [each for each in host.status()["vgpus"] if each["name"] == name]
    clients: list[object] = vgpu["clients"]
    return clients


def test_programs_compute_through_a_file(own_host: Host) -> None:
    with memory_file(nr_bytes=REGION_BYTES) as path, machine(path):
        assert command(own_host, "attach", "--shm", str(path), "web", "--weight", "3") == "web has a vGPU now"
        assert path.stat().st_mode & 0o777 == 0o640
        code, output = run(path, "vector_add")
        assert (code, output.splitlines()[-1]) == (0, "PASS"), output
        entry = listed(own_host)["web"]
        assert (entry["kind"], entry["state"], entry["is_served"], entry["weight"]) == ("machine", "running", True, 3)
        [vgpu] = own_host.status()["vgpus"]
        assert (vgpu["kind"], vgpu["region_bytes"], vgpu["totals"]["nr_clients"]) == ("machine", REGION_BYTES, 1)
        assert "web" in command(own_host, "status")
        assert command(own_host, "set", "web", "--weight", "5") == "web is changed until its memory file goes"
        assert listed(own_host)["web"]["weight"] == 5
        assert command(own_host, "detach", "web") == "web has no vGPU any more"
        events = [json.loads(line) for line in command(own_host, "events", "--json").splitlines()]
        assert [(each["event"], each["vgpu"], each["domain"]) for each in events] == [
            ("attach", "web", None),
            ("set", "web", None),
            ("detach", "web", None),
        ]
        code, output = run(path, "vector_add")
        assert code != 0
        assert "web" not in listed(own_host)


def test_what_is_refused(own_host: Host) -> None:
    path = new_path()
    assert "there is no file" in refusal(own_host, "attach", "--shm", str(path), "web")
    assert "as large as its file" in refusal(own_host, "attach", "--shm", str(path), "web", "--region", "64M")
    assert "has no bell" in refusal(own_host, "attach", "--shm", str(path), "web", "--doorbell")
    with memory_file(nr_bytes=3 << 20) as small:
        assert "a power of two" in refusal(own_host, "attach", "--shm", str(small), "web")
    assert listed(own_host) == {}


def test_a_file_cut_short_under_a_program_costs_its_own_vgpu(own_host: Host) -> None:
    """The worker ends, by SIGBUS or by the daemon's hand; the daemon and the neighbour go on."""
    with memory_file(nr_bytes=REGION_BYTES) as path, memory_file(nr_bytes=REGION_BYTES) as neighbour:
        for name, file in (("web", path), ("db", neighbour)):
            command(own_host, "attach", "--shm", str(file), name)
        pid = own_host.status()["pid"]
        with start(path, "spin", "60000") as child:
            wait_until(lambda: len(programs_of(own_host, "web")) == 1, "the program is served")
            os.truncate(path, 0)
            wait_until(lambda: not listed(own_host)["web"]["is_served"], "it is served no more")
            child.kill()
        code, output = run(neighbour, "vector_add")
        assert (code, output.splitlines()[-1]) == (0, "PASS"), output
        assert own_host.status()["pid"] == pid, "the same daemon"
        assert listed(own_host)["web"]["why_not"]
        os.truncate(path, REGION_BYTES)
        wait_until(lambda: bool(listed(own_host)["web"]["is_served"]), "a file that is whole again is served again")
        assert run(path, "vector_add")[0] == 0


def test_programs_of_a_machine_that_ended_are_gone(own_host: Host) -> None:
    with memory_file(nr_bytes=REGION_BYTES) as path:
        with machine(path):
            command(own_host, "attach", "--shm", str(path), "web")
            with start(path, "spin", "60000") as child:
                wait_until(lambda: len(programs_of(own_host, "web")) == 1, "the program is served")
                wait_until(lambda: listed(own_host)["web"]["state"] == "running", "its machine is known")
                child.kill()  # as it dies with its guest
        wait_until(lambda: listed(own_host)["web"]["state"] == "shut off", "the end is noticed")
        wait_until(lambda: programs_of(own_host, "web") == [], "nothing of it is left")
        wait_until(lambda: run(path, "vector_add")[0] == 0, "its file is served anew")
        path.unlink()
        wait_until(lambda: listed(own_host) == {}, "without its file it is gone")
        assert "gone with its memory file" in command(own_host, "events")


def test_files_that_come_by_themselves(files_host: Host) -> None:
    with memory_file("-pve", nr_bytes=REGION_BYTES) as path:
        wait_until(lambda: path.name in listed(files_host), "it is found")
        wait_until(lambda: bool(listed(files_host)[path.name]["is_served"]), "it is served")
        assert run(path, "vector_add")[0] == 0
    wait_until(lambda: listed(files_host) == {}, "it goes with its file")


def test_a_file_of_vgpus_d_that_names_shared_memory(files_host: Host) -> None:
    path = new_path()
    file = files_host.state_dir.parent / "vgpus.d/web.toml"
    file.write_text(f'shm = "{path}"\nweight = 4\n')
    assert "vgpus.d.web" in command(files_host, "reload")
    wait_until(lambda: listed(files_host)["web"]["state"] == "no file", "it is waited for")
    assert "there is no file" in command(files_host, "list")
    make_file(path, REGION_BYTES)
    try:
        wait_until(lambda: bool(listed(files_host)["web"]["is_served"]), "it is served")
        assert run(path, "vector_add")[0] == 0
        file.write_text(f'shm = "{path}"\nweight = 6\n')
        assert "weight" in command(files_host, "reload")
        wait_until(lambda: listed(files_host)["web"]["weight"] == 6, "it has another weight")
        assert "kept by a file of vgpus.d" in refusal(files_host, "detach", "web")
        for wrong, why in (
            (f'shm = "{path}"\nuser = "root"\n', "user is of programs"),
            (f'shm = "{path}"\nregion_bytes = "64M"\n', "region_bytes is of programs"),
            ("shm = 3\n", "shm must be"),
            ('shm = "region"\n', "shm must be"),
        ):
            file.write_text(wrong)
            assert why in refusal(files_host, "reload")
        file.write_text(f'shm = "{path}"\n')
        (file.parent / "other.toml").write_text(f'shm = "{path}"\n')
        assert "the memory of two vGPUs" in refusal(files_host, "reload")
        (file.parent / "other.toml").unlink()
        file.unlink()
        command(files_host, "reload")
        wait_until(lambda: listed(files_host) == {}, "it is let go")
    finally:
        path.unlink()


def test_a_program_outlives_the_daemon(own_host: Host) -> None:
    """The next daemon finds the file, and takes over what it has of an earlier one in it."""
    with memory_file(nr_bytes=REGION_BYTES) as path, machine(path):
        command(own_host, "attach", "--shm", str(path), "web", "--weight", "3")
        stop = own_host.state_dir / "stop"
        with start(path, "spin", "0", str(stop)) as child:
            wait_until(lambda: len(programs_of(own_host, "web")) == 1, "the program is served")
            pid = own_host.status()["pid"]
            command(own_host, "restart")
            assert own_host.status()["pid"] != pid
            stop.touch()
            output, _ = child.communicate(timeout=120)
        assert child.returncode == 0, output
        wait_until(lambda: listed(own_host)["web"]["state"] == "running", "its machine is known")
        assert listed(own_host)["web"]["weight"] == 3
        assert run(path, "vector_add")[0] == 0
