"""`fairgv-run`: the program's exit status, its signals, a private daemon that leaves nothing behind."""

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backend_host.config import PACKAGE_ROOT, Config, load_config
from backend_host.errors import FairGVError
from backend_host.ipc import Connection
from backend_host.launching import wait_for_end
from backend_host.private_daemon import private_daemon
from tests.children import is_there, running
from tests.end_to_end.host import PROGRAMS, Host, own_device, start_host, stop_host, wait_until

COUNTER = """
import os, signal, sys
def said(number, frame):
    os.write(1, signal.Signals(number).name.encode() + b"\\n")
    if number == signal.SIGUSR1:
        os._exit(3)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR2, signal.SIGUSR1):
    signal.signal(number, said)
os.write(1, b"ready\\n")
while True:
    signal.pause()
"""
PRIVATE = """
import sys
from pathlib import Path
from backend_host import ipc, run
run.default_state_dir = ipc.default_state_dir = lambda: Path("/nowhere")
sys.exit(run.main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    running = start_host(tmp_path_factory.mktemp("host"), nr_warm_workers=0)
    yield running
    stop_host(running)


def command(host: Host, *program: str) -> list[str]:
    return [sys.executable, "-m", "backend_host.run", "--state-dir", str(host.state_dir), "--", *program]


def test_it_imports_nothing_that_a_short_program_would_wait_for() -> None:
    """What prints tables, reads settings or starts daemons takes twice as long to import as all the rest takes."""
    code = "import sys, backend_host.run; print(*{name.partition('.')[0] for name in sys.modules}, *sys.modules)"
    command = [sys.executable, "-S", "-c", code]  # what other packages have imported at every start is not ours
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE_ROOT)}
    found = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.split()
    assert "backend_host.ipc" in found
    assert {"rich", "tomllib", "tempfile", "cffi", "backend_host.config"}.isdisjoint(found)
    small = {"scheduler", "scheduler.command_line", "scheduler.version"}
    assert {name for name in found if name.startswith("scheduler")} == small


def read_until(fd: int, text: str) -> str:
    found = b""
    while text.encode() not in found:
        data = os.read(fd, 4096)
        assert data, found
        found += data
    return found.decode()


def test_a_program_that_is_not_there(host: Host) -> None:
    result = host.guest("/nowhere/program")
    assert result.returncode == 127
    assert result.stderr == "fairgv-run: cannot run /nowhere/program: No such file or directory\n"
    assert result.stdout == ""


def test_a_program_that_cannot_be_executed(host: Host, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no program\n")
    (tmp_path / "text").chmod(0o644)
    result = host.guest(tmp_path / "text")
    assert result.returncode == 126
    assert "Permission denied" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_program_is_found_as_a_shell_finds_it(host: Host) -> None:
    assert subprocess.run(command(host, "true"), check=False).returncode == 0


def test_no_program_is_wrong_usage(host: Host) -> None:
    assert subprocess.run(command(host), stderr=subprocess.PIPE, check=False).returncode == 2


def test_refusals_are_one_line(host: Host) -> None:
    result = host.guest("/bin/true", options=("--vgpu", "no name"))
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1


def test_the_program_inherits_nothing_of_ours(host: Host) -> None:
    listing = "for fd in /proc/self/fd/*; do readlink $fd; done"
    result = host.guest("/bin/sh", "-c", listing)
    assert "memfd" not in result.stdout
    assert "socket" not in result.stdout


def signal_sets(command: list[str]) -> list[int]:
    """Blocked and ignored signals of a process started like this, without the two that libc keeps to itself (32 and 33)."""
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [int(line.split()[1], 16) & 0x7FFFFFFF for line in output.splitlines()]


def test_dispositions_and_mask_are_the_callers(host: Host) -> None:
    report = ["/bin/sh", "-c", "grep -E 'Sig(Ign|Blk)' /proc/self/status"]
    without_hangup = ["/bin/sh", "-c", 'trap "" HUP; "$@"', "sh"]
    assert signal_sets(command(host, *report)) == signal_sets(report) == [0, 0]
    ignored = 1 << (signal.SIGHUP - 1)
    assert signal_sets([*without_hangup, *command(host, *report)]) == signal_sets([*without_hangup, *report])
    assert signal_sets([*without_hangup, *report]) == [0, ignored]


def test_a_signal_reaches_the_program_once(host: Host) -> None:
    child = host.start(sys.executable, "-c", COUNTER)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR2):
        child.send_signal(number)
        assert child.stdout.readline() == f"{number.name}\n"
    child.send_signal(signal.SIGUSR1)
    output, _ = child.communicate(timeout=60)
    assert output == "SIGUSR1\n"
    assert child.returncode == 3


def test_the_end_by_a_signal_is_told_as_a_shell_tells_it(host: Host) -> None:
    child = host.start("/bin/sh", "-c", "echo started; exec sleep 60")
    assert child.stdout is not None
    assert child.stdout.readline() == "started\n"
    child.terminate()
    child.communicate(timeout=60)
    assert child.returncode == 128 + signal.SIGTERM


@pytest.mark.parametrize("is_input_terminal", [True, False])
def test_ctrl_c_reaches_the_program_once(host: Host, is_input_terminal: bool) -> None:
    ours, terminal = pty.openpty()
    own_the_terminal = [
        "setsid",
        "--ctty",
        "/bin/sh",
        "-c",
        'exec "$@"' + ("" if is_input_terminal else " </dev/null"),
        "sh",
    ]
    with running(
        [*own_the_terminal, *command(host, sys.executable, "-c", COUNTER)],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
    ) as child:
        read_until(ours, "ready")
        os.write(ours, b"\x03")
        output = read_until(ours, "SIGINT")
        child.send_signal(signal.SIGUSR1)
        output += read_until(ours, "SIGUSR1")
        assert output.count("SIGINT") == 1
        assert child.wait(60) == 3
    os.close(terminal)
    os.close(ours)


def test_a_command_that_is_killed_takes_its_program_with_it(host: Host) -> None:
    child = host.start("/bin/sh", "-c", "trap '' TERM INT HUP; echo $$; while :; do sleep 1; done")
    assert child.stdout is not None
    program = int(child.stdout.readline())
    child.kill()
    child.wait()
    wait_until(lambda: not is_there(program), "the program ended")
    child.communicate()


def test_what_a_killed_program_had_started_loses_its_gpu(host: Host, tmp_path: Path) -> None:
    """The kernel kills the program alone; the vGPU ends with the command, and with it every call of whoever is left."""
    said = tmp_path / "said"
    child = host.start("/bin/sh", "-c", f"{PROGRAMS}/spin 600000 >{said} 2>&1; :")
    wait_until(lambda: said.exists() and said.read_text() == "running\n", "the kernel runs")
    child.kill()
    child.communicate()
    wait_until(lambda: "cudaErrorDevicesUnavailable" in said.read_text(), "the call has failed")
    wait_until(lambda: not host.status()["vgpus"], "the vGPU is gone")


class Private:
    """Commands with a daemon of their own, whose directories are all below `place`. `device`: where softgpu keeps what its processes share."""

    def __init__(self, place: Path, device: Path) -> None:
        self.place = place
        mine = {"TMPDIR": str(place), "FAIRGV_SOFTGPU_STATE": str(device), "PYTHONPATH": str(PACKAGE_ROOT)}
        self.environment = {**os.environ, **mine}

    def start(
        self, *program: str, device: str = "soft", options: tuple[str, ...] = (), stdin: int | None = None
    ) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", PRIVATE, "--device", device, *options, "--", *program],
            env=self.environment,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def processes(self) -> list[str]:
        """Command lines that name the place: daemons."""
        found = []
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                line = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if str(self.place) in line:
                found.append(line)
        return found

    def assert_nothing_is_left(self) -> None:
        wait_until(lambda: not self.processes(), "the daemon ended")
        assert list(self.place.iterdir()) == []


@pytest.fixture
def private(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Private:
    return Private(tmp_path, tmp_path_factory.mktemp("device") / "device")


def test_a_private_daemon_serves_and_goes(private: Private) -> None:
    child = private.start(str(PROGRAMS / "vector_add"))
    output, errors = child.communicate(timeout=60)
    assert child.returncode == 0, output + errors
    assert private.processes() == []
    assert list(private.place.iterdir()) == []
    assert errors == (
        "fairgv-run: no daemon listens on /nowhere/control.sock; start one with: fairgv-host start. A private one serves this program alone, "
        "by no weights (--private: without this line)\n"
    )


def test_a_private_daemon_that_was_asked_for_is_no_news(private: Private) -> None:
    child = private.start("/bin/true", options=("--private",))
    _, errors = child.communicate(timeout=60)
    assert (child.returncode, errors) == (0, "")


def test_a_private_daemon_goes_around_another_one_only_when_asked(host: Host, private: Private) -> None:
    private.environment.update(own_device(host.state_dir))
    child = private.start("/bin/true")
    _, errors = child.communicate(timeout=60)
    assert child.returncode == 1
    assert len(errors.splitlines()) == 1
    assert "FairGV softgpu is served by the daemon of" in errors
    assert f"(process {host.status()['pid']})" in errors
    assert "--private" in errors
    private.assert_nothing_is_left()
    child = private.start(str(PROGRAMS / "vector_add"), options=("--private",))
    output, errors = child.communicate(timeout=60)
    assert (child.returncode, errors) == (0, ""), output


def test_the_device_of_a_daemon_that_runs_is_what_it_is(host: Host) -> None:
    refused = host.guest("/bin/true", options=("--device", "cuda"))
    assert refused.returncode == 1
    assert f"the daemon on {host.state_dir}/control.sock serves the device soft" in refused.stderr
    assert "--private" in refused.stderr
    for device in ("soft", "auto"):
        assert host.guest("/bin/true", options=("--device", device)).returncode == 0


def test_a_daemon_of_ones_own_and_another_one_exclude_each_other(host: Host) -> None:
    assert host.guest("/bin/true", options=("--private",)).returncode == 2


def test_a_private_daemon_goes_when_its_command_was_killed(private: Private) -> None:
    child = private.start("/bin/sh", "-c", "echo $$; exec sleep 60")
    assert child.stdout is not None
    program = int(child.stdout.readline())
    child.kill()
    child.wait()
    private.assert_nothing_is_left()
    wait_until(lambda: not is_there(program), "the program ended")
    child.communicate()


def test_what_a_private_daemon_had_to_say_is_not_lost(private: Private) -> None:
    child = private.start("/bin/sh", "-c", "echo started; exec sleep 60")
    assert child.stdout is not None
    assert child.stdout.readline() == "started\n"
    [state_dir] = private.place.iterdir()
    with Connection(state_dir / "control.sock") as connection:
        daemon = connection.ask("status")["pid"]
    threads = Path(f"/proc/{daemon}/task")
    wait_until(lambda: any(path.read_text() for path in threads.glob("*/children")), "a worker is kept warm")
    [worker] = [int(pid) for path in threads.glob("*/children") for pid in path.read_text().split()]
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: " ERROR " in (state_dir / "daemon.log").read_text(), "the daemon noticed")
    child.terminate()
    _, errors = child.communicate(timeout=60)
    assert "the daemon said" in errors
    assert "before it had a client" in errors
    private.assert_nothing_is_left()


def test_why_a_private_daemon_failed_at_its_start_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its log goes with its folder."""

    def load(*arguments: Any, **settings: Any) -> Config:
        return replace(load_config(*arguments, **settings), policy="none of them")

    monkeypatch.setattr("backend_host.private_daemon.load_config", load)
    with pytest.raises(FairGVError, match=r"ended at its start(.*\n)*.*no scheduling policy is called "):
        private_daemon("soft", goes_around=True).__enter__()


def test_a_private_daemon_that_ends_before_its_program_is_told(private: Private) -> None:
    child = private.start("/bin/sh", "-c", "echo started; read line; exit 3", stdin=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == "started\n"
    [state_dir] = private.place.iterdir()
    with Connection(state_dir / "control.sock") as connection:
        daemon = connection.ask("status")["pid"]
    os.kill(daemon, signal.SIGTERM)
    wait_for_end(daemon)
    _, errors = child.communicate("\n", timeout=60)
    assert child.returncode == 3
    assert "fairgv-run: the daemon ended before the program; the end of" in errors
    assert errors.endswith(" stopping\n")
    private.assert_nothing_is_left()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_private_daemon_goes_when_its_start_was_interrupted(private: Private, number: signal.Signals) -> None:
    child = private.start("/bin/true")
    wait_until(lambda: bool(list(private.place.glob("*/control.lock"))), "the daemon is starting")
    child.send_signal(number)
    output, errors = child.communicate(timeout=60)
    private.assert_nothing_is_left()
    assert child.returncode != 0
    assert output == ""
    assert "Traceback" not in errors


def test_a_private_daemon_without_a_device(private: Private) -> None:
    if Path("/dev/nvidiactl").exists():
        pytest.skip("there is a device")
    child = private.start("/bin/true", device="cuda")
    _, errors = child.communicate(timeout=60)
    assert child.returncode == 1
    assert len(errors.splitlines()) == 1
    assert Config().cuda_library in errors
    private.assert_nothing_is_left()
