"""What NVML says reaches the daemon, and an NVML that hangs, crashes or lies reaches it no further than to say so once."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from backend_host.device.failure import UNAVAILABLE, Failure, Ward
from backend_host.nvml.fatal import FATAL_XIDS, failure_of, heed
from backend_host.nvml.figures import UNKNOWN, Figures
from backend_host.nvml.listener import Lines
from backend_host.nvml.watch import NvmlWatch, try_once
from tests.backend_host.nvml.library import build_library
from tests.children import is_there

ANSWERED = Figures(123456, 1 << 40, 1980, 2619, 41, None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("pynvml")
    folder = tmp_path_factory.mktemp("nvml")
    build_library(folder)
    return folder


class Watched:
    """A watch over GPU-1, and what it was told."""

    def __init__(self, silence_s: float = 30.0, again_s: float = 600.0) -> None:
        self.events: list[tuple[str, Mapping[str, Any]]] = []
        self.is_told = threading.Event()
        self.watch = NvmlWatch(["GPU-1", "GPU-2"], self.hear, silence_s, again_s)
        self.watch.start()

    def hear(self, uuid: str, event: Mapping[str, Any]) -> None:
        self.events.append((uuid, event))
        self.is_told.set()


@pytest.fixture
def started(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Watched]]:
    running: list[Watched] = []

    def start(case: str, **options: float) -> Watched:
        monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))
        monkeypatch.setenv("NVML_CASE", case)
        running.append(Watched(**options))
        return running[-1]

    yield start
    for watched in running:
        watched.watch.stop()


def until(is_so: Callable[[], bool]) -> bool:
    for _ in range(3000):
        if is_so():
            return True
        threading.Event().wait(0.01)
    return False


def test_figures_of_each_device_that_says_some(started: Callable[..., Watched]) -> None:
    watch = started("answers").watch
    assert until(lambda: watch.figures("GPU-1") == ANSWERED)
    assert watch.unknown == ""
    assert watch.figures("GPU-2") == watch.figures("GPU-3") == UNKNOWN


def test_one_that_hangs_is_ended_and_said_to_once(
    started: Callable[..., Watched], caplog: pytest.LogCaptureFixture
) -> None:
    """However often it is tried, and whoever asks for figures meanwhile waits for nothing."""
    watch = started("hangs", silence_s=0.5, again_s=0.01).watch
    pids: set[int] = set()
    assert until(lambda: len(pids) > 2 or pids.update(children()) is not None)  # type: ignore[func-returns-value]
    assert "NVML has not answered for 0.5 s" in watch.unknown
    assert watch.figures("GPU-1") == UNKNOWN
    assert caplog.text.count("are unknown: NVML has not answered for 0.5 s; the process that asked it is ended") == 1


def children(what: str = "figures") -> set[int]:
    """Processes that ask NVML for this, of this one."""
    tasks = [task for task in Path("/proc/self/task").iterdir() if (task / "children").exists()]
    pids = {pid for task in tasks for pid in (task / "children").read_text().split()}
    return {int(pid) for pid in pids if f"backend_host.nvml.child\0{what}".encode() in command_of(pid)}


def command_of(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:  # it has ended
        return b""


def test_figures_of_before_are_forgotten(started: Callable[..., Watched]) -> None:
    watch = started("answers").watch
    assert until(lambda: watch.figures("GPU-1") == ANSWERED)
    [pid] = children()
    os.kill(pid, 9)
    assert until(lambda: watch.figures("GPU-1") == UNKNOWN)
    assert watch.unknown == "the process that asks NVML has ended"


def test_the_process_ends_with_the_watch(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, even where it hangs."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))
    monkeypatch.setenv("NVML_CASE", "hangs")
    watched = Watched()
    assert until(lambda: len(children("figures")) == len(children("events")) == 1)
    pids = children("figures") | children("events")
    watched.watch.stop()
    assert not any(map(is_there, pids))


@pytest.mark.parametrize(
    ("case", "why"),
    [
        ("crashes", "the process that asks NVML has ended"),
        ("no driver", "NVML: Driver Not Loaded"),
        ("noisy", "the process that asks NVML makes no sense: "),
    ],
)
def test_why_figures_are_unknown(started: Callable[..., Watched], case: str, why: str) -> None:
    watch = started(case).watch
    assert watch.is_heard.wait(30)
    assert watch.unknown.startswith(why)
    assert watch.figures("GPU-1") == UNKNOWN


@pytest.mark.parametrize(
    ("case", "event"),
    [("xid 79", {"xid": 79}), ("ecc", {"ecc": 1}), ("lost", {"lost": 1}), ("gone", {"lost": 1})],
    ids=str,
)
def test_events_are_heard(started: Callable[..., Watched], case: str, event: dict[str, int]) -> None:
    """An Xid also from a device that hangs when it is asked for figures."""
    watched = started(case)
    assert watched.is_told.wait(30)
    assert watched.events == [("GPU-1", {"uuid": "GPU-1", **event})]
    figures = watched.watch.figures("GPU-1")
    assert (figures.nr_xids, figures.last_xid) == ((1, 79) if "xid" in event else (0, None))
    assert figures.after({"power_mw": 7}).nr_xids == figures.nr_xids, "figures that follow do not forget it"


def test_a_device_that_nvml_knows_no_more_is_missing(
    started: Callable[..., Watched], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that it never knew is not: the device library may tell of some that NVML does not, as a part of one."""
    watched = started("answers", again_s=0.01)
    assert until(lambda: watched.watch.figures("GPU-1") == ANSWERED)
    assert not watched.events
    monkeypatch.setenv("NVML_CASE", "unknown")
    [pid] = children()
    os.kill(pid, 9)
    assert watched.is_told.wait(30)
    assert watched.events == [("GPU-1", {"missing": 1})]


def test_while_one_cannot_be_ended_no_other_is_started(
    started: Callable[..., Watched], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    is_held = threading.Event()
    is_held.set()

    class Held(subprocess.Popen[bytes]):
        def kill(self) -> None:
            if not is_held.is_set():
                super().kill()

    monkeypatch.setattr("backend_host.nvml.listener.subprocess.Popen", Held)
    monkeypatch.setattr("backend_host.nvml.listener.END_S", 0.01)
    watch = started("hangs", silence_s=0.5, again_s=0.01).watch
    assert until(lambda: watch.unknown.endswith("hangs in the driver, and cannot be ended"))
    [pid] = children()
    is_held.clear()
    os.kill(pid, 9)
    assert until(lambda: bool(children() - {pid}))
    assert caplog.text.count("hangs in the driver, and cannot be ended") == 1


def test_what_is_asked_for_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))
    monkeypatch.setenv("NVML_CASE", "answers")
    assert try_once(["GPU-1"]) == ""
    monkeypatch.setenv("NVML_CASE", "no driver")
    assert try_once() == "NVML: Driver Not Loaded"


def test_without_the_package_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pynvml.py").write_text("raise ImportError\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert try_once() == "the Python package nvidia-ml-py is not installed"


def test_without_a_process_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert try_once() == "no process to ask NVML: No such file or directory"


@pytest.mark.parametrize(
    "said",
    [b"no json\n", b"[]\n", b"7\n", b"\xff\n", (2 * (1 << 16) + 4096) * b"x"],
    ids=["text", "list", "number", "bytes", "long"],
)
def test_lines_that_make_no_sense(said: bytes) -> None:
    (ours, theirs), (wake, end) = os.pipe(), os.pipe()

    def write() -> None:
        with os.fdopen(theirs, "wb") as pipe:
            pipe.write(said)

    writer = threading.Thread(target=write)
    writer.start()
    lines = Lines(ours, wake, 30.0)
    with pytest.raises(ValueError, match=r"\w"):
        lines.next()
    writer.join()
    lines.close()
    for fd in (ours, wake, end):
        os.close(fd)


@pytest.mark.parametrize("value", ["much", -1, 1 << 63, True, None, 1.5, [], {}])
def test_figures_that_make_no_sense_are_not_known(value: object) -> None:
    assert ANSWERED.after({"power_mw": value, "nr_xids": 9, "else": 1}) == UNKNOWN
    assert ANSWERED.after([value]) == UNKNOWN


@pytest.mark.parametrize(
    ("event", "failure"),
    [
        ({"xid": 79}, Failure("Xid 79, it has fallen off the bus", UNAVAILABLE)),
        ({"xid": 48}, Failure("Xid 48, uncorrectable ECC error", 214)),
        ({"lost": 1}, Failure("NVML has lost it", UNAVAILABLE)),
        ({"xid": 13}, None),
        ({"xid": 31}, None),
        ({"xid": 43}, None),
        ({"xid": 94}, None),
        ({"ecc": 1}, None),
        ({"missing": 1}, None),
        ({}, None),
    ],
)
def test_which_events_are_failures(event: dict[str, int], failure: Failure | None) -> None:
    assert failure_of(event) == failure


def test_what_follows_an_event(monkeypatch: pytest.MonkeyPatch) -> None:
    ward = Ward("GPU 0", lambda: None)
    told: list[object] = []
    monkeypatch.setattr(ward, "fail", told.append)
    monkeypatch.setattr(ward, "suspect", told.append)
    heed({"uuid": "GPU-1", "xid": 13}, ward)
    assert not told
    heed({"uuid": "GPU-1", "lost": 1}, ward)
    heed({"uuid": "GPU-1", "missing": 1}, ward)
    heed({"uuid": "GPU-1", "ecc": 1}, ward)
    assert told == [
        Failure("NVML has lost it"),
        "NVML knows it no more",
        "NVML tells of an uncorrectable ECC error",
    ], "one that was contained costs the programs that it met, and no other"


def test_the_page_names_the_fatal_ones() -> None:
    page = " ".join(Path("docs/devices.md").read_text().split())
    assert f"the device has failed: {', '.join(map(str, FATAL_XIDS))}." in page
