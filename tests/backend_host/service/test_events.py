"""Events: they survive their daemon, their file is bounded, nobody floods it, and what others wrote into it stays text."""

import json
import logging
from pathlib import Path

import pytest

from backend_host.cli import main
from backend_host.errors import RefusedError
from backend_host.ipc import Message, Server, Session
from backend_host.service.events import MAX_REFUSALS, UNCHANGED, Events
from backend_host.service.roles import Roles
from backend_host.service.telling import told

ROOT = Roles("fairgv", "fairgv-admin")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


def test_they_survive_a_start(path: Path) -> None:
    first = Events(path)
    first.tell("set", 7, "vm: weight 2", vgpu="vm", old={"weight": 1}, new={"weight": 2})
    first.tell("detach", 0, "vm has no vGPU any more", vgpu="vm", domain="vm")
    again = Events(path)
    again.tell("reload", 0, "nothing has changed")
    records = again.after(0)
    assert [record["sequence"] for record in records] == [1, 2, 3]
    assert [record["event"] for record in records] == ["set", "detach", "reload"]
    assert (records[0]["uid"], records[0]["old"], records[0]["new"]) == (7, {"weight": 1}, {"weight": 2})
    assert [record["sequence"] for record in again.after(2)] == [3]
    assert again.after(3) == []
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_file_is_bounded(path: Path) -> None:
    events = Events(path, max_file_bytes=2000)
    for number in range(200):
        events.tell("set", 0, f"change {number}")
    files = sorted(path.parent.glob("events*"))
    assert [file.name for file in files] == ["events.1.jsonl", "events.jsonl"]
    assert all(file.stat().st_size < 2500 for file in files)
    sequences = [record["sequence"] for record in events.after(0)]
    assert sequences == list(range(sequences[0], 201))
    assert len(sequences) >= 5
    assert Events(path).after(199)[0]["text"] == "change 199"


@pytest.mark.parametrize("left", [b"", b'{"sequence": 4, "ti', b"[1]\n", b"\xff\xfe\n", b'{"sequence": "x"}\n'])
def test_what_was_cut_off_is_left_alone(path: Path, left: bytes) -> None:
    Events(path).tell("set", 0, "first")
    with path.open("ab") as file:
        file.write(left)
    events = Events(path)
    events.tell("set", 0, "second")
    assert [record["text"] for record in events.after(0)] == ["first", "second"]


def test_who_is_refused_again_and_again(path: Path) -> None:
    events = Events(path)
    for _ in range(500):
        events.refused(1000, "no")
    events.refused(1001, "nor you")
    records = events.after(0)
    assert len(records) == MAX_REFUSALS + 2
    assert "too many refusals" in records[-2]["text"]
    assert records[-1]["uid"] == 1001


def test_long_refusals_drive_nothing_out(path: Path) -> None:
    events = Events(path)
    events.tell("detach", 0, "web has no vGPU any more", vgpu="web")
    for number in range(MAX_REFUSALS):
        events.refused(1000, f"open: {number} " + "\U0010ffff" * (1 << 20))
    first, *refusals = events.after(0)
    assert first["text"] == "web has no vGPU any more"
    assert len(refusals) == MAX_REFUSALS
    assert refusals[7]["text"].startswith("open: 7 \\U0010ffff")
    assert refusals[7]["text"].endswith("...")


def test_others_words_stay_text(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        Events(path).tell("refusal", 5, "no vGPU called a\n2026 ERROR \x1b[2J", vgpu="a")
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage() == "refusal by user 5: no vGPU called a\\n2026 ERROR \\x1b[2J"
    assert (record.vgpu, record.event) == ("a", "refusal")  # type: ignore[attr-defined]
    assert Events(path).after(0)[0]["text"].isprintable()


def test_a_full_disk_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    events = Events(tmp_path / "gone" / "events.jsonl")
    events.tell("set", 0, "done")
    assert "is not kept in" in caplog.text
    assert events.after(0) == []


def test_a_change_and_a_refusal(path: Path) -> None:
    events = Events(path)
    with told(events, ROOT, Session(0), {"op": "attach", "domain": "vm", "weight": 2}, lambda _: None) as answer:
        answer["text"] = "vm has a vGPU from its next start on"
    with (
        pytest.raises(RefusedError, match="not there"),
        told(events, ROOT, Session(0), {"op": "set", "name": "x" * 100}, lambda _: None),
    ):
        raise RefusedError("not there")
    with (
        pytest.raises(RefusedError, match="own user"),
        told(events, ROOT, Session(77_777), {"op": "stop"}, lambda _: None),
    ):
        pytest.fail("it is not asked for")
    with told(events, ROOT, Session(0), {"op": "status"}, lambda _: None) as answer:
        answer["x"] = 1
    attach, refused, stop = events.after(0)
    assert (attach["event"], attach["vgpu"], attach["domain"], attach["new"]) == ("attach", "vm", "vm", {"weight": 2})
    assert (refused["event"], refused["vgpu"], refused["text"]) == ("refusal", "x" * 64, "set: not there")
    assert (stop["event"], stop["uid"]) == ("refusal", 77_777)


def test_a_change_that_changed_nothing(path: Path) -> None:
    events = Events(path)
    with told(events, ROOT, Session(0), {"op": "balance", "mode": "off"}, lambda _: None) as answer:
        answer.update({"text": "Gpus are balanced so: off", UNCHANGED: True})
    assert events.after(0) == []


def test_the_command(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = Events(path)
    for number in range(1500):
        events.tell(
            "set", 0, f"change {number}", vgpu="vm", old={"weight": 1, "limit": 100}, new={"weight": 3, "limit": 100}
        )

    def handle(session: Session, request: Message) -> Message:
        return {"events": events.after(request["after"])}

    server = Server(tmp_path / "control.sock", handle)
    server.start()
    assert main(["--state-dir", str(tmp_path), "events", "--json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["sequence"] for line in lines] == list(range(1, 1501))
    assert main(["--state-dir", str(tmp_path), "events"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1500
    assert all(word in lines[-1] for word in ("root", "set", "vm", "change 1499 (weight 1 -> 3)"))
    server.stop()


def test_it_follows(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    events = Events(path)
    events.tell("set", 0, "first")
    waits = iter(range(3))

    def sleep(_: float) -> None:
        if (number := next(waits)) == 2:
            raise KeyboardInterrupt
        events.tell("set", 0, f"later {number}")

    monkeypatch.setattr("backend_host.service.commands.time.sleep", sleep)
    server = Server(tmp_path / "control.sock", lambda session, request: {"events": events.after(request["after"])})
    server.start()
    assert main(["--state-dir", str(tmp_path), "events", "--follow", "--json"]) == 0
    assert [json.loads(line)["text"] for line in capsys.readouterr().out.splitlines()] == [
        "first",
        "later 0",
        "later 1",
    ]
    server.stop()
