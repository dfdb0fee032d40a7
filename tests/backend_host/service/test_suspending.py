"""What `fairgv-host suspend` and `resume` say, and their exit status, by what the daemon answers."""

import argparse
from collections.abc import Sequence
from typing import Any

import pytest

from backend_host.errors import FairGVError
from backend_host.service import suspending
from backend_host.service.events import UNCHANGED

MIB = 1 << 20
NR_LOOKS = 5


OFF = {"where": "off", "is_moving": False, "why": ""}
KEPT = {"where": "on", "is_moving": False, "why": "the driver says no"}
LEAVING = {"where": "on", "is_moving": True, "why": ""}
WAITING = {"where": "off", "is_moving": True, "why": "GPU 0 has no room"}


class Daemon:
    """Answers as one whose programs are like this."""

    def __init__(self, programs: Sequence[dict[str, Any]]) -> None:
        self.programs = programs
        self.answer: dict[str, Any] = {}
        self.asked: list[str] = []

    def ask(self, operation: str, **arguments: object) -> dict[str, Any]:
        assert arguments == {"name": "web"}
        self.asked.append(operation)
        return {"programs": self.programs, **self.answer}


def program(**known: Any) -> dict[str, Any]:
    return {
        "program": "train",
        "worker_pid": 7,
        "linear_bytes": 8 * MIB,
        "resident_bytes": 0,
        "is_suspended": True,
        "keeps": "not",
        "contexts": OFF,
        "contexts_bytes": MIB,
        **known,
    }


CALLED = program(resident_bytes=8 * MIB, is_suspended=False, contexts={**KEPT, "why": ""})
SHARES = program(program="serve", worker_pid=8, resident_bytes=8 * MIB, keeps="shared")


def run(command: Any, daemon: Daemon) -> int:
    return int(command(argparse.Namespace(name="web", json=False), daemon))


@pytest.mark.parametrize(
    ("programs", "status", "said"),
    [
        ([program()], 0, ["web is suspended: 8 MiB of one program left the device, and the contexts of one program."]),
        (
            [program(), program()],
            0,
            ["web is suspended: 16 MiB of 2 programs left the device, and the contexts of 2 programs."],
        ),
        (
            [program(contexts=KEPT)],
            0,
            [
                "web is suspended: 8 MiB of one program left the device.",
                "train (worker 7) keeps its contexts on the device: the driver says no",
            ],
        ),
        (
            [program(), CALLED],
            0,
            [
                "web is suspended: 8 MiB of one program left the device, and the contexts of one program.",
                "train (worker 7) called meanwhile, and is back",
            ],
        ),
        (
            [CALLED],
            1,
            [
                "no memory of web left the device",
                "train (worker 7) called meanwhile, and is back",
            ],
        ),
        (
            [program(), SHARES],
            1,
            [
                "web is suspended: 8 MiB of one program left the device, and the contexts of one program.",
                "serve (worker 8) keeps 8 MiB on the device: it shares memory with other programs",
            ],
        ),
    ],
)
def test_what_left_and_what_did_not(
    programs: list[dict[str, Any]], status: int, said: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    daemon = Daemon(programs)
    assert run(suspending.suspend, daemon) == status
    assert [line.partition(" A program comes")[0] for line in capsys.readouterr().out.splitlines()] == said
    assert daemon.asked == ["suspend", "suspension"]


def test_memory_that_takes_long_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(suspending, "STILL_S", 0.0)
    assert run(suspending.suspend, Daemon([program(resident_bytes=MIB)])) == 1
    assert capsys.readouterr().out.splitlines() == [
        "no memory of web left the device",
        "train (worker 7) keeps 1 MiB on the device: it goes on leaving",
    ]


@pytest.mark.parametrize(
    ("contexts", "said"),
    [
        ({**KEPT, "why": ""}, "web is resumed, but 8 MiB are off the device still"),
        (
            WAITING,
            "web is resumed, but the contexts of one program are off the device still: GPU 0 has no room",
        ),
    ],
)
def test_a_device_without_room_is_told(contexts: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suspending, "STILL_S", 0.0)
    with pytest.raises(FairGVError, match=said):
        run(suspending.resume, Daemon([program(is_suspended=False, contexts=contexts)]))


def test_contexts_that_are_on_their_way_are_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """However long that takes: the driver moves what is in them."""
    monkeypatch.setattr(suspending, "STILL_S", 0.0)
    monkeypatch.setattr(suspending, "LOOK_S", 0.0)
    daemon = Daemon([program(contexts=LEAVING)])

    def look(_: float) -> None:
        if len(daemon.asked) == 1 + NR_LOOKS:
            daemon.programs = [program()]

    monkeypatch.setattr("backend_host.service.suspending.time.sleep", look)
    assert run(suspending.suspend, daemon) == 0
    assert daemon.asked == ["suspend", *["suspension"] * (NR_LOOKS + 1)]
    assert ", and the contexts of one program." in capsys.readouterr().out


def test_who_is_interrupted_is_told_what_goes_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("backend_host.service.suspending.time.sleep", interrupt)
    assert run(suspending.suspend, Daemon([program(resident_bytes=MIB)])) == suspending.INTERRUPTED
    assert capsys.readouterr().out == (
        "web is suspended, and its memory goes on leaving; fairgv-host resume web undoes it\n"
    )


def test_who_was_not_suspended(capsys: pytest.CaptureFixture[str]) -> None:
    daemon = Daemon([CALLED])
    daemon.answer = {"text": "web was not suspended", UNCHANGED: True}
    assert run(suspending.resume, daemon) == 0
    assert capsys.readouterr().out == "web was not suspended\n"
