"""What a worker that keeps images shows of what binds its program, while images are loaded and unloaded, and a thread looks into large ones."""

import contextlib
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
MANAGED = ".global .attribute(.managed) .b32 counter;\n"
FREES = ".extern .func free(.param .b64 p);\n"
LARGE = HEAD + "//\n" * LEAST_BYTES_FOR_THREAD
FIRST, SECOND = 0x44_00000001_000001, 0x44_00000001_000002


@contextlib.contextmanager
def serving(*options: str) -> Iterator[Served]:
    host = Host(SOFTGPU, start=(*WORKER, *options))
    with make_region() as region:
        yield Served(host, region, memory="span")
        host.close()


@pytest.fixture
def served() -> Iterator[Served]:
    with serving("--fast-moves", str(64 << 20)) as served:
        yield served


def await_shown(served: Served, bound: Bound) -> None:
    def is_shown() -> bool:
        reading = served.host.control.worker(served.worker.slot)
        return reading is not None and reading.bound == bound

    wait_until(is_shown, f"it shows {bound!r}")


def test_a_worker_shows_what_binds_its_program(served: Served) -> None:
    guest = served.primary()

    def shows(bound: Bound) -> None:
        await_shown(served, bound)

    assert guest.load(kernel_image(HEAD + VARIABLE + KERNEL), FIRST).result == 0
    shows(Bound.VARIABLES)
    assert guest.load(kernel_image(LARGE + FREES + KERNEL), SECOND).result == 0
    shows(Bound.VARIABLES | Bound.HEAP)
    assert guest.call("cuModuleUnload", hmod=FIRST).result == 0
    shows(Bound.HEAP)
    assert guest.call("cuModuleUnload", hmod=SECOND).result == 0
    shows(NOT_BOUND)


@pytest.mark.parametrize("options", [(), ("--fast-moves", str(64 << 20))])
def test_a_worker_shows_managed_variables_until_their_module_goes(options: tuple[str, ...]) -> None:
    """Also one that keeps no images: no checkpoint takes them."""
    more = Bound.VARIABLES if options else NOT_BOUND
    with serving(*options) as served:
        guest = served.primary()
        assert guest.load(kernel_image(HEAD + MANAGED + VARIABLE + KERNEL), FIRST).result == 0
        for name in (b"table", b"counter", b"counter"):
            answer = guest.call("cuModuleGetGlobal_v2", name, module=FIRST, name_bytes=len(name))
            assert (answer.result, answer.is_managed) == (0, name == b"counter")
        await_shown(served, Bound.MANAGED | more)
        assert guest.call("cuModuleUnload", hmod=FIRST).result == 0
        await_shown(served, NOT_BOUND)
