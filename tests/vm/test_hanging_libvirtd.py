"""A libvirtd that hangs when all is well: its sockets are there, take connections and have some, and it says nothing."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend_host.errors import RefusedError
from backend_host.ipc import Connection
from backend_host.state_dir import SOCKET
from backend_host.vm import asking, domain_events
from backend_host.vm.connection import load_libvirt
from backend_host.vm.domain_events import DomainEvent, DomainEvents
from backend_host.vm.private_libvirt import PrivateLibvirt
from tests.end_to_end.host import start_host, stop_host, wait_until

pytestmark = pytest.mark.vm

LIMIT_S = 60
SAYS_NOTHING = "has not answered for"


@contextlib.contextmanager
def hanging(instance: PrivateLibvirt) -> Iterator[None]:
    assert instance._daemon is not None
    os.kill(instance._daemon.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(instance._daemon.pid, signal.SIGCONT)


@contextlib.contextmanager
def defined(instance: PrivateLibvirt, name: str) -> Iterator[None]:
    """A domain with the device, which is off."""
    domain = (
        load_libvirt()
        .open(instance.uri)
        .defineXML(
            f"<domain type='qemu'><name>{name}</name><memory unit='MiB'>64</memory>"
            "<os><type arch='x86_64' machine='q35'>hvm</type></os><devices>"
            f"<shmem name='fairgv-{name}'><model type='ivshmem-plain'/><size unit='M'>16</size></shmem></devices></domain>"
        )
    )
    try:
        yield
    finally:
        domain.undefine()


def test_a_daemon_beside_one(instance: PrivateLibvirt, tmp_path: Path) -> None:
    """Who does not need it is served as ever, and who does is told so. When it goes on, so do its domains."""
    host = start_host(tmp_path, libvirt_uri=instance.uri, adopt="all")

    def served() -> list[str]:
        return sorted(vgpu["name"] for vgpu in host.status()["vgpus"])

    try:
        with defined(instance, "calm"):
            wait_until(lambda: served() == ["calm"], "the domain is served")
            with hanging(instance), Connection(host.state_dir / SOCKET) as connection:
                listed = connection.ask("list", all=True)
                assert SAYS_NOTHING in listed["trouble"]
                assert [entry["name"] for entry in listed["entries"]] == ["calm"]
                for request in ("attach", "detach"):
                    with pytest.raises(RefusedError, match=SAYS_NOTHING):
                        connection.ask(request, domain="calm")
                assert served() == ["calm"]
                assert host.guest("vector_add").returncode == 0
                assert host.log().count("Until it answers, domains are served as they were") == 1
            wait_until(lambda: "libvirtd answers again" in host.log(), "it goes on")
            with defined(instance, "next"):
                wait_until(lambda: served() == ["calm", "next"], "another domain is served")
        wait_until(lambda: served() == [], "they are gone")
    finally:
        stop_host(host)


def test_events_come_again_after_it_hung(
    instance: PrivateLibvirt, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(domain_events, "_KEEPALIVE_INTERVAL_S", 1)
    monkeypatch.setattr(domain_events, "_KEEPALIVE_COUNT", 1)
    monkeypatch.setattr(asking, "ANSWER_S", 0.1)
    is_back, is_told = threading.Event(), threading.Event()

    def note(_uuid: str, name: str, event: DomainEvent) -> None:
        if (name, event) == ("calm", DomainEvent.DEFINED):
            is_told.set()

    with DomainEvents(instance.uri, note, is_back.set):
        with hanging(instance):
            wait_until(lambda: SAYS_NOTHING in caplog.text, "the log says so")
            assert not is_back.is_set()
        assert is_back.wait(LIMIT_S)
        with defined(instance, "calm"):
            assert is_told.wait(LIMIT_S)
