"""What `fairgv-host migrate` and `drain` say, and their exit status, by how moves go."""

import argparse
import json
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from backend_host.entitlement import Entitlement
from backend_host.errors import FairGVError, RefusedError
from backend_host.service import draining, migrating
from tests.backend_host.move.conftest import MovingHost
from tests.backend_host.move.played import PlayedMove

Step = Callable[[PlayedMove], None]


def step_by_step(monkeypatch: pytest.MonkeyPatch, host: MovingHost, *steps: Step) -> None:
    """Each pause of a command between two looks is a step of the move that began last."""
    left = list(steps)
    begun: list[PlayedMove] = []
    host.moves.began = begun.append
    monkeypatch.setattr("backend_host.service.migrating.time.sleep", lambda _: left.pop(0)(begun[-1]))


def ctrl_c(move: PlayedMove) -> None:
    os.kill(os.getpid(), signal.SIGINT)


def change(move: PlayedMove) -> None:
    move.change()


def end(move: PlayedMove) -> None:
    move.end()


def nothing(move: PlayedMove) -> None:
    """It goes on."""


def migrate(host: MovingHost, **options: Any) -> int:
    said = {"name": "web", "to": "1", "mover": "auto", "dry_run": False, "json": False, **options}
    return migrating.migrate(argparse.Namespace(**said), host)  # type: ignore[arg-type]


def drain(host: MovingHost, gpu: str = "0", *, is_json: bool = False) -> int:
    class Connected:
        def __enter__(self) -> MovingHost:
            return host

        def __exit__(self, *exception: object) -> None:
            """It is not closed."""

    options = argparse.Namespace(gpu=gpu, json=is_json)
    return draining._drain(lambda _: Connected(), options)  # type: ignore[arg-type, return-value]


def test_it_moves(host: MovingHost, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    host.opened("web")
    step_by_step(monkeypatch, host, nothing, change, end)
    assert migrate(host) == 0
    assert capsys.readouterr().out.splitlines() == [
        "web moves from GPU 0 to GPU 1: it has no program",
        "web is on GPU 1",
    ]


def test_it_moves_where_standard_error_is_closed(
    host: MovingHost, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    host.opened("web")
    step_by_step(monkeypatch, host, nothing, change, end)
    monkeypatch.setattr("sys.stderr", None)
    assert migrate(host) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "web is on GPU 1"


@pytest.mark.parametrize(
    ("nr_programs", "said"),
    [
        (0, "from GPU 0 to GPU 1: it has no program"),
        (1, "from GPU 0 to GPU 1 by checkpoint: one program with 8 GiB\nplanned: 2.81 s, of which 1.21 s of pause"),
        (2, "from GPU 0 to GPU 1 by checkpoint: 2 programs with 8 GiB\nplanned: 2.81 s, of which 1.21 s of pause"),
    ],
)
def test_plans_in_words(nr_programs: int, said: str) -> None:
    plan = {
        "name": "web",
        "from": 0,
        "to": 1,
        "mover": "checkpoint",
        "nr_programs": nr_programs,
        "memory_bytes": 8 << 30,
        "duration_ns": 2_810_000_000,
        "pause_ns": 1_210_000_000,
    }
    assert migrating.plan_text(plan) == said
    migration = {"plan": plan, "stage": "done", "pause_ns": 1_250_000_000}
    end_said = "web is on GPU 1: its programs stood still for 1.25 s" if nr_programs else "web is on GPU 1"
    assert migrating.done_text(migration) == end_said


def test_why_it_is_not_the_fast_way_is_said() -> None:
    plan = {"name": "web", "from": 0, "to": 1, "mover": "checkpoint", "nr_programs": 1, "memory_bytes": 1 << 30}
    plan |= {"duration_ns": 920_000_000, "pause_ns": 720_000_000}
    said = migrating.plan_text(plan | {"no_replay": ["train (worker 7) has graphs", "other (worker 8) links images"]})
    assert said.splitlines()[1:] == [
        "planned: 920 ms, of which 720 ms of pause",
        "not by replay: train (worker 7) has graphs",
        "not by replay: other (worker 8) links images",
    ]


def test_one_that_goes_on_by_checkpoint_is_told(
    host: MovingHost, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def go_on(move: PlayedMove) -> None:
        move.plan = replace(move.plan, mover="checkpoint", nr_programs=1, no_replay=("train (worker 7) has graphs",))

    host.opened("web")
    step_by_step(monkeypatch, host, go_on, change, end)
    began = host.moves.began

    def begin(move: PlayedMove) -> None:
        move.plan = replace(move.plan, mover="replay", nr_programs=1)
        began(move)

    host.moves.began = begin
    assert migrate(host) == 0
    assert capsys.readouterr().out.splitlines() == [
        "web moves from GPU 0 to GPU 1 by replay: one program with 0 B",
        "planned: 0 ns, of which 0 ns of pause",
        "web went on by checkpoint: one program with 0 B",
        "planned: 0 ns, of which 0 ns of pause",
        "not by replay: train (worker 7) has graphs",
        "web is on GPU 1: its programs stood still for 1 s",
    ]


def test_a_dry_run_moves_nothing(host: MovingHost, capsys: pytest.CaptureFixture[str]) -> None:
    host.opened("web")
    assert migrate(host, dry_run=True) == 0
    assert capsys.readouterr().out == "web would move from GPU 0 to GPU 1: it has no program\n"
    assert migrate(host, dry_run=True, json=True) == 0
    assert json.loads(capsys.readouterr().out)["to"] == 1
    assert host.asked == ["plan", "plan"]


def test_one_that_comes_back_is_told_with_the_reason(host: MovingHost, monkeypatch: pytest.MonkeyPatch) -> None:
    def give_up(move: PlayedMove) -> None:
        move.stage, move.reason = "aborted", "train (worker 7) has work that does not end"

    host.opened("web")
    step_by_step(monkeypatch, host, give_up)
    with pytest.raises(FairGVError, match=r"^web stays on GPU 0: train \(worker 7\) has work that does not end$"):
        migrate(host)


def test_one_that_fails_is_told(host: MovingHost, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(move: PlayedMove) -> None:
        move.stage, move.reason = "failed", "GPU 1 has no memory for train, which has ended"

    host.opened("web")
    step_by_step(monkeypatch, host, change, fail)
    with pytest.raises(
        FairGVError, match=r"^the move of web to GPU 1 failed: GPU 1 has no memory for train, which has e"
    ):
        migrate(host)


def test_one_that_is_not_done_for_programs(
    host: MovingHost, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def give_up(move: PlayedMove) -> None:
        move.stage, move.reason = "aborted", "no"

    host.opened("web")
    step_by_step(monkeypatch, host, give_up)
    assert migrate(host, json=True) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["stage"], told["reason"], told["plan"]["name"]) == ("aborted", "no", "web")


def test_ctrl_c_aborts(host: MovingHost, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    host.opened("web")
    step_by_step(monkeypatch, host, ctrl_c, nothing)
    before = signal.getsignal(signal.SIGINT)
    assert migrate(host) == migrating.INTERRUPTED
    assert capsys.readouterr().err == "fairgv-host: web stays on GPU 0, as it was: interrupted\n"
    assert host.asked.count("abort") == 1
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_that_is_too_late_waits(
    host: MovingHost, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    host.opened("web")
    step_by_step(monkeypatch, host, change, ctrl_c, nothing, nothing, end)
    assert migrate(host) == 0
    captured = capsys.readouterr()
    assert captured.err == "fairgv-host: too late to abort, it goes on to its end: web is changing its Gpu\n"
    assert captured.out.endswith("web is on GPU 1\n")
    assert host.asked.count("abort") == 1, "it is asked once"


def test_a_second_ctrl_c_ends_the_command(host: MovingHost, monkeypatch: pytest.MonkeyPatch) -> None:
    host.opened("web")
    step_by_step(monkeypatch, host, change, ctrl_c, ctrl_c)
    with pytest.raises(KeyboardInterrupt):
        migrate(host)


def settle(host: MovingHost) -> Step:
    """The end of a move: the vGPU is there."""

    def step(move: PlayedMove) -> None:
        vgpu = host.vgpus.named(move.plan.name)
        with host.vgpus._lock:
            host.vgpus._rehouse(vgpu)
        assert vgpu.gpu is host.gpus[move.plan.target]
        move.end()

    return step


@pytest.fixture
def crowd(host: MovingHost) -> MovingHost:
    """Three vGPUs on the first Gpu, of which one is to be there."""
    for name in ("a", "b", "bound"):
        host.opened(name, Entitlement(gpu="0"))
    for name in ("a", "b"):
        host.vgpus.named(name).entitlement = Entitlement()
    return host


def test_a_drained_gpu_is_left_one_by_one(
    crowd: MovingHost, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    step_by_step(monkeypatch, crowd, change, settle(crowd), settle(crowd))
    assert drain(crowd) == 1
    assert capsys.readouterr().out.splitlines() == [
        "GPU 0 is drained: no vGPU comes to it until fairgv-host undrain 0",
        "a is on GPU 1",
        "b is on GPU 2",
        "bound stays: it is to be there (--gpu); to move it: fairgv-host migrate bound --to GPU",
    ]
    assert crowd.gpus[0].is_drained


def test_what_does_not_move_keeps_nobody_else(
    crowd: MovingHost, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def give_up(move: PlayedMove) -> None:
        move.stage, move.reason = "aborted", "its work does not end"

    step_by_step(monkeypatch, crowd, give_up, settle(crowd))
    assert drain(crowd, is_json=True) == 1
    told = json.loads(capsys.readouterr().out)
    assert [each["plan"]["name"] for each in told["moved"]] == ["b"]
    assert {each["name"]: each["why"] for each in told["stay"]}["a"] == "its work does not end"
    assert told["gpu"] == 0


def test_one_that_ends_meanwhile_does_not_stay(
    host: MovingHost, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    host.opened("web")

    def gone(move: PlayedMove) -> None:
        host.vgpus.remove("web")
        raise RefusedError("there is no vGPU called web")

    host.moves.began = gone
    assert drain(host) == 0
    assert capsys.readouterr().out.count("\n") == 1


def test_an_empty_gpu_is_drained(host: MovingHost, capsys: pytest.CaptureFixture[str]) -> None:
    assert drain(host, host.gpus[1].device.uuid) == 0
    assert capsys.readouterr().out == "GPU 1 is drained: no vGPU comes to it until fairgv-host undrain 1\n"


def test_one_that_comes_still_is_waited_for_and_leaves_again(
    host: MovingHost, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    vgpu = host.opened("web", Entitlement(gpu="1"))
    vgpu.entitlement = Entitlement()
    step_by_step(monkeypatch, host, nothing, end, settle(host))
    host.ask("migrate", name="web", to="0")
    move = host.moves.all["web"]
    move.plan = replace(move.plan, origin=0, target=1)
    assert drain(host, "1") == 0
    assert capsys.readouterr().out.splitlines() == [
        "GPU 1 is drained: no vGPU comes to it until fairgv-host undrain 1",
        "web is on GPU 0",
    ]
    assert host.asked.count("migrate") == 2


def test_ctrl_c_leaves_it_drained_and_the_move_ends(
    crowd: MovingHost, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    step_by_step(monkeypatch, crowd, ctrl_c, nothing, settle(crowd))
    assert drain(crowd) == migrating.INTERRUPTED
    captured = capsys.readouterr()
    assert captured.out.splitlines()[1:] == ["a is on GPU 1"]
    assert captured.err.splitlines() == [
        "fairgv-host: waits for the end of the move that is under way",
        "fairgv-host: interrupted: GPU 0 stays drained, and fairgv-host drain 0 goes on",
    ]
    assert crowd.asked.count("migrate") == 1
    assert crowd.gpus[0].is_drained
