"""The house of a long run: a daemon in its own folder, on a small disk where that can be had, maybe with a machine; what is left behind."""

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.children import is_there
from tests.end_to_end.host import start_host, stop_host
from tests.endurance import processes
from tests.endurance.conditions import DISK_BYTES
from tests.endurance.machine import Machine
from tests.endurance.operations import spare
from tests.endurance.programs import ask

LIMIT_S = 60
"""What has not ended by then hangs. Rounds take seconds, on a loaded machine ten."""
MORE_THAN_THERE_IS = {"device_memory_bytes": 112 << 20, "oversubscribe": 3.0, "swap_bytes": 1 << 30}
"""Room for one program of `LARGE` at a time."""
LARGE = ("much_memory", "64")


def within(is_so: Callable[[], bool], limit_s: float = LIMIT_S) -> bool:
    """Whether it comes about in time."""
    deadline = time.monotonic() + limit_s
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


class House:
    """One daemon after another, over one state directory."""

    def __init__(self, state_dir: Path, machine: Machine | None = None, *, is_large: bool = False) -> None:
        """`is_large`: it has a second Gpu, to which vGPUs come by moves alone, and programs may have more memory than there is."""
        self.state_dir = state_dir
        self.machine = machine
        self._is_large = is_large
        self._start()

    def _start(self) -> None:
        settings: dict[str, Any] = {"libvirt_uri": self.machine.libvirt.uri} if self.machine else {}
        with pytest.MonkeyPatch.context() as patch:
            if self._is_large:
                settings |= MORE_THAN_THERE_IS
                patch.setenv("FAIRGV_SOFTGPU_DEVICES", "2")
            self.host = start_host(self.state_dir, nr_warm_workers=1, **settings)
        self.daemon = int(ask(self.host, "status")["pid"])
        if self._is_large:
            spare(self.host)
        self.nr_idle_descriptors = 0

    def await_idle(self) -> bool:
        """No vGPU is left, and a warm worker waits for each Gpu; then as many descriptors are open as ever will be without a guest."""
        if not within(self._is_idle):
            return False
        self.nr_idle_descriptors = self.nr_idle_descriptors or self._nr_at_rest()
        return True

    def _nr_at_rest(self) -> int:
        """The daemon's descriptors, once it has the last of a worker that has just begun: they are as many for half a second."""
        before, now = 0, len(processes.descriptors(self.daemon))
        while now != before:
            time.sleep(0.5)
            before, now = now, len(processes.descriptors(self.daemon))
        return now

    def _is_idle(self) -> bool:
        children = [pid for pid in processes.children(self.daemon) if not processes.is_store(pid)]
        return len(children) == 1 + self._is_large and not ask(self.host, "status")["vgpus"]

    def again(self) -> None:
        """Another daemon where one was killed."""
        within(lambda: not is_there(self.daemon))
        processes.reap(())
        self._start()

    def settle(self) -> None:
        """Takes what the daemon holds now, without a guest, for what it needs."""
        if self.machine and not self.nr_idle_descriptors:
            self.machine.acquaint(self.host)
        self.await_idle()

    def left_behind(self) -> list[str]:
        """Without guests: processes, vGPUs, and descriptors of the daemon that are too many, once they had the time to go."""
        found: list[str] = []
        if not self.await_idle():
            found.append(f"vGPUs or workers: {[vgpu['name'] for vgpu in ask(self.host, 'status')['vgpus']]}")
        if not within(lambda: not self._strangers()):
            found += [f"process {pid}: {processes.name(pid)}" for pid in self._strangers()]
        if not within(lambda: self._nr_too_many() <= 0, LIMIT_S / 4):
            found.append(f"{self._nr_too_many()} descriptors: {sorted(processes.descriptors(self.daemon))}")
        return found

    def _strangers(self) -> set[int]:
        processes.reap({self.daemon})
        kept = {self.daemon, *processes.children(self.daemon), *([self.machine.libvirtd()] if self.machine else [])}
        others = set(processes.descendants(os.getpid())) - kept
        return {pid for pid in others if not processes.is_store(pid) and not processes.is_heir(pid)}

    def _nr_too_many(self) -> int:
        return len(processes.descriptors(self.daemon)) - self.nr_idle_descriptors

    def log(self) -> str:
        return self.host.log()

    def end(self) -> None:
        """Stops the daemon."""
        with contextlib.suppress(Exception):
            os.kill(self.daemon, signal.SIGCONT)
            stop_host(self.host)


def end_all() -> None:
    """Whatever this run has started and is still there."""
    while rest := list(processes.descendants(os.getpid())):
        for pid in rest:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        processes.reap(())
        time.sleep(0.01)


@contextlib.contextmanager
def small_disk() -> Iterator[tuple[Path, bool]]:
    """A folder that is gone afterwards, and whether it is a file system of its own (`DISK_BYTES`), which takes root."""
    with tempfile.TemporaryDirectory(prefix="fairgv-run-", ignore_cleanup_errors=True) as folder:
        place = Path(folder)
        place.chmod(0o711)
        options = f"size={DISK_BYTES},mode=711"
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "fairgv", folder], capture_output=True, check=False
        )
        try:
            yield place, mounted.returncode == 0
        finally:
            if mounted.returncode == 0:
                subprocess.run(["umount", "--lazy", folder], capture_output=True, check=False)
