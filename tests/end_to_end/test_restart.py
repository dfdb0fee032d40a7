"""The daemon restarts and dies under running programs: none of them gets a CUDA error, and accounts go on. One that cannot be taken over costs
itself, and nobody else."""

import contextlib
import functools
import itertools
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from backend_host.cli import host_command
from backend_host.errors import FairGVError
from backend_host.ipc import Connection
from backend_host.launching import wait_for_end
from backend_host.restart import store
from backend_host.restart.store import Store
from benchmarks.build import build
from benchmarks.ratios import min_max_ratio
from tests.children import is_there
from tests.end_to_end.host import PROGRAMS, SOFTGPU, Host, start_host, stop_host, wait_until

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
def host(tmp_path: Path) -> Iterator[Host]:
    host = start_host(tmp_path, watchdog_s=0)
    yield host
    with contextlib.suppress(FairGVError):
        stop_host(host)


def kill(host: Host) -> None:
    pid = int(host.status()["pid"])
    os.kill(pid, signal.SIGKILL)
    wait_for_end(pid)


def start_next(host: Host, **settings: Any) -> None:
    start_host(host.state_dir, watchdog_s=0, **settings)


def kill_and_start(host: Host) -> None:
    kill(host)
    start_next(host)


def restart(host: Host) -> None:
    answer = host_command(host.state_dir, "restart")
    assert answer.returncode == 0, answer.stderr


def vgpus(host: Host) -> dict[str, Any]:
    return {vgpu["name"]: vgpu for vgpu in host.status()["vgpus"]}


def worker_pids(host: Host, name: str) -> list[int]:
    return [client["worker_pid"] for client in vgpus(host)[name]["clients"]]


class Program:
    """One that computes until it is told to stop, in the vGPU of this name; `its_end` tells how it ended."""

    def __init__(self, host: Host, name: str) -> None:
        self._stop = host.state_dir / f"stop-{name}"
        self._child = host.start("steady", str(self._stop), options=("--vgpu", name))
        assert self._child.stdout is not None
        assert self._child.stdout.readline() == "running\n"

    def its_end(self) -> tuple[int, str]:
        """Without a word to it: what it came to by itself."""
        output, errors = self._child.communicate(timeout=60)
        return self._child.returncode, output + errors

    def passes(self) -> bool:
        """Whether it went well up to now."""
        self._stop.touch()
        return self.its_end() == (0, "PASS\n")


def go_on(host: Host, used: dict[str, int]) -> bool:
    """Whether each has used more of the GPU than that."""
    return all(vgpus(host)[name]["used_ns"] > used_ns for name, used_ns in used.items())


def events(host: Host, kind: str) -> list[str]:
    lines = host_command(host.state_dir, "events", "--json").stdout.splitlines()
    return [record["text"] for record in map(json.loads, lines) if record["event"] == kind]


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


class Forger:
    """The store, between two daemons."""

    def __init__(self, host: Host) -> None:
        self.store = Store.open(host.state_dir)
        ours, _ = self.store.take()
        self.items = {item.name: item for item in ours}

    def close(self) -> None:
        for item in self.items.values():
            item.close()
        self.store.close()

    def name(self, kind: str, **fields: object) -> str:
        """Of the item of this kind whose record has these values."""
        return next(
            name
            for name, item in self.items.items()
            if name.startswith(f"{kind}/") and fields.items() <= item.record.items()
        )

    def worker(self, vgpu: str) -> str:
        """Of the item of the only worker of this vGPU."""
        return self.name("worker", vgpu=self.items[self.name("vgpu", name=vgpu)].record["index"])

    def change(self, item_name: str, **fields: object) -> None:
        item = self.items[item_name]
        self.store.put(item_name, {**item.record, **fields}, has_life=item.has_life)

    def replace(self, name: str, number: int, fd: int) -> None:
        item = self.items[name]
        fds = [fd if place == number else each for place, each in enumerate(item.fds)]
        self.store.put(name, item.record, fds, has_life=item.has_life)


def a_record_that_is_none(forger: Forger, name: str) -> None:
    forger.store.put(forger.name("vgpu", name=name), {"name": name})


def an_entitlement_that_none_may_have(forger: Forger, name: str) -> None:
    item = forger.name("vgpu", name=name)
    forger.change(item, entitlement={**forger.items[item].record["entitlement"], "weight": 0})


def another_size(forger: Forger, name: str) -> None:
    forger.change(forger.name("vgpu", name=name), region_bytes=1 << 24)


def a_name_that_is_taken(forger: Forger, name: str) -> None:
    forger.change(forger.name("vgpu", name=name), name="other")


def a_region_that_is_none(forger: Forger, name: str) -> None:
    fd = os.memfd_create("nothing")
    os.ftruncate(fd, forger.items[forger.name("vgpu", name=name)].record["region_bytes"])
    forger.replace(forger.name("vgpu", name=name), 0, fd)
    os.close(fd)


def another_client(forger: Forger, name: str) -> None:
    forger.change(forger.worker(name), client=7)


def a_process_that_is_none(forger: Forger, name: str) -> None:
    fd = os.memfd_create("nothing")
    forger.replace(forger.worker(name), 0, fd)
    os.close(fd)


FORGERIES = (
    a_record_that_is_none,
    an_entitlement_that_none_may_have,
    another_size,
    a_name_that_is_taken,
    a_region_that_is_none,
    another_client,
    a_process_that_is_none,
)


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


def test_what_is_not_in_order_costs_its_own_vgpu(host: Host) -> None:
    """A worker whose process is not known ends by itself, as its client is dead."""
    other = Program(host, "other")
    forged = {forge: Program(host, forge.__name__) for forge in FORGERIES}
    workers = [client["worker_pid"] for vgpu in vgpus(host).values() for client in vgpu["clients"]]
    kill(host)
    with contextlib.closing(Forger(host)) as forger:
        for forge in FORGERIES:
            forge(forger, forge.__name__)
    start_next(host)
    for forge, program in forged.items():
        code, said = program.its_end()
        assert code == 1, (forge.__name__, said)
    assert other.passes()
    wait_until(lambda: not any(is_there(pid) for pid in workers), "all workers have ended")
    assert host.guest("vector_add", options=("--vgpu", "another_size")).returncode == 0, "the next one is served"
    assert len(events(host, "lost")) == 3


def test_a_process_that_is_no_worker_is_left_alone(host: Host) -> None:
    """As a number that was given out again would be: who is a worker is the descriptor's word."""
    other = Program(host, "other")
    with subprocess.Popen(["sleep", "60"]) as bystander:
        program = Program(host, "forged")
        kill(host)
        with contextlib.closing(Forger(host)) as forger:
            forger.change(forger.worker("forged"), pid=bystander.pid)
        start_next(host)
        assert program.its_end()[0] == 1
        assert bystander.poll() is None
        bystander.kill()
    assert other.passes()


def test_who_opens_a_vgpu_again_and_again_is_kept_once(host: Host) -> None:
    """Each time would cost the store a descriptor, of which it has those of all others, too."""
    with Connection(host.state_dir / "control.sock") as connection:
        for _ in range(100):
            os.close(connection.ask("open", name="one", region_bytes=1 << 24)["fd"])
        os.close(connection.ask("open", name="two", region_bytes=1 << 24)["fd"])
        kill(host)
        forger = Forger(host)
        kept = [item.record["vgpu"] for name, item in forger.items.items() if name.startswith("session/")]
        forger.close()
        assert sorted(kept) == ["one", "two"]
        start_next(host)
        assert vgpus(host).keys() == {"one", "two"}
    wait_until(lambda: not vgpus(host), "they go with the connection")


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


def make_ancient(host: Host) -> None:
    """All that was left is of another release."""
    with contextlib.closing(Forger(host)) as forger:
        for name, item in forger.items.items():
            forger.store.drop(name)
            forger.store._prefix = "ancient/"
            forger.store.put(name, item.record, item.fds, has_life=item.has_life)
            forger.store._prefix = f"{store.release()}/"


def test_programs_of_another_release_go_on_alone(host: Host) -> None:
    """Nobody else gets the device beside them; when they have ended all do."""
    program = Program(host, "one")
    kill(host)
    make_ancient(host)
    start_next(host)
    status = host.status()
    assert "1 program is served by an earlier release" in status["waits_for"]
    assert status["nr_old_programs"] == 1
    assert not vgpus(host)
    refused = host.guest("vector_add")
    assert refused.returncode == 1
    assert "an earlier release of FairGV" in refused.stderr
    kill_and_start(host)
    assert host.status()["waits_for"], "a restart forgets nobody"
    assert program.passes()
    wait_until(lambda: not host.status()["waits_for"], "they have ended")
    assert host.guest("vector_add").returncode == 0


def make_present(host: Host) -> None:
    """What another release left is ours, and what was left by us is gone: as the other release finds it when it is installed again."""
    kept = Store.open(host.state_dir)
    ours, foreign = kept.take()
    kept.drop(*(item.name for item in ours))
    for item in foreign:
        kept.drop_items([item.name])
        kept.put(item.name.removeprefix("ancient/"), item.record, item.fds, has_life=item.has_life)
    for item in [*ours, *foreign]:
        item.close()
    kept.close()


def test_the_release_before_takes_back_what_another_one_waited_for(host: Host) -> None:
    program = Program(host, "one")
    kill(host)
    make_ancient(host)
    start_next(host)
    assert host.status()["waits_for"]
    kill(host)
    make_present(host)
    start_next(host)
    assert not host.status()["waits_for"]
    used = {"one": vgpus(host)["one"]["used_ns"]}
    wait_until(lambda: go_on(host, used), "it computes")
    assert host.guest("vector_add").returncode == 0
    assert program.passes()


def test_a_stop_ends_programs_of_another_release(host: Host) -> None:
    program = Program(host, "one")
    [worker] = worker_pids(host, "one")
    kill(host)
    make_ancient(host)
    start_next(host)
    stop_host(host)
    assert not is_there(worker)
    assert program.its_end()[0] == 1
