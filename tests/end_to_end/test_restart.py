"""The daemon restarts and dies under running programs: none of them gets a CUDA error, and accounts go on."""

import contextlib
import functools
import itertools
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from backend_host.cli import host_command
from backend_host.errors import FairGVError
from backend_host.ipc import Connection
from benchmarks.build import build
from benchmarks.ratios import min_max_ratio
from tests.children import is_there
from tests.end_to_end.host import PROGRAMS, SOFTGPU, Host, start_host, stop_host, wait_until
from tests.end_to_end.restarting import (
    Program,
    events,
    go_on,
    kill,
    kill_and_start,
    restart,
    start_next,
    vgpus,
    worker_pids,
)

NR_RESTARTS = 20
WEIGHTS = {"one": 1, "two": 2}
PROGRAM = """
until [ -e "$0" ]; do
    said=$("$1" 6 100 2>&1) && continue
    case $said in *cudaErrorSystemNotReady*) continue ;; esac
    echo "$said" >&2
    exit 1
done
"""
"""Programs one after the other, some of which begin while no daemon is there. One that begins then waits 5 s for the next, and is refused
where a daemon takes longer to start."""
CLEARLY_FAIR = 0.6


@pytest.fixture
def host(mortal_host: Host) -> Host:
    return mortal_host


def test_twenty_restarts_under_programs(host: Host, tmp_path: Path) -> None:
    stop = tmp_path / "stop"
    arguments = ["-c", PROGRAM, str(stop), str(PROGRAMS / "matrix_mul")]
    programs = [
        host.start("/bin/sh", *arguments, options=("--vgpu", name, "--weight", str(weight)))
        for name, weight in WEIGHTS.items()
    ]
    wait_until(lambda: all(vgpus(host).get(name, {"used_ns": 0})["used_ns"] for name in WEIGHTS), "both compute")
    used = dict.fromkeys(WEIGHTS, 0)
    of_gpu = 0
    for number, way in zip(range(NR_RESTARTS), itertools.cycle((kill_and_start, restart)), strict=False):
        way(host)
        assert [program.communicate() for program in programs if program.poll() is not None] == []
        status = host.status()
        [gpu], now = status["gpus"], {vgpu["name"]: vgpu for vgpu in status["vgpus"]}
        assert status["nr_restarts"] == number + 1
        assert {name: vgpu["weight"] for name, vgpu in now.items()} == WEIGHTS
        assert all(now[name]["used_ns"] >= used[name] for name in WEIGHTS)
        assert gpu["used_ns"] >= max(of_gpu, sum(vgpu["used_ns"] for vgpu in now.values()))
        used, of_gpu = {name: vgpu["used_ns"] for name, vgpu in now.items()}, gpu["used_ns"]
        wait_until(functools.partial(go_on, host, used), "both go on")
    assert host_command(host.state_dir, "set", "one", "--weight", "5").returncode == 0
    assert vgpus(host)["one"]["weight"] == 5
    joined = host.guest("vector_add", options=("--vgpu", "two"))
    assert (joined.returncode, joined.stdout.splitlines()[-1]) == (0, "PASS"), joined.stderr
    stop.touch()
    for program in programs:
        output, errors = program.communicate(timeout=60)
        assert program.returncode == 0, output + errors
        assert not errors
    wait_until(lambda: not vgpus(host), "the vGPUs have gone with their programs")
    assert host.status()["gpus"][0]["used_ns"] >= of_gpu, "what they used stays used"
    assert len(events(host, "adopt")) == NR_RESTARTS
    assert not events(host, "lost")


@pytest.mark.parametrize("way", [kill_and_start, restart])
def test_a_program_at_its_kernel(host: Host, way: Callable[[Host], None]) -> None:
    stop = host.state_dir / "stop"
    child = host.start("spin", "0", str(stop), options=("--vgpu", "one"))
    assert child.stdout is not None
    assert child.stdout.readline() == "running\n"
    [worker] = worker_pids(host, "one")
    way(host)
    assert worker_pids(host, "one") == [worker]
    stop.touch()
    assert child.communicate(timeout=60)[0] == "synchronize: cudaSuccess\nPASS\n"
    wait_until(lambda: not vgpus(host), "its vGPU goes with it")
    wait_until(lambda: not is_there(worker), "its worker goes, too")


def test_a_worker_that_died_while_no_daemon_was_there(host: Host) -> None:
    lost, other = Program(host, "lost"), Program(host, "other")
    [worker] = worker_pids(host, "lost")
    kill(host)
    os.kill(worker, signal.SIGKILL)
    start_next(host)
    code, said = lost.its_end()
    assert code == 1
    assert "cudaErrorDevicesUnavailable" in said
    assert "other" in vgpus(host)
    assert other.passes()


def test_a_program_that_ended_while_no_daemon_was_there(host: Host) -> None:
    one, other = Program(host, "one"), Program(host, "other")
    kill(host)
    assert one.passes()
    start_next(host)
    assert vgpus(host).keys() == {"other"}
    assert other.passes()


def test_a_stop_ends_all(host: Host) -> None:
    program = Program(host, "one")
    kill_and_start(host)
    [worker] = worker_pids(host, "one")
    stop_host(host)
    assert program.its_end()[0] == 1
    assert not is_there(worker)
    start_next(host)
    assert not vgpus(host)
    assert host.status()["gpus"][0]["used_ns"] == 0, "after a stop accounts begin anew"


def test_a_daemon_that_cannot_start_ends_no_program(host: Host) -> None:
    program = Program(host, "one")
    kill(host)
    with pytest.raises(FairGVError, match="cannot"):
        start_next(host, web="0.0.0.0:1", web_token_file=str(host.state_dir / "none"))
    start_next(host)
    assert program.passes()


@pytest.fixture
def driver(tmp_path: Path) -> Path:
    """What the daemon takes for NVIDIA's library."""
    library = tmp_path / "libcuda.so.1"
    library.symlink_to(SOFTGPU / "libcuda.so.1")
    return library


@pytest.fixture
def driven(tmp_path: Path, driver: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    """A host with that driver and two devices."""
    monkeypatch.setenv("FAIRGV_SOFTGPU_DEVICES", "2")
    host = start_host(tmp_path, device="auto", cuda_library=str(driver))
    yield host
    with contextlib.suppress(FairGVError):
        stop_host(host)


def test_a_driver_that_is_not_there_for_a_while_costs_no_program(driven: Host, driver: Path) -> None:
    """softgpu is not taken in its place, which would end them."""
    host, away = driven, driver.with_name("away")
    program = host.start("/bin/cat", stdin=subprocess.PIPE)
    wait_until(lambda: len(vgpus(host)) == 1, "it has a vGPU")
    driver.rename(away)
    refused = host_command(host.state_dir, "restart")
    assert refused.returncode == 1
    assert "The daemon before served GPUs" in " ".join(refused.stderr.split())
    away.rename(driver)
    start_host(host.state_dir, device="auto", cuda_library=str(driver))
    assert len(vgpus(host)) == 1
    program.communicate(timeout=60)
    assert program.returncode == 0


def test_a_device_that_is_lost_gives_its_number_to_no_other(
    driven: Host, driver: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library counts those behind it anew; vGPUs there go on, where they were."""
    host = driven
    uuid = host.status()["gpus"][1]["uuid"]
    program = host.start("/bin/cat", options=("--vgpu", "it", "--gpu", "1"), stdin=subprocess.PIPE)
    wait_until(lambda: len(vgpus(host)) == 1, "it has a vGPU")
    for visible, numbers in (("1", [1]), ("0,1", [0, 1])):
        kill(host)
        with monkeypatch.context() as lost:
            lost.setenv("CUDA_VISIBLE_DEVICES", visible)
            start_host(host.state_dir, device="auto", cuda_library=str(driver))
        gpus = {gpu["number"]: gpu for gpu in host.status()["gpus"]}
        assert list(gpus) == numbers
        assert (gpus[1]["uuid"], gpus[1]["vgpus"]) == (uuid, ["it"])
    program.communicate(timeout=60)
    assert program.returncode == 0


def test_another_program_joins_by_name_after_a_restart(host: Host) -> None:
    program = Program(host, "one")
    kill_and_start(host)
    with Connection(host.state_dir / "control.sock") as connection:
        os.close(connection.ask("open", name="one")["fd"])
    assert vgpus(host).keys() == {"one"}
    assert program.passes()


def test_shares_are_kept(host: Host) -> None:
    """By those that want the GPU all the time. How closely is for benchmarks to say: other tests may use the processors meanwhile."""
    shape = ["--kernel-us", "400", "--queue", "64", "--seconds", "600"]
    programs = [
        host.start(build("spin"), *shape, options=("--vgpu", name, "--weight", str(weight)))
        for name, weight in WEIGHTS.items()
    ]
    wait_until(lambda: all(vgpus(host).get(name, {"used_ns": 0})["used_ns"] for name in WEIGHTS), "both compute")
    before = {name: vgpu["used_ns"] for name, vgpu in vgpus(host).items()}
    for way in (kill_and_start, restart) * 2:
        way(host)
        used = {name: vgpu["used_ns"] for name, vgpu in vgpus(host).items()}
        wait_until(functools.partial(go_on, host, {name: ns + 100_000_000 for name, ns in used.items()}), "both go on")
    used = {name: vgpu["used_ns"] for name, vgpu in vgpus(host).items()}
    assert min_max_ratio([(used[name] - before[name]) / weight for name, weight in WEIGHTS.items()]) > CLEARLY_FAIR
    for program in programs:
        program.terminate()
        program.communicate()


def test_requests_that_the_next_policy_does_not_know_are_told(host: Host) -> None:
    """Its programs go on, and so does what was asked for them: the next restart may know it again."""
    program = Program(host, "one")
    assert host_command(host.state_dir, "set", "one", "--request", "30").returncode == 0
    assert host.status()["troubles"] == []
    kill(host)
    start_next(host, policy="fair")
    trouble = (
        "GPU 0: the policy fair knows no requests, and does not keep those that are there (one 30 %): fairgv-host start --policy elastic "
        "does, and fairgv-host set NAME --request 0 takes one away"
    )
    assert host.status()["troubles"] == [trouble]
    assert trouble in host.log()
    kill_and_start(host)
    assert host.status()["troubles"] == []
    assert vgpus(host)["one"]["request"] == 30
    assert program.passes()


def test_a_store_that_was_killed_costs_what_a_dead_daemon_did(host: Host) -> None:
    """Programs go on, and no daemon knows of them."""
    program = Program(host, "one")
    [keeper] = [int(entry.name) for entry in Path("/proc").glob("[0-9]*") if is_store_of(entry, host)]
    os.kill(keeper, signal.SIGKILL)
    kill_and_start(host)
    assert not vgpus(host)
    assert program.passes()
    assert host.guest("vector_add").returncode == 0


def is_store_of(process: Path, host: Host) -> bool:
    with contextlib.suppress(OSError):
        if b"backend_host.restart.keeping" in (process / "cmdline").read_bytes():
            parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
            return bool(int(parent) == host.status()["pid"])
    return False
