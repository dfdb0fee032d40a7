"""A program that goes by addresses of its constants, moved between two GPUs by replay: it prints what it prints natively."""

from collections.abc import Iterator

import pytest

from backend_host.entitlement import Entitlement
from tests.end_to_end.host import Host, start_host, stop_host
from tests.end_to_end.test_replay import ADDRESS, Told, move, replay
from tests.end_to_end.travel import devices, end_programs

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(400)]

NR_MOVES = 6


@pytest.fixture
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    running = start_host(tmp_path_factory.mktemp("gpu"), device="cuda", vgpu=Entitlement(gpu="0"), fast_moves=True)
    if len(devices(running)) < 2:
        stop_host(running)
        pytest.skip("a move needs two GPUs")
    yield running
    end_programs()
    stop_host(running)


@pytest.mark.parametrize("word", ["", "load", "halves"])
def test_what_a_program_was_told_stays_right(host: Host, word: str) -> None:
    """Also where modules come to lie at addresses that others had, as this driver does it."""
    told = Told(host, *[word] * (NR_MOVES + 1))
    told.moves(NR_MOVES)


def test_a_kernel_that_is_given_an_address_goes_by_it_and_keeps_the_program(host: Host) -> None:
    told = Told(host, "", "pass", "pass")
    told.goes_on()
    replay(host)
    told.goes_on()
    assert ADDRESS in move(host, "web", "--mover", "replay").stderr
    told.goes_on()
    told.ends()


def test_an_address_in_memory_keeps_the_program(host: Host) -> None:
    told = Told(host, "keep", "keep")
    told.goes_on()
    refused = move(host, "web", "--mover", "replay", "--json")
    assert refused.returncode == 1
    assert ADDRESS in refused.stdout + refused.stderr
    told.goes_on()
    told.ends()
