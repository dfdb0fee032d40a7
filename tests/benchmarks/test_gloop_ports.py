"""The ports to GLoop on softgpu, natively and as guests: each gives what its other ways give, however often it is told to give way."""

import random
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.gloop.build import LOAD, PORTS, SERVERS, build
from benchmarks.guests import NATIVE, Session, Setting, open_session, run
from benchmarks.systems import OURS
from benchmarks.workloads import parse_report

pytestmark = pytest.mark.usefixtures("small_device")

SYSTEMS = (NATIVE, OURS)
MOST_POINTS = 50
NR_CONNECTIONS = 3
NR_REQUESTS = 4
LIMIT_S = 120.0
SIZES = {"hybridsort": "9000", "mummergpu": "300", "tpacf": "300"}
"""Where the default makes many points."""


@pytest.fixture(scope="module", params=SYSTEMS)
def session(request: pytest.FixtureRequest, small_device: None) -> Iterator[Session]:
    with open_session(request.param, Setting("soft")) as opened:
        yield opened


def digest(session: Session, name: str, way: str, points: int = 0, *words: str) -> str:
    """Of the results, which were compared with the loops'."""
    size = ("--size", SIZES.get(name, "soft"))
    arguments = ["--way", way, *size, *words, "--rounds", "1", "--digest", "--json"]
    environment = {"GLOOP_POINTS": str(points)} if points else {}
    finished = run(session, 0, build(name), arguments, environment, LIMIT_S)
    report = parse_report(finished.checked(name))
    assert report["checked"] is True
    assert report["way"] == way
    assert report["kernel_s"] > 0
    [line] = [line for line in finished.errors.splitlines() if line.startswith("digest ")]
    return line


@pytest.mark.parametrize("name", PORTS)
def test_all_ways_give_the_same_bytes(session: Session, name: str) -> None:
    points = random.Random(name).randint(1, MOST_POINTS)  # the same in each run
    plain = digest(session, name, "plain")
    assert digest(session, name, "split") == plain
    assert digest(session, name, "gloop") == plain
    assert digest(session, name, "gloop", points) == plain


def test_callbacks_in_global_memory(session: Session) -> None:
    plain = digest(session, "throttle", "plain")
    assert digest(session, "throttle", "gloop", 3, "--slots", "global", "--threads", "64") == plain


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.mark.parametrize("name", SERVERS)
@pytest.mark.parametrize(("way", "points"), [("plain", 0), ("split", 0), ("gloop", 0), ("gloop", 7)])
def test_servers_answer_each_message_right(session: Session, name: str, way: str, points: int) -> None:
    """The load has one connection more than the server has blocks, checks each byte, and ends the server."""
    port = free_port()
    words = ["--way", way, "--port", str(port), "--connections", str(NR_CONNECTIONS)]
    server = session.start(0, build(name), words, {"GLOOP_POINTS": str(points)})
    try:
        assert server.read_line(time.monotonic() + LIMIT_S) == f"listening {port}"
        asked = [build(LOAD), name, "--port", str(port), "--requests", str(NR_REQUESTS), "--quit"]
        load = subprocess.run(
            [*map(str, asked), "--connections", str(NR_CONNECTIONS + 1)],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=True,
        )
        nr_messages = NR_REQUESTS * (NR_CONNECTIONS + 1)
        assert parse_report(load.stdout)["requests"] == nr_messages
        report = parse_report(server.finish(LIMIT_S).checked(name))
        nr_kernels = report.pop("kernels")
        assert (nr_kernels > 1) == (way == "gloop")
        assert report == {"name": name, "way": way, "served": nr_messages}
    finally:
        server.stop()


def test_a_port_in_use_is_said(session: Session) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for way in ("gloop", "split"):
            finished = run(session, 0, build("echo"), ["--way", way, "--port", port])
            assert finished.exit_code == 2
            assert f"port {port}: Address already in use" in finished.errors


@pytest.mark.parametrize("name", ["grep", "images"])
def test_a_file_that_is_missing_is_said(session: Session, name: str, tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    finished = run(session, 0, build(name), ["--folder", str(missing)])
    assert finished.exit_code == 2
    assert "No such file or directory" in finished.errors


@pytest.mark.parametrize("words", [("--way", "fast"), ("--threads", "1025"), ("--slots", "none"), ("--size", "0")])
def test_words_that_mean_nothing_are_refused(session: Session, words: tuple[str, ...]) -> None:
    finished = run(session, 0, build("throttle"), words)
    assert finished.exit_code == 2
    assert finished.errors
