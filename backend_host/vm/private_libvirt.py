"""A libvirtd of our own for the demo and the tests: it sees none of the user's machines, and leaves nothing behind.

libvirtd keeps all of its state (sockets, definitions, caches, logs) in the user's XDG folders when it does not run as
root. So one that runs with those folders in a temporary place is private: no cgroups, no networks, no firewall rules,
nothing under /var, /run or /etc. For root the same is done as the unprivileged user QEMU has anyway: an instance that
may not touch the host cannot. Guests use direct kernel boot and no network, so nothing else is needed. virtlogd is not
either: QEMU writes its logs by itself (`stdio_handler = "file"`). Needs no systemd, and works beside one.

The end of the block destroys the domains, ends libvirtd, ends each QEMU that is still there (named by its pid file,
held by a pidfd so that no other process can be meant), and removes the regions of its domains and the folder. Where this process is killed, a
child of it does as much (`python -m backend_host.vm.private_libvirt FOLDER`): the end of its standard input tells it.
"""

import contextlib
import grp
import os
import pwd
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Self

from backend_host.config import PACKAGE_ROOT
from backend_host.vm.accelerator import KVM_DEVICE
from backend_host.vm.connection import connected, load_libvirt
from backend_host.vm.errors import VmError
from backend_host.vm.interrupts import delayed_signals
from backend_host.vm.region_file import region_name, remove_region_file

START_LIMIT_S = 60
END_LIMIT_S = 15
LONGEST_PARENT = 40
"""Characters of the folder to be created in."""
_PREFERRED_USERS = ("libvirt-qemu", "qemu", "nobody")

_LIBVIRTD_CONFIG = """\
log_outputs = "3:file:{folder}/libvirtd.log"
log_level = 3
"""
_QEMU_CONFIG = """\
stdio_handler = "file"
security_driver = "none"
"""


class PrivateLibvirt:
    """Use as a context manager; `uri` is what libvirt clients connect to, `folder` a place that QEMU can read."""

    def __init__(self) -> None:
        self.folder = Path()
        self.uri = ""
        self._daemon: subprocess.Popen[bytes] | None = None
        self._heir: subprocess.Popen[bytes] | None = None
        self._guests: set[str] = set()
        self._user = _unprivileged_user() if os.geteuid() == 0 else None

    def __enter__(self) -> Self:
        program = _find_libvirtd()
        load_libvirt()
        # libvirt puts sockets below it, and their paths end at 107 bytes.
        parent = tempfile.gettempdir() if len(tempfile.gettempdir()) <= LONGEST_PARENT else "/tmp"
        self.folder = Path(tempfile.mkdtemp(prefix="fairgv-vm-", dir=parent))
        try:
            self._heir = subprocess.Popen(
                [sys.executable, "-m", "backend_host.vm.private_libvirt", str(self.folder)],
                stdin=subprocess.PIPE,
                cwd=PACKAGE_ROOT,
                start_new_session=True,
            )
            self._lay_out()
            self._start(program)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self._end()

    def remember(self, uuid: str) -> None:
        """A guest whose region is to be gone in the end. A FairGV daemon that looked at its domain just before that was undefined may make it
        anew, and be ended before it looks again.
        """
        self._guests.add(uuid)

    def hand_over(self, path: Path) -> None:
        """Makes a file or socket in `folder` the instance's own, so that its QEMU can open it."""
        if self._user:
            os.chown(path, *self._user)

    @contextlib.contextmanager
    def without_libvirtd(self) -> Iterator[None]:
        """For the block libvirtd is away, as when its package is updated; guests run on."""
        self._end_daemon()
        try:
            yield
        finally:
            self._start(_find_libvirtd())

    def _lay_out(self) -> None:
        for name in ("run", "config/libvirt", "cache", "data"):
            (self.folder / name).mkdir(parents=True, mode=0o700)
        (self.folder / "libvirtd.conf").write_text(_LIBVIRTD_CONFIG.format(folder=self.folder))
        (self.folder / "config/libvirt/qemu.conf").write_text(_QEMU_CONFIG)
        for path in (self.folder, *self.folder.rglob("*")):
            self.hand_over(path)
        self.uri = f"qemu+unix:///session?socket={self.folder}/run/libvirt/libvirt-sock"

    def _start(self, program: Path) -> None:
        kept = {name: os.environ[name] for name in ("LANG", "TMPDIR") if name in os.environ}
        environment = {
            **kept,
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(self.folder),
            "XDG_RUNTIME_DIR": str(self.folder / "run"),
            "XDG_CONFIG_HOME": str(self.folder / "config"),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            "XDG_DATA_HOME": str(self.folder / "data"),
        }
        identity: dict[str, Any] = {}
        if self._user:
            identity = {"user": self._user[0], "group": self._user[1], "extra_groups": _device_groups()}
        with (self.folder / "libvirtd.out").open("wb") as output:
            self._daemon = subprocess.Popen(
                [str(program), "--config", str(self.folder / "libvirtd.conf")],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=self.folder,
                start_new_session=True,
                **identity,
            )
        self._await_answer()

    def _await_answer(self) -> None:
        assert self._daemon is not None
        deadline = time.monotonic() + START_LIMIT_S
        while True:
            try:
                with connected(self.uri):
                    return
            except VmError as error:
                if self._daemon.poll() is not None or time.monotonic() > deadline:
                    raise VmError(f"a private libvirtd does not start: {self._last_words() or error}") from error
                time.sleep(0.05)

    def _last_words(self) -> str:
        for name in ("libvirtd.log", "libvirtd.out"):
            with contextlib.suppress(OSError):
                if text := (self.folder / name).read_text(errors="replace").strip():
                    return text.splitlines()[-1]
        return ""

    def _end(self) -> None:
        """Each step happens whatever becomes of the one before: last in, first out."""
        with delayed_signals(), contextlib.ExitStack() as steps:
            steps.callback(self._end_heir)
            steps.callback(shutil.rmtree, self.folder)
            processes: list[int] = []
            steps.callback(_end_processes, processes)
            steps.callback(self._end_daemon)
            steps.callback(_find_processes, self.folder, processes)
            steps.callback(_remove_regions, self.folder, self._guests)
            self._destroy_domains()

    def _end_heir(self) -> None:
        """It finds nothing left."""
        if self._heir is not None:
            self._heir.communicate()

    def _end_daemon(self) -> None:
        if self._daemon is None:
            return
        self._daemon.terminate()
        try:
            self._daemon.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._daemon.kill()
            self._daemon.wait()

    def _destroy_domains(self) -> None:
        """Whatever does not end here is ended by its pid afterwards."""
        if self._daemon is None or self._daemon.poll() is not None:
            return
        libvirt = load_libvirt()
        with contextlib.suppress(VmError), connected(self.uri) as connection:
            for domain in connection.listAllDomains():
                with contextlib.suppress(libvirt.libvirtError):
                    domain.destroy()


def _remove_regions(folder: Path, guests: Iterable[str]) -> None:
    """Those of all domains that the instance's own files name, and of those that have been there."""
    for uuid in guests:
        remove_region_file(region_name(uuid))
    for path in (*folder.glob("config/libvirt/qemu/*.xml"), *folder.glob("run/libvirt/qemu/run/*.xml")):
        with contextlib.suppress(OSError):
            for uuid in re.findall(r"<uuid>([0-9a-f-]{36})</uuid>", path.read_text()):
                remove_region_file(region_name(uuid))


def _find_processes(folder: Path, found: list[int]) -> None:
    """Adds a pidfd for each process of this instance that is still there: libvirtd, and QEMU."""
    for pid_file in folder.glob("run/libvirt/**/*.pid"):
        with contextlib.suppress(OSError, ValueError):
            number = int(pid_file.read_text())
            descriptor = os.pidfd_open(number)
            if str(folder).encode() in Path(f"/proc/{number}/cmdline").read_bytes():
                found.append(descriptor)
            else:
                os.close(descriptor)


def inherit(folder: Path) -> None:
    """Waits for the end of standard input, and cleans up what is left of the instance then."""
    sys.stdin.buffer.read()
    processes: list[int] = []
    _find_processes(folder, processes)
    _end_processes(processes)
    _remove_regions(folder, ())
    shutil.rmtree(folder, ignore_errors=True)


def _end_processes(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        select.select([descriptor], [], [], END_LIMIT_S)
        os.close(descriptor)


def _find_libvirtd() -> Path:
    found = shutil.which("libvirtd", path="/usr/sbin:/usr/local/sbin:/sbin:/usr/bin")
    if not found:
        raise VmError("libvirtd is not installed: install the packages libvirt-daemon-system and libvirt-clients")
    return Path(found)


def _unprivileged_user() -> tuple[int, int]:
    """User and group. Debian gives libvirt-qemu the group kvm, which users of the desktop share; its own group is
    private.
    """
    for name in _PREFERRED_USERS:
        with contextlib.suppress(KeyError):
            user = pwd.getpwnam(name)
            try:
                return user.pw_uid, grp.getgrnam(name).gr_gid
            except KeyError:
                return user.pw_uid, user.pw_gid
    raise VmError(f"none of the users {', '.join(_PREFERRED_USERS)} exists here to run a private libvirtd as")


def _device_groups() -> list[int]:
    """The group that may use KVM."""
    if not KVM_DEVICE.exists():
        return []
    number = KVM_DEVICE.stat().st_gid
    with contextlib.suppress(KeyError):  # in a container it may be a group of the host's, with no name here
        return [number] if grp.getgrgid(number).gr_name == "kvm" else []
    return []


if __name__ == "__main__":
    inherit(Path(sys.argv[1]))
