"""A server beside a program that computes, on softgpu: by callbacks both get on; one that polls keeps the device until the watchdog ends it."""

import os
import socket
import time
from collections.abc import Iterator

import pytest

from benchmarks.devices import private_device
from benchmarks.gloop.build import LOAD, build
from benchmarks.guests import Session, Setting, open_session, run
from benchmarks.guests.process import ProcessRunning
from benchmarks.guests.session import Running
from benchmarks.systems import OURS
from benchmarks.workloads import parse_report

WATCHDOG_S = 5
NR_REQUESTS = 200
NR_LOOKS = 10
LOOK_S = 0.05
LIMIT_S = 120.0
PLAIN = ("--way", "plain", "--rounds", "3", "--json")


@pytest.fixture
def session() -> Iterator[Session]:
    with (
        private_device("soft"),
        open_session(OURS, Setting("soft", daemon={"watchdog_s": WATCHDOG_S}), (1, 1)) as opened,
    ):
        yield opened


@pytest.fixture
def port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def serving(session: Session, way: str, port: int) -> Running:
    server = session.start(0, build("echo"), ["--way", way, "--port", str(port), "--connections", "1"])
    assert server.read_line(time.monotonic() + LIMIT_S) == f"listening {port}"
    return server


def load(port: int, *words: str) -> ProcessRunning:
    return ProcessRunning([str(build(LOAD)), "echo", "--port", str(port), *words], os.environ, LOAD)


def test_a_server_by_callbacks_and_a_program_both_get_on(session: Session, port: int) -> None:
    server = serving(session, "gloop", port)
    asking = load(port, "--requests", str(NR_REQUESTS), "--quit")
    try:
        report = parse_report(run(session, 1, build("tpacf"), PLAIN, limit_s=LIMIT_S).checked("tpacf"))
        assert report["checked"] is True
        assert parse_report(asking.finish(LIMIT_S).checked(LOAD))["requests"] == NR_REQUESTS
        assert parse_report(server.finish(LIMIT_S).checked("echo"))["served"] == NR_REQUESTS
    finally:
        asking.stop()
        server.stop()


def test_beside_a_server_that_polls_a_program_waits_until_the_watchdog_ends_that(session: Session, port: int) -> None:
    """softgpu withdraws nothing: this is what the one above is good for."""
    server = serving(session, "plain", port)
    try:
        report = parse_report(run(session, 1, build("tpacf"), PLAIN, limit_s=LIMIT_S).checked("tpacf"))
        assert report["checked"] is True
        polls, computes = session.accounts()
        assert polls.used_ns > computes.used_ns > 0  # without a request
    finally:
        server.stop()


def test_a_server_without_requests_is_not_charged(session: Session, port: int) -> None:
    """Its kernel ends by itself, and the next message launches it again."""
    server = serving(session, "gloop", port)
    try:
        same, before = 0, session.accounts()[0]
        for _ in range(100 * NR_LOOKS):
            time.sleep(LOOK_S)
            now = session.accounts()[0]
            same = same + 1 if (now.used_ns, now.held_ns) == (before.used_ns, before.held_ns) else 0
            if same == NR_LOOKS:
                break
            before = now
        assert same == NR_LOOKS
        asking = load(port, "--requests", "3", "--quit")
        assert parse_report(asking.finish(LIMIT_S).checked(LOAD))["requests"] == 3
        asking.stop()
        assert parse_report(server.finish(LIMIT_S).checked("echo"))["served"] == 3
        assert session.accounts()[0].used_ns > now.used_ns
    finally:
        server.stop()
