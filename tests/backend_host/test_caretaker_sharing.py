"""Clients that wait for what their workers share with others, in front of the caretaker of a region."""

import threading
from collections.abc import Iterator

import pytest

from backend_host import caretaker
from backend_host.caretaker import Home
from ivshmem.region import ClientState
from tests.backend_host.played_region import PlayedWorkers, Scene, played_scene


@pytest.fixture
def scene() -> Iterator[Scene]:
    with played_scene() as made:
        yield made


def test_who_waits_for_what_its_worker_shares_holds_up_nobody(scene: Scene) -> None:
    """A space may take minutes to begin."""
    scene.played.sign = sign = threading.Event()
    scene.write(0, ClientState.HELLO)
    scene.caretaker.look(0)
    scene.played.sign = None
    late = scene.serve(1)
    scene.caretaker.time_out(late)
    scene.caretaker.hold()
    scene.caretaker.release()
    scene.caretaker.look(1)
    assert late.is_stopped
    assert [assignment.client for assignment in scene.played.assignments] == [1]
    assert len(scene.played.asked) == 2, "each asks once"
    sign.set()
    while scene.region.wait_announce(0):
        pass
    scene.played.asked[0]()
    assert scene.region.wait_announce(0), "it is seen to at once"
    scene.caretaker.look(2)
    assert [assignment.client for assignment in scene.played.assignments] == [1, 0]


def test_it_is_not_waited_for_for_ever(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caretaker, "_ASKED_NS", 0)
    scene.played.sign = threading.Event()
    scene.write(0, ClientState.HELLO)
    scene.caretaker.look(0)
    assert [assignment.client for assignment in scene.played.assignments] == [0]


def test_after_a_move_the_other_gpu_is_asked(scene: Scene) -> None:
    scene.played.sign = threading.Event()
    scene.write(0, ClientState.HELLO)
    scene.caretaker.look(0)
    elsewhere = PlayedWorkers()
    scene.caretaker.move(Home(elsewhere, 5, lambda: None))
    scene.caretaker.look(1)
    assert len(elsewhere.asked) == 1
    assert [assignment.vgpu for assignment in elsewhere.assignments] == [5]
    assert scene.played.assignments == []


def test_who_is_told_when_it_has_stopped_leaves_the_region_alone(scene: Scene) -> None:
    scene.played.sign = threading.Event()
    scene.write(0, ClientState.HELLO)
    scene.caretaker.look(0)
    scene.caretaker.stop()
    while scene.region.wait_announce(0):
        pass
    scene.played.asked[0]()
    assert not scene.region.wait_announce(0)
