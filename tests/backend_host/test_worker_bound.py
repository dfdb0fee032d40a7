"""What a worker that keeps images shows of what binds its program, while images are loaded and unloaded, and a thread looks into large ones."""

from collections.abc import Iterator

import pytest

from backend_host.device.readings import NOT_BOUND, Bound
from backend_host.worker.images import LEAST_BYTES_FOR_THREAD
from backend_host.worker_start import WORKER
from tests.backend_host.worker_guest import kernel_image, make_region
from tests.backend_host.worker_harness import SOFTGPU, Host, Served
from tests.end_to_end.host import wait_until

HEAD = ".version 7.0\n.target sm_80\n.address_size 64\n"
KERNEL = ".visible .entry none()\n{\n    ret;\n}\n"
VARIABLE = ".global .b32 table[9];\n"
FREES = ".extern .func free(.param .b64 p);\n"
LARGE = HEAD + "//\n" * LEAST_BYTES_FOR_THREAD
FIRST, SECOND = 0x44_00000001_000001, 0x44_00000001_000002


@pytest.fixture
def served() -> Iterator[Served]:
    host = Host(SOFTGPU, start=(*WORKER, "--fast-moves", str(64 << 20)))
    with make_region() as region:
        yield Served(host, region, memory="span")
        host.close()


def test_a_worker_shows_what_binds_its_program(served: Served) -> None:
    guest = served.primary()

    def shows(bound: Bound) -> None:
        def is_shown() -> bool:
            reading = served.host.control.worker(served.worker.slot)
            return reading is not None and reading.bound == bound

        wait_until(is_shown, f"it shows {bound!r}")

    assert guest.load(kernel_image(HEAD + VARIABLE + KERNEL), FIRST).result == 0
    shows(Bound.VARIABLES)
    assert guest.load(kernel_image(LARGE + FREES + KERNEL), SECOND).result == 0
    shows(Bound.VARIABLES | Bound.HEAP)
    assert guest.call("cuModuleUnload", hmod=FIRST).result == 0
    shows(Bound.HEAP)
    assert guest.call("cuModuleUnload", hmod=SECOND).result == 0
    shows(NOT_BOUND)
