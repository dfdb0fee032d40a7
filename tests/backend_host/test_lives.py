"""Deaths as workers tell them by themselves, once the daemon is dead: by what the kernel says, whatever number a process has."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from backend_host.worker._worker import ffi, lib

from backend_host.device.control import ControlPage

ROOT = Path(__file__).resolve().parents[2]
LIVES = 2
LONG_NS = 10_000_000
"""Beyond the 2 ms in which nobody nudges a holder."""
HOLDER = """
import os, sys, time
from backend_host.worker._worker import ffi, lib
from backend_host.device.control import ControlPage

vgpu, slot, *page = map(int, sys.argv[1:])
control = ControlPage.open(page, vgpu)
for fd in page:
    os.close(fd)
grantee = ffi.new("struct fgw_grantee *")
assert lib.fgw_grantee_attach(grantee, control.page, vgpu, slot)
assert lib.fgw_grant_enter(grantee, time.monotonic_ns())
print(os.getpid(), flush=True)
sys.stdin.read()
"""
NAMESPACE = ("unshare", "--pid", "--fork", "--kill-child")


class Scene:
    """A daemon that dies, a worker of another process that holds the GPU, and one that waits, in this process."""

    def __init__(self, control: ControlPage, before: Sequence[str]) -> None:
        self.daemon = control
        self.holder_vgpu, self.own_vgpu = control.vgpu_take(), control.vgpu_take()
        slot, own = control.worker_take(), control.worker_take()
        with control.for_worker(self.holder_vgpu, slot) as page:
            command = [*before, sys.executable, "-c", HOLDER, str(self.holder_vgpu), str(slot), *map(str, page)]
            control.worker_assign(slot, 1, self.holder_vgpu, 0)
            self.holder = subprocess.Popen(
                command,
                pass_fds=page,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        control.worker_assign(own, 1, self.own_vgpu, 1)
        with control.for_worker(self.own_vgpu, own) as page:
            self.control = ControlPage.open(page, self.own_vgpu)
        self.grantee = ffi.new("struct fgw_grantee *")
        assert lib.fgw_grantee_attach(self.grantee, self.control.page, self.own_vgpu, own)
        assert self.holder.stdout is not None
        self.pid = int(self.holder.stdout.readline())
        assert not self.enter()

    def enter(self) -> bool:
        return bool(lib.fgw_grant_enter(self.grantee, time.monotonic_ns()))

    def nudge(self) -> bool:
        """Whether that brings the GPU, long after the holder got it."""
        lib.fgw_grant_nudge(self.grantee, time.monotonic_ns() + LONG_NS)
        return self.enter()

    def close(self) -> None:
        self.holder.kill()
        self.holder.communicate()
        self.control.close()


@pytest.fixture(params=["numbers of ours", "numbers of its own"])
def scene(control: ControlPage, request: pytest.FixtureRequest) -> Iterator[Scene]:
    if request.param == "numbers of its own" and os.geteuid() != 0:
        pytest.skip("only root makes a pid namespace")
    scene = Scene(control, NAMESPACE if request.param == "numbers of its own" else ())
    yield scene
    scene.close()


def test_a_holder_that_lives_is_left_alone(scene: Scene) -> None:
    assert not scene.nudge()
    scene.daemon.close()
    assert not scene.nudge()
    assert scene.control.holder().vgpu == scene.holder_vgpu


def test_a_holder_that_died_after_the_daemon_stops_nobody(scene: Scene) -> None:
    scene.daemon.close()
    scene.holder.kill()
    scene.holder.wait()
    assert scene.holder.stdout is not None
    assert scene.holder.stdout.read() == "", "its process has ended, too"
    assert scene.nudge()


def test_while_the_daemon_lives_deaths_are_its_affair(scene: Scene) -> None:
    scene.holder.kill()
    scene.holder.wait()
    assert not scene.nudge()


def test_a_life_that_nobody_took_over_is_none(control: ControlPage) -> None:
    """A worker that died before it was given its life: it can be begun again."""
    with control.for_worker(0, 7) as page, control.for_worker(0, 8) as others:
        assert not lib.fgw_life_has_ended(others[LIVES], 7)
        assert lib.fgw_life_has_ended(others[LIVES], 9)
        assert page[LIVES] != others[LIVES]
    with control.for_worker(0, 8) as others:
        assert lib.fgw_life_has_ended(others[LIVES], 7)
        with control.for_worker(0, 7):
            assert not lib.fgw_life_has_ended(others[LIVES], 7)


def test_nobody_writes_who_lives(control: ControlPage) -> None:
    with control.for_worker(0, 0) as page:
        for fd in (page[LIVES], control.objects[LIVES]):
            with pytest.raises(OSError, match=r"Operation not permitted|Bad file descriptor"):
                os.write(fd, b"x")
