"""What is served at an address that somebody has: it keeps nothing from its start, and comes once the address is free."""

import threading

import pytest

from backend_host import opening as module
from backend_host.errors import CannotListenError
from backend_host.opening import Opening

TAKEN = "cannot serve it on 127.0.0.1:9400: Address already in use"


class Served:
    def __init__(self) -> None:
        self.is_stopped = False

    def stop(self) -> None:
        self.is_stopped = True


class Address:
    """Free after so many attempts."""

    def __init__(self, nr_taken: int) -> None:
        self.nr_taken, self.nr = nr_taken, 0
        self.is_tried, self.is_served = threading.Semaphore(0), threading.Event()

    def begin(self) -> Served:
        self.nr += 1
        self.is_tried.release()
        if self.nr <= self.nr_taken:
            raise CannotListenError(TAKEN)
        self.is_served.set()
        return Served()


def test_an_address_that_is_free_is_served_at_once() -> None:
    notes: list[str] = []
    opening = Opening(Address(0).begin, notes.append)
    opening.start()
    assert opening.served is not None
    opening.stop()
    assert opening.served.is_stopped
    assert not notes


def test_one_that_is_taken_is_tried_again(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(module, "AGAIN_S", 0.001)
    notes: list[str] = []
    address = Address(3)
    opening = Opening(address.begin, notes.append)
    opening.start()
    assert address.is_served.wait(30)
    opening.stop()
    assert opening.served is not None
    assert opening.served.is_stopped
    assert address.nr == 4
    assert notes == [TAKEN]
    assert caplog.text.count(TAKEN) == 1, "it is said once"


def test_one_that_stays_taken_ends_with_the_daemon() -> None:
    address = Address(1)
    opening = Opening(address.begin, lambda _: None)
    opening.start()
    opening.stop()
    assert (address.nr, opening.served) == (1, None)


def test_another_mistake_stops_the_start() -> None:
    def begin() -> Served:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Opening(begin, lambda _: None).start()
