"""The programs, compiled once, and two ways to run them: on a device itself, and as guests of a daemon on it.

The device is softgpu, or a GPU (`-m gpu`).
"""

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from backend_host.entitlement import Entitlement
from tests.end_to_end.host import TIMEOUT_S, Host, start_host, stop_host
from tests.gloop.build import OUTPUT, build_all


@dataclass(frozen=True)
class Runner:
    host: Host
    is_guest: bool

    def start(self, program: str, *arguments: object, points: int = 0) -> subprocess.Popen[str]:
        """`points`: after so many of them a block gives way; 0: when it is told to, which nobody does here."""
        words = [str(OUTPUT / program), *map(str, arguments)]
        if self.is_guest:
            return self.host.start("/usr/bin/env", f"GLOOP_POINTS={points}", *words)
        environment = self.host.environment(GLOOP_POINTS=str(points))
        return subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(self, program: str, *arguments: object, points: int = 0) -> subprocess.CompletedProcess[str]:
        child = self.start(program, *arguments, points=points)
        try:
            output, errors = child.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()
            raise
        return subprocess.CompletedProcess(child.args, child.returncode, output, errors)


@pytest.fixture(scope="session", params=["soft", pytest.param("cuda", marks=pytest.mark.gpu)])
def gloop_host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    build_all()
    host = start_host(tmp_path_factory.mktemp("gloop"), device=request.param, vgpu=Entitlement(gpu="0"))
    yield host
    stop_host(host)


@pytest.fixture(scope="session", params=["native", "guest"])
def runner(request: pytest.FixtureRequest, gloop_host: Host) -> Runner:
    return Runner(gloop_host, request.param == "guest")


@pytest.fixture(scope="session")
def native(gloop_host: Host) -> Runner:
    """For what does not depend on whose device it is."""
    return Runner(gloop_host, is_guest=False)
