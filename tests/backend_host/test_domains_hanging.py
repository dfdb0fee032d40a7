"""A libvirtd that hangs, from the start or later: its domains are served as they were, and nobody waits for it."""

import contextlib
import dataclasses
import logging
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from backend_host import domains
from backend_host.entitlement import PLAIN, Entitlement
from backend_host.vm import asking
from backend_host.vm.domain import Sight
from backend_host.vm.errors import VmError
from tests.backend_host.played_libvirt import LIMIT_S, REGION_BYTES, Played, answering, fails, looking, playing
from tests.end_to_end.host import wait_until


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Played]:
    yield from playing(tmp_path, monkeypatch)


class Hanging:
    """A libvirtd that takes a connection, and answers its questions from when it is told to."""

    def __init__(self, played: Played) -> None:
        self._played = played
        self.is_asked, self.may_answer = threading.Event(), threading.Event()

    def look_at_all(self, _uri: str, _unsaid: Entitlement) -> list[Sight]:
        self.is_asked.set()
        assert self.may_answer.wait(6 * LIMIT_S)
        return self._played.sights


def answer_to(ask: Callable[[], object]) -> str:
    """What somebody is told: an error's text, or nothing. It must be told something."""
    told: list[str] = []

    def run() -> None:
        try:
            ask()
            told.append("")
        except VmError as error:
            told.append(str(error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(LIMIT_S)
    assert told, "it hangs"
    return told[0]


def test_a_libvirtd_that_hangs_holds_up_nobody(
    played: Played, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It answered once, so that domains are served. Who needs it is told so, and all others go on."""
    caplog.set_level(logging.INFO, "fairgv.domains")
    monkeypatch.setattr(asking, "ANSWER_S", 0.01)
    played.vgpu(PLAIN, run_id=5)
    libvirtd = Hanging(played)
    monkeypatch.setattr(domains, "look_at_all", libvirtd.look_at_all)
    monkeypatch.setattr(domains, "connected", answering)
    with contextlib.ExitStack() as stack:
        stack.enter_context(looking(played))
        stack.callback(libvirtd.may_answer.set)
        assert libvirtd.is_asked.wait(LIMIT_S)
        assert answer_to(played.domains.troubles) == ""
        assert answer_to(lambda: played.domains.follow(PLAIN)) == ""
        assert answer_to(played.registry.statistics) == ""
        sentence = "libvirtd at played has not answered for .* if it hangs: systemctl restart libvirtd"
        wait_until(lambda: re.search(f"{sentence}. Until it answers", caplog.text) is not None, "the log says so")
        for ask in (
            played.domains.sights,
            lambda: played.domains.attach("other", {}, REGION_BYTES, has_doorbell=False),
            lambda: played.domains.change("vm", {"weight": 2}),
            lambda: played.domains.detach("vm"),
        ):
            assert re.fullmatch(sentence, answer_to(ask))
        assert played.domains.uuids() == {"vm": "uuid"}
        assert not libvirtd.may_answer.is_set()
        played.sights = [dataclasses.replace(sight, name="renamed") for sight in played.sights]
        monkeypatch.setattr(asking, "ANSWER_S", 6 * LIMIT_S)
        libvirtd.may_answer.set()
        wait_until(lambda: played.registry.statistics()[0].name == "renamed", "it is looked at")
        assert answer_to(played.domains.sights) == ""
    wait_until(lambda: "libvirtd answers again" in caplog.text, "the log says so")
    assert len(re.findall(sentence, caplog.text)) == 1


def test_a_libvirtd_that_hangs_at_the_first_look_keeps_no_daemon_from_its_start(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    played.vgpu(PLAIN, run_id=5)
    played.restart()
    libvirtd = Hanging(played)

    class Connected:
        trouble = ""

        def __init__(self, *_: object, **__: object) -> None:
            pass

        def close(self) -> None:
            pass

    monkeypatch.setattr(domains, "DomainEvents", Connected)
    monkeypatch.setattr(domains, "look_at_all", libvirtd.look_at_all)
    monkeypatch.setattr(domains, "_START_S", 0.01)
    try:
        assert answer_to(played.domains.start) == ""
        assert libvirtd.is_asked.wait(LIMIT_S)
        assert not played.is_claimed()
    finally:
        libvirtd.may_answer.set()
    wait_until(lambda: played.domains.uuids() == {"vm": "uuid"}, "it is served")
    assert played.is_claimed()
    played.domains.stop()


def test_a_libvirtd_that_does_not_answer_keeps_no_daemon_from_its_start(
    played: Played, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One that takes connections and says nothing: its domains are served once it does."""
    played.vgpu(PLAIN, run_id=5)
    played.restart()
    answers = threading.Event()

    class Waiting:
        trouble = ""

        def __init__(self, *_: object, **__: object) -> None:
            assert answers.wait(60)

        def close(self) -> None:
            pass

    monkeypatch.setattr(domains, "DomainEvents", Waiting)
    monkeypatch.setattr(domains, "_START_S", 0.01)
    starting = threading.Thread(target=played.domains.start, daemon=True)
    starting.start()
    starting.join(10)
    try:
        assert not starting.is_alive()
        assert "libvirtd at played has not answered for" in caplog.text
        assert not played.is_claimed()
    finally:
        answers.set()
    wait_until(lambda: played.domains.uuids() == {"vm": "uuid"}, "it is served")
    assert played.is_claimed()
    played.domains.stop()


def test_without_a_thread_for_it_libvirtd_is_asked_again(
    played: Played, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fails(RuntimeError("can't start new thread")))
        assert not played.domains._look(None)
    assert "cannot look at domains, and tries again: libvirtd is not asked: can't start new thread" in caplog.text
    assert played.domains._look(None)
