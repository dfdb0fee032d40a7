"""The daemon: how it starts, refuses and ends, alone and beside another, and what programs see when parts of the house die."""

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from backend_host.cli import host_command
from backend_host.config import Config, load_config
from backend_host.daemon import Daemon
from backend_host.entitlement import MAX_WEIGHT, Entitlement
from backend_host.errors import DaemonNotRunningError, DaemonRunningError, FairGVError, RefusedError
from backend_host.ipc import Connection, Session
from backend_host.launching import launch, start_in_background, wait_for_end, wait_for_start
from backend_host.ready import Latch, ReadyPipe
from backend_host.requests import Requests
from backend_host.service.events import Events
from backend_host.service.manager import Manager
from backend_host.service.roles import Roles
from scheduler.registry import DEFAULT_POLICY
from tests.children import running
from tests.end_to_end.host import Host, start_host, stop_host, wait_until

REGION_BYTES = 16 << 20


def config(state_dir: Path, **settings: object) -> Config:
    return load_config(None, state_dir=state_dir, **{"device": "soft", "nr_warm_workers": 0, **settings})


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    running = start_host(tmp_path_factory.mktemp("host"), nr_warm_workers=0)
    yield running
    stop_host(running)


def connect(state_dir: Path) -> Connection:
    return Connection(state_dir / "control.sock")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"weight": 0}, "weight"),
        ({"weight": MAX_WEIGHT + 1}, "weight"),
        ({"weight": "heavy"}, "malformed"),
        ({"weight": None}, "malformed"),
        ({"weight": float("inf")}, "malformed"),
        ({"weight": [1]}, "malformed"),
        ({"memory_bytes": -1}, "quota"),
        ({"memory_bytes": 1 << 63}, "quota"),
        ({"memory_bytes": {}}, "quota"),
        ({"memory_bytes": ""}, "quota"),
        ({"region_bytes": 0}, "power of two"),
        ({"region_bytes": 3}, "power of two"),
        ({"region_bytes": 1 << 62}, "power of two"),
        ({"region_bytes": -(1 << 24)}, "power of two"),
        ({"name": ["a"]}, "no name"),
    ],
)
def test_requests_that_make_no_sense(host: Host, arguments: dict[str, Any], named: str) -> None:
    with connect(host.state_dir) as connection:
        with pytest.raises(RefusedError, match=named):
            connection.ask("open", **arguments)
        assert connection.ask("status")["pid"] > 0
    wait_until(lambda: not host.status()["vgpus"], "nothing was left behind")


def test_a_vgpu_is_changed_while_it_runs(host: Host) -> None:
    def change(*arguments: str) -> subprocess.CompletedProcess[str]:
        return host_command(host.state_dir, "set", "changed", *arguments)

    with connect(host.state_dir) as connection:
        os.close(connection.ask("open", name="changed", region_bytes=REGION_BYTES, weight=2)["fd"])
        assert change("--weight", "9", "--memory", "1.5G").returncode == 0
        [vgpu] = host.status()["vgpus"]
        assert (vgpu["weight"], vgpu["quota_bytes"]) == (9, 3 << 29)
        assert change("--memory", "0").returncode == 0
        [vgpu] = host.status()["vgpus"]
        assert (vgpu["weight"], vgpu["quota_bytes"]) == (9, 0)
        for arguments, reason in (
            ((), "nothing to change"),
            (("--weight", "0"), "a weight is"),
            (("--memory", "-1"), "size"),
        ):
            refused = change(*arguments)
            assert refused.returncode != 0
            assert reason in refused.stderr
    wait_until(lambda: not host.status()["vgpus"], "the session ended")
    refused = change("--weight", "2")
    assert refused.returncode == 1
    assert "there is no domain changed" in refused.stderr or "libvirt" in refused.stderr


def test_unknown_requests_and_domains(host: Host) -> None:
    with connect(host.state_dir) as connection:
        with pytest.raises(RefusedError, match="knows no request"):
            connection.ask("dance")
        with pytest.raises(RefusedError):
            connection.ask("attach")
        with pytest.raises(RefusedError):
            connection.ask("attach", domain="vm", weight=0)


@pytest.mark.parametrize(
    "operation",
    ["stop", "attach", "detach", "set", "suspend", "resume", "migrate", "abort", "drain", "undrain", "balance"],
)
def test_only_the_owner_may_change_anything(operation: str, tmp_path: Path) -> None:
    nothing: Any = None  # is asked for before that was looked at
    requests = Requests(nothing, nothing, Events(None), Roles.of_host(config(tmp_path)), nothing)
    with pytest.raises(RefusedError, match="own user"):
        requests.answer(Session(os.geteuid() + 1), {"op": operation, "domain": "vm"})


@pytest.mark.parametrize(("group", "is_trusted"), [(7, False), (8, True)])
def test_an_administrator_waits_for_none_of_his_own_requests(group: int, is_trusted: bool, tmp_path: Path) -> None:
    daemon = Daemon(config(tmp_path), Manager())
    daemon._roles = Roles("fairgv", "fairgv-admin", 7, 8)
    session = Session(os.geteuid() + 1, frozenset({group}))
    daemon._admit(session)
    assert session.is_trusted == is_trusted


def test_a_daemon_that_begins_says_so(tmp_path: Path) -> None:
    """Commands of the daemon before may ask while parts are put together."""
    with pytest.raises(RefusedError, match="about to begin"):
        Daemon(config(tmp_path), Manager())._handle(Session(os.geteuid()), {"op": "status"})


def test_looking_under_load(host: Host) -> None:
    failures: list[BaseException] = []

    def busy(nr: int) -> None:
        try:
            for _ in range(10):
                with connect(host.state_dir) as connection:
                    os.close(connection.ask("open", name=f"v{nr}", region_bytes=REGION_BYTES)["fd"])
                    connection.ask("status")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=busy, args=(nr % 4,)) for nr in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    wait_until(lambda: not host.status()["vgpus"], "all sessions ended")


def test_a_daemon_without_a_device_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(FairGVError, match="/nowhere/libcuda"):
        start_in_background(config(tmp_path, device="cuda", cuda_library="/nowhere/libcuda.so.1"))
    assert not (tmp_path / "control.sock").exists()
    start_in_background(config(tmp_path))
    stop_host(Host(tmp_path, "soft"))
    assert not (tmp_path / "control.sock").exists()


def test_a_daemon_whose_configuration_names_a_gpu_that_is_not_there(tmp_path: Path) -> None:
    """Who says another one is served."""
    host = start_host(tmp_path, nr_warm_workers=0, vgpu=Entitlement(gpu="1"))
    trouble = "no Gpu of this host is called '1'; see: fairgv-host devices"
    assert host.status()["troubles"] == [f"[vgpu] gpu: {trouble}"]
    with connect(tmp_path) as connection:
        with pytest.raises(RefusedError, match=trouble):
            connection.ask("open", name="any", region_bytes=REGION_BYTES)
        os.close(connection.ask("open", name="bound", region_bytes=REGION_BYTES, gpu="0")["fd"])
    stop_host(host)


def test_what_nobody_says_is_as_configured(tmp_path: Path) -> None:
    host = start_host(tmp_path, nr_warm_workers=0, vgpu=Entitlement(weight=5, quota_bytes=1 << 30))
    with connect(tmp_path) as plain, connect(tmp_path) as heavy:
        os.close(plain.ask("open", name="plain", region_bytes=REGION_BYTES)["fd"])
        os.close(heavy.ask("open", name="heavy", region_bytes=REGION_BYTES, weight=9)["fd"])
        found = {vgpu["name"]: (vgpu["weight"], vgpu["quota_bytes"]) for vgpu in host.status()["vgpus"]}
        assert found == {"plain": (5, 1 << 30), "heavy": (9, 1 << 30)}
        with pytest.raises(RefusedError, match="--gpu: a vGPU keeps what it was made with"):
            plain.ask("set", name="plain", gpu="0")
    stop_host(host)


def test_who_joins_a_vgpu_is_told_what_that_has(tmp_path: Path) -> None:
    """Not what a new one would have beside what was said."""
    host = start_host(tmp_path, nr_warm_workers=0)
    critical = {"class": "critical", "qos": "1.2"}
    with connect(tmp_path) as first, connect(tmp_path) as second:
        os.close(first.ask("open", name="fast", region_bytes=REGION_BYTES, **critical)["fd"])
        there = r"^--qos: the vGPU fast is there already, with another one \(.*class critical.*change it: fairgv-host set fast"
        with pytest.raises(RefusedError, match=there):
            second.ask("open", name="fast", region_bytes=REGION_BYTES, qos="3")
        os.close(second.ask("open", name="fast", region_bytes=REGION_BYTES, qos="1.2")["fd"])
    with (
        connect(tmp_path) as third,
        pytest.raises(FairGVError, match="--qos is for critical vGPUs, and this one is fair"),
    ):
        third.ask("open", name="slow", region_bytes=REGION_BYTES, qos="3")
    stop_host(host)


def test_of_two_daemons_started_at_once_one_serves(tmp_path: Path) -> None:
    started = [launch(config(tmp_path)) for _ in range(3)]
    answers = []
    for _, other_end in started:
        try:
            answers.append(wait_for_start(config(tmp_path), other_end))
        except FairGVError as error:
            assert "already listens" in str(error)
    assert len(answers) == 1
    for pid, other_end in started:
        other_end.close()
        wait_for_end(pid)


def test_a_daemon_nobody_waits_for_ends(tmp_path: Path) -> None:
    pid, other_end = launch(config(tmp_path))
    other_end.close()
    wait_for_end(pid)
    assert "was interrupted" in (tmp_path / "daemon.log").read_text()
    with pytest.raises(DaemonNotRunningError):
        connect(tmp_path)


@pytest.mark.parametrize("is_private", [True, False])
def test_a_daemon_that_is_not_told_to_live_on_ends_with_its_starter(tmp_path: Path, *, is_private: bool) -> None:
    state_dir = tmp_path / "private"
    pid, other_end = launch(config(state_dir, is_private=is_private, goes_around=True))
    wait_for_start(config(state_dir), other_end)
    with connect(state_dir) as connection:
        os.close(connection.ask("open", region_bytes=REGION_BYTES)["fd"])
    with connect(state_dir) as connection:
        assert connection.ask("status")["pid"] == pid
        other_end.close()
        wait_for_end(pid)
    assert state_dir.exists() is not is_private


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_order(tmp_path: Path, number: signal.Signals) -> None:
    host = start_host(tmp_path, nr_warm_workers=1)
    pid = host.status()["pid"]
    with connect(tmp_path) as connection:
        os.close(connection.ask("open", region_bytes=REGION_BYTES)["fd"])
        os.kill(pid, number)
        wait_for_end(pid)
        with pytest.raises(DaemonNotRunningError):
            connection.ask("status")
    assert not (tmp_path / "control.sock").exists()
    assert "Traceback" not in host.log()
    assert "ERROR" not in host.log()


def test_a_stop_from_one_who_does_not_wait_for_the_answer(tmp_path: Path) -> None:
    host = start_host(tmp_path, nr_warm_workers=0)
    pid = host.status()["pid"]
    connection = connect(tmp_path)
    connection._socket.sendall(b'{"op": "stop"}\n')
    connection.close()
    wait_for_end(pid)


def test_it_keeps_no_descriptor_of_its_starter(tmp_path: Path) -> None:
    read_fd, write_fd = os.pipe()
    os.set_inheritable(write_fd, True)
    pid, other_end = launch(config(tmp_path))
    os.close(write_fd)
    wait_for_start(config(tmp_path), other_end)
    assert os.read(read_fd, 1) == b"", "whoever waits for this pipe to close does not wait for the daemon"
    os.close(read_fd)
    other_end.close()
    wait_for_end(pid)


def test_a_second_daemon_in_the_foreground(host: Host) -> None:
    answer = host_command(host.state_dir, "start", "--device", "soft", "--foreground")
    assert answer.returncode == 1
    assert "already listens" in answer.stderr.splitlines()[-1]


def test_in_the_foreground_it_speaks_and_ends_with_a_signal(tmp_path: Path) -> None:
    command = ["start", "--device", "soft", "--foreground"]
    with running(
        [sys.executable, "-m", "backend_host.cli", "--state-dir", str(tmp_path), *command], stderr=subprocess.PIPE
    ) as child:
        assert child.stderr is not None
        assert any(line.startswith("device: ") for line in iter(child.stderr.readline, ""))
        child.send_signal(signal.SIGINT)
        rest = child.stderr.read()
        assert child.wait(60) == 0
        assert "Traceback" not in rest


@pytest.mark.timeout(30)
@pytest.mark.parametrize("line", range(24))
def test_a_signal_at_any_point_of_waiting_is_seen(line: int) -> None:
    """The handler runs before the given line of `wait`, counted through the Python code that it calls."""
    latch = Latch()
    lines = itertools.count()

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if event == "line" and next(lines) == line:
            signal.raise_signal(signal.SIGUSR1)
        return trace

    before = signal.signal(signal.SIGUSR1, lambda *_: latch.set())
    last_resort = threading.Timer(0.2, latch.set)  # `wait` has fewer lines than that
    last_resort.start()
    try:
        sys.settrace(trace)
        latch.wait()
    finally:
        sys.settrace(None)
        signal.signal(signal.SIGUSR1, before)
        last_resort.join()
    assert latch.is_set()


@pytest.mark.timeout(30)
def test_a_signal_that_another_thread_gets_is_seen() -> None:
    """The main thread sleeps by then, and its sleep does not end. So it is where a signal comes when it is about to sleep."""
    latch = Latch()
    before = signal.signal(signal.SIGUSR1, lambda *_: latch.set())
    sleeps = Path(f"/proc/{os.getpid()}/task/{threading.get_native_id()}/wchan")

    def gets_it() -> None:
        while "poll" not in sleeps.read_text():
            pass
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)

    thread = threading.Thread(target=gets_it)
    thread.start()
    try:
        latch.wait()
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, before)


def test_workers_that_cannot_start(tmp_path: Path) -> None:
    """The device answered at the start and is gone now: every program is told, none waits, nothing is tried for ever."""
    library = tmp_path / "libcuda.so.1"
    shutil.copy(Config().softgpu_library, library)
    host = start_host(tmp_path, softgpu_library=str(library), nr_warm_workers=0)
    library.unlink()
    for _ in range(2):
        result = host.guest("vector_add")
        assert result.returncode == 1
        assert "cudaErrorSystemNotReady" in result.stdout + result.stderr
        assert "the host refused to serve this program" in result.stderr
    assert host.log().count("is refused: its worker ended with status 3") == 2
    assert host.log().count("cannot open the device library") == 2
    assert host.status()["vgpus"] == []
    shutil.copy(Config().softgpu_library, library)
    assert host.guest("vector_add").returncode == 0, "as soon as it can, it serves again"
    stop_host(host)


def test_daemon_and_worker_die_and_a_waiting_program_learns_of_it(tmp_path: Path) -> None:
    host = start_host(tmp_path)
    child = host.start("spin", "60000")
    assert child.stdout is not None
    assert child.stdout.readline() == "running\n"
    wait_until(lambda: len(host.status()["vgpus"][0]["clients"]) == 1, "the program is served")
    status = host.status()
    os.kill(status["pid"], signal.SIGKILL)
    os.kill(status["vgpus"][0]["clients"][0]["worker_pid"], signal.SIGKILL)
    output, errors = child.communicate(timeout=60)
    assert child.returncode == 1
    assert "synchronize: cudaErrorDevicesUnavailable" in output
    assert errors.count("fairgv: ") == 1


def test_the_ready_pipe_in_the_foreground(capsys: pytest.CaptureFixture[str]) -> None:
    pipe = ReadyPipe(None)
    pipe.ready("device: this one")
    pipe.failed(DaemonRunningError("another one"))
    assert capsys.readouterr().err == "device: this one\nfairgv-host: another one\n"


def test_status_is_what_the_command_prints(host: Host) -> None:
    with connect(host.state_dir) as connection:
        status = connection.ask("status")
    printed = json.loads(host_command(host.state_dir, "status", "--json").stdout)
    assert status.keys() == printed.keys()
    assert status["device"] == printed["device"]
    assert status["policy"] == DEFAULT_POLICY


def test_after_a_daemon_that_died_nothing_stays_behind(tmp_path: Path) -> None:
    host = start_host(tmp_path)
    child = host.start("spin", "300")
    assert child.stdout is not None
    assert child.stdout.readline() == "running\n"
    daemon = host.status()["pid"]
    children = [path.read_text().split() for path in Path(f"/proc/{daemon}/task").glob("*/children")]
    started = [int(pid) for pids in children for pid in pids]
    store = next(pid for pid in started if b"backend_host.restart.keeping" in Path(f"/proc/{pid}/cmdline").read_bytes())
    workers = [
        pid for pid in started if pid != store
    ]  # the store waits a moment for the next daemon (tests/backend_host/restart)
    assert workers
    os.kill(daemon, signal.SIGKILL)
    output, errors = child.communicate(timeout=60)
    assert child.returncode == 0, output + errors
    for worker in workers:  # the warm one is among them
        wait_for_end(worker)
