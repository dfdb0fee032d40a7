"""Balancing by the daemon: from what vGPUs want to moves, on a host whose moves are taken by hand."""

import logging

import pytest

from backend_host.entitlement import Entitlement
from backend_host.errors import RefusedError
from backend_host.service.events import UNCHANGED
from scheduler.balance import NR_LOOKS
from tests.backend_host.move.conftest import MovingHost

ON_FIRST = Entitlement(gpu="0")


def put(host: MovingHost, demands: dict[str, float]) -> None:
    """vGPUs on the first Gpu that want so much, by name, and may be anywhere."""
    for name in demands:
        vgpu = host.opened(name, ON_FIRST)
        vgpu.entitlement = Entitlement()
    first = host.gpus[0]
    names = host.vgpus.names(first)
    first.demands = lambda accounts: {index: demands[name] for index, name in names.items()}  # type: ignore[method-assign]


def look(host: MovingHost, nr: int = NR_LOOKS) -> None:
    for _ in range(nr):
        host.balancing.look()


def test_the_heaviest_that_fits_leaves_an_overloaded_gpu(host: MovingHost, caplog: pytest.LogCaptureFixture) -> None:
    put(host, {"web": 0.7, "db": 0.6})
    host.balancing.set_mode("balance")
    with caplog.at_level(logging.INFO, "fairgv.moves"):
        look(host, NR_LOOKS - 1)
        assert host.moves.all == {}
        look(host, 1)
    assert {name: move.plan.target for name, move in host.moves.all.items()} == {"web": 1}
    assert "balance: web (70%) goes from GPU 0 (130%) to GPU 1 (0%)" in caplog.text
    look(host)
    assert set(host.moves.all) == {"web"}, "it is on its way"


def test_who_is_to_be_there_stays(host: MovingHost) -> None:
    put(host, {"web": 0.7, "db": 0.6})
    host.vgpus.named("web").entitlement = ON_FIRST
    host.balancing.set_mode("balance")
    look(host)
    assert set(host.moves.all) == {"db"}


def test_a_gpu_that_takes_nobody_gets_nobody(host: MovingHost) -> None:
    put(host, {"web": 0.7, "db": 0.6})
    host.gpus[1].is_drained = True
    host.balancing.set_mode("balance")
    look(host)
    assert {move.plan.target for move in host.moves.all.values()} == {2}


def test_a_move_that_is_refused_is_said(host: MovingHost, caplog: pytest.LogCaptureFixture) -> None:
    put(host, {"web": 0.7, "db": 0.6})
    host.balancing.set_mode("balance")

    def refuse(move: object) -> None:
        raise RefusedError("somebody was faster")

    host.moves.began = refuse
    look(host)
    assert "web stays: somebody was faster" in caplog.text


def test_off_is_the_default(host: MovingHost) -> None:
    put(host, {"web": 0.7, "db": 0.6})
    look(host)
    assert host.moves.all == {}
    assert host.ask("balancing") == {"mode": "off"}
    assert host.ask("balance", mode="compact")["mode"] == "compact"
    assert host.ask("balancing") == {"mode": "compact"}
    with pytest.raises(RefusedError, match="no mode of balancing is called 'best'; there are off, balance, compact"):
        host.ask("balance", mode="best")


def test_the_mode_that_there_is_already_changes_nothing(host: MovingHost) -> None:
    assert [host.ask("balance", mode=mode)[UNCHANGED] for mode in ("off", "compact", "compact")] == [True, False, True]


def test_a_gpu_that_compact_left_empty_keeps_no_contexts(host: MovingHost, monkeypatch: pytest.MonkeyPatch) -> None:
    rests: dict[int, bool] = {}
    for gpu in host.gpus:
        monkeypatch.setattr(
            gpu.workers, "rest", lambda *, is_resting, number=gpu.number: rests.update({number: is_resting})
        )
    put(host, {"web": 0.2})
    host.balancing.set_mode("compact")
    look(host, 1)
    assert rests == {0: False, 1: True, 2: True}
    host.balancing.set_mode("balance")
    look(host, 1)
    assert rests == {0: False, 1: False, 2: False}


def test_with_one_gpu_there_is_nothing_to_balance(host: MovingHost) -> None:
    del host.gpus[1:]
    with pytest.raises(RefusedError, match="this host has one Gpu"):
        host.ask("balance", mode="balance")
    assert host.balancing.mode == "off"
    host.balancing.set_mode("balance")
    put(host, {"web": 0.7})
    look(host, 3)
    assert not host.moves.all, "as a configuration that many hosts share may have it"


def test_the_thread_looks_while_it_is_to(host: MovingHost) -> None:
    put(host, {"web": 0.7, "db": 0.6})
    host.balancing.start()
    host.balancing.set_mode("balance")
    while not host.moves.all:
        pass
    host.balancing.stop()
