"""vGPUs that move by replay: programs that are bound to nothing go in their own processes, and notice nothing; others are named, and stay, or
move by a checkpoint."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backend_host.cli import host_command
from backend_host.errors import RefusedError
from backend_host.ipc import Connection
from backend_host.launching import wait_for_end
from tests.end_to_end.host import Host, start_host, stop_host, wait_until
from tests.end_to_end.travel import (
    KEPT,
    PAUSES,
    Program,
    begin_to_move,
    devices,
    end_programs,
    go_together,
    migrate,
    neighbours_run_on,
    number,
    other,
    stage_of,
    vgpu,
)

NR_MOVES = 6
CROSSING, RESTLESS, TOLD = "crossing", "restless", "told_constants"
ADDRESS = "has an address of a module variable in memory or in a kernel"


@pytest.fixture(scope="module")
def host(two_devices: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    host = start_host(tmp_path_factory.mktemp("replay"), fast_moves=True)
    yield host
    stop_host(host)


@pytest.fixture
def own_host(two_devices: None, tmp_path: Path) -> Iterator[Host]:
    """For a test that ends its daemon."""
    host = start_host(tmp_path, fast_moves=True)
    yield host
    end_programs()
    stop_host(host)


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    yield
    end_programs()


def replay(host: Host, name: str = "web") -> dict[str, Any]:
    """To the other Gpu."""
    await_plan(host, name)
    return by("replay", host, name)


def await_plan(host: Host, name: str = "web") -> None:
    """Until all images have been looked through, which a thread does."""
    wait_until(lambda: may_be_replayed(host, name), "nothing binds it")


def may_be_replayed(host: Host, name: str) -> bool:
    with Connection(host.state_dir / "control.sock") as connection:
        try:
            connection.ask("plan", name=name, to=str(other(host, name)), mover="replay")
        except RefusedError:
            return False
    return True


def by(mover: str, host: Host, name: str = "web") -> dict[str, Any]:
    answer = move(host, name, "--mover", mover, "--json")
    told: dict[str, Any] = json.loads(answer.stdout or "{}")
    assert (answer.returncode, told.get("stage")) == (0, "done"), (told, answer.stderr, host.log()[-3000:])
    assert told["plan"]["mover"] == mover
    return told


def move(host: Host, name: str, *options: str) -> subprocess.CompletedProcess[str]:
    return host_command(host.state_dir, "migrate", name, "--to", str(other(host, name)), *options)


def worker_pid(host: Host, name: str = "web") -> int:
    [client] = vgpu(host, name)["clients"]
    return int(client["worker_pid"])


def native_lines(host: Host, program: str, nr_lines: int) -> list[str]:
    return subprocess.run(
        [str(host.native(program).args[0])],
        input="\n" * nr_lines,
        env=host.environment(),
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines(keepends=True)


@pytest.mark.parametrize("name", [PAUSES, CROSSING])
def test_a_program_says_what_it_says_natively(host: Host, name: str) -> None:
    """In its own worker, with its memory, streams, events and pinned memory."""
    native = native_lines(host, name, NR_MOVES + 1)
    program = Program(host, "web", name)
    assert program.computes() == native[1]
    pid, nbytes = worker_pid(host), vgpu(host, "web")["memory_bytes"]
    for nth in range(NR_MOVES):
        assert replay(host)["pause_ns"] > 0
        assert program.computes() == native[2 + nth]
    assert (worker_pid(host), vgpu(host, "web")["memory_bytes"]) == (pid, nbytes)
    assert program.ends()[-1] == "PASS"


def test_one_that_is_never_at_rest_notices_nothing(host: Host) -> None:
    """Threads of it make, use and give back all the time."""
    program = Program(host, "web", RESTLESS)
    for _ in range(NR_MOVES):
        replay(host)
    assert program.ends() == ["PASS"]


def test_the_best_mover_is_replay_and_nothing_is_left_there(host: Host) -> None:
    program = Program(host, "web")
    program.computes()
    here = number(host, "web")
    await_plan(host)
    plan = move(host, "web", "--dry-run").stdout.splitlines()
    assert plan[0] == f"web would move from GPU {here} to GPU {1 - here} by replay: one program with 18 MiB"
    answer = move(host, "web")
    assert answer.stdout.splitlines()[-1].startswith(f"web is on GPU {1 - here}: its programs stood still for ")
    totals = vgpu(host, "web")["totals"]
    assert totals["compared_bytes"] >= 18 << 20, "all was looked at again in the pause"
    assert totals["changed_bytes"] == 0, "it stood still"
    assert migrate(host, "web")["plan"]["mover"] == "replay"
    program.computes()
    assert [gpu["used_bytes"] > 0 for gpu in devices(host)] == [number(host, "web") == gpu for gpu in (0, 1)]
    assert all(gpu["has_fast_moves"] for gpu in devices(host))
    assert program.ends()[-1] == "PASS"


def test_all_programs_of_a_vgpu_go_together(host: Host) -> None:
    go_together(host, (PAUSES, CROSSING, PAUSES), 2, lambda: replay(host))


def test_neighbours_on_both_gpus_run_on(host: Host) -> None:
    neighbours_run_on(host, CROSSING, lambda: replay(host, "moves"))


def test_one_that_is_bound_is_named_and_moves_by_a_checkpoint(host: Host) -> None:
    """It keeps addresses of every kind that the driver chose."""
    program = Program(host, "web", KEPT)
    program.computes()
    here = number(host, "web")
    refused = move(host, "web", "--mover", "replay")
    called = f"{KEPT} (worker {worker_pid(host)})"
    assert refused.returncode == 1
    assert f"web cannot move to GPU {1 - here}: {called} " in refused.stderr
    for reason in (
        "has module variables",
        "took addresses of device functions",
        "uses the device's heap",
        "has graphs",
        "has arrays, textures or surfaces",
    ):
        assert reason in refused.stderr
    assert f"not by replay: {called} has module variables" in move(host, "web", "--dry-run").stdout
    told = migrate(host, "web")
    assert told["plan"]["mover"] == "checkpoint"
    assert told["plan"]["no_replay"][0].startswith(called)
    program.computes()
    assert program.ends()[-1] == "PASS"


def test_one_of_two_that_is_bound_keeps_both(host: Host) -> None:
    programs = [Program(host, "web", name) for name in (CROSSING, KEPT)]
    for each in programs:
        each.computes()
    here = number(host, "web")
    refused = move(host, "web", "--mover", "replay")
    assert refused.returncode == 1
    assert f"{KEPT} (worker " in refused.stderr
    assert f"{CROSSING} (worker " not in refused.stderr
    assert number(host, "web") == here
    for each in programs:
        each.computes()
    assert migrate(host, "web")["plan"]["mover"] == "checkpoint"
    for each in programs:
        each.computes()
        assert each.ends()[-1] == "PASS"


def test_both_movers_in_turn(host: Host) -> None:
    """After a checkpoint its process counts devices otherwise; another program began there, and does not."""
    programs = [Program(host, "web", CROSSING)]
    programs[0].computes()
    by("checkpoint", host)
    programs.append(Program(host, "web", CROSSING))
    for mover in ("replay", "replay", "checkpoint", "replay", "checkpoint"):
        for each in programs:
            each.computes()
        by(mover, host)
    for each in programs:
        each.computes()
        assert each.ends()[-1] == "PASS"


def test_work_that_does_not_end_is_waited_for_until_somebody_says_no(host: Host) -> None:
    child = host.start("spin", "60000", options=("--vgpu", "web"))
    try:
        assert child.stdout is not None
        assert child.stdout.readline(), "its kernel has begun"
        here = number(host, "web")
        moving = begin_to_move(host, "web", "leaving")
        with Connection(host.state_dir / "control.sock") as connection:
            connection.ask("abort", name="web")
        _, said = moving.communicate(timeout=60)
        assert "it was asked to stay" in said
        assert (stage_of(host, "web"), number(host, "web")) == ("aborted", here)
        assert devices(host)[1 - here]["vgpus"] == []
        assert child.poll() is None
    finally:
        child.terminate()
        child.communicate()


@pytest.mark.parametrize("stage", ["preparing", "leaving", "changing"])
def test_a_worker_that_dies_on_its_way_leaves_nothing(host: Host, stage: str) -> None:
    """At whatever it is when that stage is seen."""
    program = Program(host, "web", CROSSING)
    program.computes()
    pid = worker_pid(host)
    await_plan(host)
    moving = begin_to_move(host, "web", stage)
    os.kill(pid, signal.SIGKILL)
    moving.communicate(timeout=60)
    wait_until(lambda: not vgpu(host, "web")["clients"], "its worker is gone")
    assert program.child.poll() is None, "it learns of that at its next call"


@pytest.mark.parametrize("stage", ["preparing", "leaving", "changing"])
def test_a_daemon_that_dies_in_a_move_costs_no_program(own_host: Host, stage: str) -> None:
    """It is on one of both devices at any time, and goes on there; or it was just about to hear of its page.

    The log says how far it was, as a move goes on while it is looked at."""
    host = own_host
    program = Program(host, "web", CROSSING)
    program.computes()
    daemon_pid = host.status()["pid"]
    await_plan(host)
    moving = begin_to_move(host, "web", stage)
    os.kill(daemon_pid, signal.SIGKILL)
    wait_for_end(daemon_pid)
    moving.communicate(timeout=60)
    log = (host.state_dir / "daemon.log").read_text()
    is_changing = re.search(r"web: its move to GPU \d is changing", log) is not None
    assert is_changing or stage != "changing"
    start_host(host.state_dir, fast_moves=True)
    output, _ = program.child.communicate("\n", timeout=60)
    assert output.splitlines()[-1] in (("PASS", "FAIL") if is_changing else ("PASS",)), "it hangs for nobody"


def test_the_next_daemon_moves_it_on(own_host: Host) -> None:
    host = own_host
    program = Program(host, "web", CROSSING)
    program.computes()
    replay(host)
    assert host_command(host.state_dir, "restart").returncode == 0
    program.computes()
    replay(host)
    program.computes()
    assert program.ends()[-1] == "PASS"


def test_a_program_of_a_daemon_without_fast_moves_is_not_ready(two_devices: None, tmp_path: Path) -> None:
    host = start_host(tmp_path)
    try:
        program = Program(host, "web")
        program.computes()
        refused = move(host, "web", "--mover", "replay")
        assert "its programs are not kept ready for replay: fast_moves is not set" in refused.stderr
        assert migrate(host, "web")["plan"]["mover"] == "checkpoint"
        assert not any(gpu["has_fast_moves"] for gpu in devices(host))
        program.computes()
        assert program.ends()[-1] == "PASS"
    finally:
        end_programs()
        stop_host(host)


class Told:
    """The program that goes by addresses of its constants, beside what it says natively to the same words."""

    def __init__(self, host: Host, *words: str) -> None:
        self.host = host
        self._words = iter(words)
        native = subprocess.run(
            [str(host.native(TOLD).args[0])],
            input="".join(f"{word}\n" for word in words),
            env=host.environment(),
            capture_output=True,
            text=True,
            check=True,
        )
        self._native = iter(native.stdout.splitlines(keepends=True)[1:])
        self.program = Program(host, "web", TOLD)

    def goes_on(self) -> None:
        """By the next word. What its kernels print comes, too."""
        stdin, stdout = self.program.child.stdin, self.program.child.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(f"{next(self._words)}\n")
        stdin.flush()
        line = "line"
        while line.startswith("line"):
            line = stdout.readline()
            assert line == next(self._native), self.host.log()[-3000:]

    def ends(self) -> None:
        assert self.program.ends() == ["PASS"]

    def moves(self, nr: int) -> None:
        """Goes on before each move and behind the last, and ends."""
        self.goes_on()
        for _ in range(nr):
            replay(self.host)
            self.goes_on()
        self.ends()


def test_constants_and_texts_of_kernels_go_along(host: Host) -> None:
    """By name and by address, with what is in them, there and back and there again."""
    told = Told(host, *[""] * (NR_MOVES + 1))
    told.moves(NR_MOVES)


@pytest.mark.parametrize("word", ["load", "beyond"])
def test_modules_that_come_later_and_memory_behind_constants(host: Host, word: str) -> None:
    told = Told(host, *[word] * (NR_MOVES + 1))
    told.moves(NR_MOVES)


def test_numbers_that_are_an_address_together_stay_numbers(host: Host) -> None:
    """Of a kernel's parameters."""
    told = Told(host, "halves", "halves", "halves")
    told.goes_on()
    replay(host)
    told.goes_on()
    replay(host)
    told.goes_on()
    told.ends()


@pytest.mark.parametrize("nr_moves", [0, 1, 2])
def test_an_address_that_a_kernel_was_given_is_right_and_binds(host: Host, nr_moves: int) -> None:
    told = Told(host, "", "pass", "", "pass")
    told.goes_on()
    for _ in range(nr_moves):
        replay(host)
    told.goes_on()
    refused = move(host, "web", "--mover", "replay")
    assert (refused.returncode, f"{TOLD} (worker {worker_pid(host)}) {ADDRESS}\n" in refused.stderr) == (1, True), (
        refused
    )
    assert ADDRESS in move(host, "web", "--dry-run").stdout
    assert migrate(host, "web")["plan"]["mover"] == "checkpoint"
    told.goes_on()
    told.goes_on()
    told.ends()


def test_an_address_in_memory_binds(host: Host) -> None:
    """Which is known once memory is looked through. It goes on where it was, and then by a checkpoint."""
    told = Told(host, "", "keep", "", "keep", "keep")
    told.goes_on()
    told.goes_on()
    here = number(host, "web")
    await_plan(host)
    refused = move(host, "web", "--mover", "replay", "--json")
    assert (refused.returncode, number(host, "web")) == (1, here)
    assert f"{TOLD} (worker {worker_pid(host)}) {ADDRESS}" in json.loads(refused.stdout)["reason"]
    assert "in its memory is the address of values" in host.log()
    told.goes_on()
    told.goes_on()
    assert migrate(host, "web")["stage"] == "done"
    assert number(host, "web") != here
    told.goes_on()
    told.ends()


def test_one_that_keeps_an_address_takes_another_one_back(host: Host) -> None:
    """Which may have been on the other device by then."""
    goes, keeps = Told(host, *["", "load"] * 3), Told(host, *["keep"] * 3)
    both = (goes, goes, keeps)
    for each in both:
        each.goes_on()
    here = number(host, "web")
    await_plan(host)
    assert move(host, "web", "--mover", "replay").returncode == 1
    assert number(host, "web") == here
    for each in both:
        each.goes_on()
    assert migrate(host, "web")["stage"] == "done"
    for each in both:
        each.goes_on()
    goes.ends()
    keeps.ends()
