"""Starts a daemon, and waits for its word and for its end: for `fairgv-host`, and for commands that have a private one."""

import contextlib
import json
import os
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from backend_host.config import PACKAGE_ROOT, Config
from backend_host.errors import DaemonNotRunningError, FairGVError
from backend_host.ipc import Connection
from backend_host.ready import LIVE_ON
from backend_host.state_dir import make_state_dir, read_log_tail

START_TIMEOUT_S = 300
STOP_TIMEOUT_S = 60


def start_in_background(config: Config, environment: Mapping[str, str] | None = None) -> str:
    """Starts a daemon that outlives us, waits until it serves; returns its sentence. Raises FairGVError with its reason. `environment`: other
    variables than ours."""
    _, other_end = launch(config, environment)
    with other_end:
        sentence = wait_for_start(config, other_end)
        try:
            other_end.sendall(LIVE_ON)
        except OSError:
            raise FairGVError(how_it_ended(config, "at once")) from None
    return sentence


@contextlib.contextmanager
def daemon_for_now(config: Config) -> Iterator[int]:
    """A daemon for the block; its process id. It ends with the block, and with this process, however that ends. FairGVError with its reason
    when it does not start."""
    pid, other_end = launch(config)
    with contextlib.ExitStack() as stack:
        stack.callback(wait_for_end, pid)
        stack.enter_context(other_end)
        wait_for_start(config, other_end)
        yield pid


def launch(config: Config, environment: Mapping[str, str] | None = None) -> tuple[int, socket.socket]:
    """Starts a daemon's process; its id, and the socket on which it says that it serves.

    It ends when the socket is closed, unless it was told there to live on.
    """
    make_state_dir(config.state_dir)
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.set_inheritable(True)
        try:
            pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-P", "-m", "backend_host.daemon", str(theirs.fileno()), config.to_json()],
                {**(os.environ if environment is None else environment), "PYTHONPATH": str(PACKAGE_ROOT)},
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDWR, 0),
                    (os.POSIX_SPAWN_OPEN, 1, str(config.log_path), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
                    (os.POSIX_SPAWN_DUP2, 1, 2),
                ],
                setsid=True,
                setsigmask=[],
            )
        except OSError as error:
            ours.close()
            raise FairGVError(f"cannot start a daemon that logs to {config.log_path}: {error.strerror}") from error
    return pid, ours


def wait_for_start(config: Config, other_end: socket.socket) -> str:
    """The daemon's sentence once it serves. Raises FairGVError with its reason when it does not."""
    other_end.settimeout(START_TIMEOUT_S)
    answer = b""
    try:
        while not answer.endswith(b"\n"):
            data = other_end.recv(65536)
            if not data:
                raise FairGVError(how_it_ended(config, "at its start"))
            answer += data
    except OSError as error:
        raise FairGVError(f"no word from the daemon ({error}); look at {config.log_path}") from error
    message = json.loads(answer)
    if "error" in message:
        raise FairGVError(str(message["error"]))
    return str(message["ready"])


def how_it_ended(config: Config, when: str) -> str:
    """A daemon of which nobody expected that. `when`: words that go on after "the daemon ended"."""
    words = read_log_tail(config.log_path)
    return f"the daemon ended {when}" + (f"; the end of {config.log_path}:\n{words}" if words else ", and said nothing")


def wait_for_next(config: Config) -> None:
    """Returns when a daemon that somebody else starts answers. FairGVError after START_TIMEOUT_S."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            with Connection(config.socket_path) as connection:
                connection.ask("status")
            return
        except DaemonNotRunningError as error:
            if time.monotonic() > deadline:
                raise FairGVError(f"no daemon was started for {START_TIMEOUT_S} s ({error})") from error
        time.sleep(0.1)


def wait_for_end(pid: int) -> None:
    """Returns when the process is gone; FairGVError after STOP_TIMEOUT_S."""
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while is_alive(pid):
        if time.monotonic() > deadline:
            raise FairGVError(f"the daemon (process {pid}) has not ended after {STOP_TIMEOUT_S} s; look at its log")
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    """A daemon that this very process started stays behind as a zombie; it has ended all the same."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
