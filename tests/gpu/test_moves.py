"""Programs that move between two GPUs: what they compute, and that the GPU they come to shares as before."""

import subprocess
from collections.abc import Iterator

import pytest

from benchmarks.build import build
from tests.end_to_end.host import Host, wait_until
from tests.end_to_end.travel import KEPT, Program, devices, end_programs, migrate, number
from tests.gpu.test_withdraw import NEIGHBOUR, entry

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

NR_MOVES = 4
LONG = ("--kernel-us", "300000", "--queue", "1", "--seconds", "30")


@pytest.fixture
def host(gpu_host: Host) -> Iterator[Host]:
    if len(devices(gpu_host)) < 2:
        pytest.skip("a move needs two GPUs")
    yield gpu_host
    end_programs()


def test_a_program_that_keeps_addresses_of_every_kind_notices_nothing(host: Host) -> None:
    program = Program(host, "web", KEPT)
    for _ in range(NR_MOVES):
        program.computes()
        migrate(host, "web")
    assert " 1" in program.computes()
    assert program.ends()[-1] == "PASS"


def test_its_long_kernels_make_way_where_it_came_to(host: Host) -> None:
    """The driver has made its channels anew."""
    long = host.start(build("spin"), *LONG, options=("--vgpu", "long"))
    neighbour: subprocess.Popen[str] | None = None
    try:
        wait_until(lambda: entry(host, "long").get("nr_launches", 0) > 0, "it works")
        migrate(host, "long")
        neighbour = host.start(
            build("spin"), *NEIGHBOUR, "20", options=("--vgpu", "neighbour", "--gpu", str(number(host, "long")))
        )
        wait_until(lambda: entry(host, "long").get("nr_withdrawn", 0) > 3, "they take turns", 20)
        migrate(host, "long")
        migrate(host, "long")
        before = entry(host, "long")["nr_withdrawn"]
        wait_until(lambda: entry(host, "long")["nr_withdrawn"] > before + 3, "they take turns again", 20)
    finally:
        for child in (long, neighbour):
            if child is not None:
                child.terminate()
                child.communicate()
