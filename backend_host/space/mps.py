"""NVIDIA's Multi-Process Service: a control daemon with folders of its own, which starts a server for its clients and ends them when told.

Programs that carry its variables become its clients, if they are of the user that it runs as: measured on an H100 (docs/lab/space-mps.md),
one that runs as an ordinary user serves that user alone.

Wrong when: its programs hang. Each question has a limit, and who asks goes on without an answer.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

from backend_host.children import run_within
from backend_host.errors import FairGVError
from backend_host.worker_start import is_open_to_others

CONTROL = "nvidia-cuda-mps-control"
CLIENTS = 48
"""That one server serves; the next one gets CUDA error 808."""
_PROGRAMS = "nvidia-cuda-mps"
"""What begins the names of its processes, of which the kernel keeps 15 characters."""
_LIMIT_S = 10.0
_SOCKET_PATH_BYTES = 108
"""Of the address of a UNIX socket, with the byte that ends it."""


class MpsError(FairGVError):
    """MPS is not to be had, or does not answer; the text says what it said."""


def find_control() -> str:
    """The path of its control program. Raises MpsError."""
    program = shutil.which(CONTROL)
    if program is None:
        raise MpsError(
            f"there is no {CONTROL} on this machine: it comes with NVIDIA's driver, in a package of its own on some systems"
        )
    return program


class Mps:
    """One control daemon, whose folders are below `folder`."""

    def __init__(self, folder: Path, uid: int = 0, visible: str = "") -> None:
        """`uid`: who runs it, where we are root; 0: we ourselves. `visible`: the devices that it serves, as CUDA_VISIBLE_DEVICES has it."""
        self.folder, self._uid = folder, uid
        self.pipe = folder / "pipe"
        self._visible = {"CUDA_VISIBLE_DEVICES": visible} if visible else {}

    @property
    def of_clients(self) -> dict[str, str]:
        """What makes a program a client. It sees the devices that are served, as their UUIDs."""
        return {"CUDA_MPS_PIPE_DIRECTORY": str(self.pipe), **self._visible}

    def make_folders(self) -> None:
        """For the user alone that it runs as. Raises MpsError."""
        longest = self.pipe / "control_privileged"
        if len(os.fsencode(longest)) >= _SOCKET_PATH_BYTES:
            raise MpsError(
                f"the path {longest} is too long for a socket: choose a shorter state directory with --state-dir"
            )
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            for folder in (self.folder.parent, self.folder) if self._uid else ():
                folder.chmod(0o711)  # whatever our umask is
            for folder in (self.pipe, self.folder / "log"):
                folder.mkdir(mode=0o700, exist_ok=True)
                if self._uid:
                    os.chown(folder, self._uid, self._uid)
        except OSError as error:
            raise MpsError(f"no folders for MPS at {self.folder}: {error.strerror}") from error
        if self._uid and not is_open_to_others(self.folder):
            raise MpsError(
                f"user {self._uid}, whom MPS runs as, may not enter {self.folder}: chmod o+x the folders on the way to it, or choose another "
                "state directory with --state-dir"
            )

    def start(self) -> None:
        """Raises MpsError."""
        program = find_control()
        self.make_folders()
        self._run([program, "-d"])

    def ensure(self) -> None:
        """Starts it, unless one that an earlier daemon of ours started answers. Raises MpsError."""
        if not self.answers():
            self._end_processes()
            self.start()

    def answers(self) -> bool:
        """Whether it is there."""
        try:
            self.servers()
        except MpsError:
            return False
        return True

    def servers(self) -> list[int]:
        """The process ids of its servers: none before the first client came. Raises MpsError."""
        return [int(word) for word in self.ask("get_server_list").split() if word.isdecimal()]

    def ask(self, command: str) -> str:
        """What it answers to one line. Raises MpsError."""
        return self._run([find_control()], f"{command}\n")

    def terminate_client(self, pid: int) -> None:
        """Ends the work of a client, whose next call gets CUDA error 810, while the others go on. Raises MpsError."""
        for server in self.servers():
            self.ask(f"terminate_client {server} {pid}")

    def quit(self) -> None:
        """Ends it and its servers, clients or not, and removes its folders."""
        with contextlib.suppress(MpsError):
            self.ask("quit -t 1")
        self._end_processes()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, command: list[str], text: str = "") -> str:
        folders = {"CUDA_MPS_PIPE_DIRECTORY": str(self.pipe), "CUDA_MPS_LOG_DIRECTORY": str(self.folder / "log")}
        user = self._uid or None
        try:
            result = run_within(
                _LIMIT_S,
                command,
                text,
                env={**_plain(os.environ), **self._visible, **folders},
                cwd="/",
                user=user,
                group=user,
                extra_groups=() if user else None,
            )
        except subprocess.TimeoutExpired:
            raise MpsError(f"{CONTROL} gave no answer within {_LIMIT_S:g} s") from None
        except (OSError, subprocess.SubprocessError) as error:
            raise MpsError(f"{CONTROL} cannot be run: {error}") from error
        if result.returncode != 0:
            raise MpsError(f"{CONTROL}: {_words(result)}")
        return result.stdout

    def _end_processes(self) -> None:
        """Those of its user that did not end when told. What its folders say of them may be written by a worker of that user, so it is not
        asked; of ourselves there may be others."""
        if not self._uid:
            return
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has ended
                pidfd = os.pidfd_open(int(process.name))
                try:
                    if _is_of(process, self._uid):
                        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                finally:
                    os.close(pidfd)


def _is_of(process: Path, uid: int) -> bool:
    """Whether it is one of MPS's, and this user's."""
    status = (process / "status").read_text(errors="replace")
    users = re.search(r"^Uid:\t(\d+)", status, re.MULTILINE)
    is_mps = (process / "comm").read_text(errors="replace").startswith(_PROGRAMS)
    return is_mps and users is not None and int(users[1]) == uid


def _plain(environment: Mapping[str, str]) -> dict[str, str]:
    """Without what would have it serve others."""
    return {name: value for name, value in environment.items() if not name.startswith("CUDA_")}


def _words(result: subprocess.CompletedProcess[str]) -> str:
    lines = (result.stderr + result.stdout).strip().splitlines()
    return lines[-1] if lines else f"exit status {result.returncode}"
