"""
Large modules in two tiers: what a program sees while the one takes the other's place, and what becomes of the process that stays behind.

The compiler here is the real one, but its process that stays behind waits for the test, and may be told to compile a changed module, so that
a kernel's answer tells which code it ran.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from softgpu.compiler import tiers
from softgpu.compiler.command import compile_image
from softgpu.compiler.text.pieces import Part
from tests.programs.build import build_one
from tests.softgpu.compiler_harness import CAPABILITY, HEADER, LoadedModule
from tests.softgpu.driver_harness import TIMEOUT_S, Device, build

COMPILER = """#!{python}
import os, resource, sys, time
from pathlib import Path
from softgpu.compiler import main, tiers
from softgpu.compiler.command import compile_image

folder = Path({folder!r})
image, output = Path(sys.argv[2]).read_bytes(), Path(sys.argv[6])
with open(folder / "calls", "a") as calls:
    print(*sys.argv[7:8], *sys.argv[9:], file=calls)
complete = tiers._complete

def wait_for(name):
    end = time.monotonic() + {timeout_s}
    while not (folder / name).exists() and time.monotonic() < end:
        time.sleep(0.005)

def held(make_output, quick):
    with open(folder / "behind", "a") as behind:
        is_alone = os.getsid(0) == os.getpid() and os.getcwd() == "/"
        files = sorted({{os.readlink(f"/proc/self/fd/{{fd}}") for fd in (0, 1, 2)}})
        limits = resource.getrlimit(resource.RLIMIT_CPU)
        print(os.getpid(), is_alone, os.nice(0) >= 10, files, 0 < limits[0] <= 600, file=behind)
    wait_for("go")
    change = folder / "change"
    if change.exists():
        changed = image.replace(*change.read_bytes().split())
        make_output = lambda: compile_image(changed, 80, output)
    complete(make_output, quick)

if "--finish" in sys.argv:
    wait_for("finish")
    (folder / "begun").touch()
tiers._complete = held
tiers._HEAD_START_S = 0
status = main()
sys.stdout.flush()
os._exit(status)
"""


@dataclass
class Held:
    """A device with that compiler."""

    device: Device

    @property
    def folder(self) -> Path:
        return self.device.folder

    def start(self, **settings: str) -> subprocess.Popen[str]:
        return self.device.with_settings(**settings).start_case("tiers")

    def calls(self) -> list[str]:
        """What the compiler was called with beside image and output."""
        return (self.folder / "calls").read_text().splitlines()

    def let_go(self, change: str = "") -> None:
        """Lets those that were sent to finish begin, and the processes that stay behind go on."""
        (self.folder / "finish").touch()
        if change:
            (self.folder / "change").write_text(change)
        (self.folder / "go").touch()

    def behind(self) -> list[int]:
        """The processes that stayed behind so far."""
        path = self.folder / "behind"
        return [int(line.split()[0]) for line in path.read_text().splitlines()] if path.exists() else []

    def cached(self) -> list[str]:
        """Names in the cache but for their keys and the places of who stays behind; a folder that somebody works in is '/'."""
        found = (path for path in self.device.cache.iterdir() if not path.name.startswith(".behind-"))
        return sorted("/" if path.is_dir() else path.name[32:] for path in found)

    def wait_until_cached(self, names: list[str]) -> None:
        _wait(lambda: self.cached() == names)


@pytest.fixture(scope="session", autouse=True)
def _built() -> None:
    build()


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Held]:
    compiler = tmp_path / "compiler"
    compiler.write_text(COMPILER.format(python=sys.executable, folder=str(tmp_path), timeout_s=TIMEOUT_S))
    compiler.chmod(0o700)
    settings = {"FAIRGV_SOFTGPU_COMPILER": str(compiler), "FAIRGV_SOFTGPU_TIERS": "all"}
    held = Held(Device(tmp_path, settings))
    yield held
    held.device.close()
    for process in held.behind():
        if _is_running(process):
            os.kill(process, signal.SIGKILL)


def _wait(is_so: object) -> None:
    assert callable(is_so)
    end = time.monotonic() + TIMEOUT_S
    while not is_so():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)


def _is_running(process: int) -> bool:
    """Also when nobody asks how it ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _tell(process: subprocess.Popen[str], what: str) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(what + "\n")
    process.stdin.flush()
    lines = [process.stdout.readline()]
    while lines[-1].startswith("said"):
        lines.append(process.stdout.readline())
    return "".join(lines[-2:]).strip()


def _run(process: subprocess.Popen[str]) -> dict[str, str]:
    """What the program said of its module."""
    printed, told = _tell(process, "run").splitlines()
    answers = dict(answer.split(" ", 1) for answer in told.replace("as before", "as_before").split(", "))
    assert printed == f"said {answers['count']}"
    return answers


def test_a_running_process_goes_on_in_the_optimised_code(held: Held) -> None:
    process = held.start()
    before = _run(process)
    assert (before["version"], before["count"], before["twice"], before["met"]) == ("1111", "1", "2", "4")
    assert held.cached() == [".quick.so", "/"]
    held.let_go(change="1111 2222")
    assert _tell(process, "until 2222").endswith("so")
    after = _run(process)
    assert after["loaded"] == "2"
    assert int(after["count"]) > 1
    assert after["twice"] == str(2 * int(after["count"]))
    changing = dict.fromkeys(("version", "count", "twice", "loaded"))
    assert before | changing == after | changing
    held.wait_until_cached([".so"])
    assert process.communicate(timeout=TIMEOUT_S)[0] == ""


def test_later_processes_find_it_at_once(held: Held) -> None:
    assert _run(held.start())["version"] == "1111"
    held.let_go(change="1111 2222")
    held.wait_until_cached([".so"])
    later = _run(held.start())
    assert (later["version"], later["loaded"]) == ("2222", "1")
    assert held.calls() == ["--quick"]


def test_code_that_does_not_fit_is_not_taken(held: Held) -> None:
    process = held.start()
    _run(process)
    held.let_go(change="kept[64] kept[80]")
    while (found := _run(process))["loaded"] == "1":
        assert found["shared"] == "64"
    last = _run(process)
    assert (last["shared"], last["met"]) == ("64", "4")


def test_the_process_that_stays_behind_is_nobodys_burden(held: Held) -> None:
    process = held.start()
    _run(process)
    _wait(held.behind)
    assert (held.folder / "behind").read_text().split(maxsplit=1)[1] == "True True ['/dev/null'] True\n"
    assert Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text() == ""
    process.communicate(timeout=TIMEOUT_S)
    (behind,) = held.behind()
    group = Path(f"/proc/{behind}/autogroup")
    assert not group.exists() or group.read_text().split()[1:] in ([], ["nice", "10"])
    assert _is_running(behind)
    held.let_go()
    _wait(lambda: not _is_running(behind))
    assert held.cached() == [".so"]


def test_what_a_killed_process_left_is_finished_by_the_next(held: Held) -> None:
    _run(held.start())
    _wait(held.behind)
    os.kill(held.behind()[0], signal.SIGKILL)
    _wait(lambda: not _is_running(held.behind()[0]))
    next_one = held.start()
    assert _run(next_one)["version"] == "1111"
    assert not (held.folder / "begun").exists()  # it does not wait for whom it sends
    _wait(lambda: held.calls() == ["--quick", "--quick --finish"])
    held.let_go(change="1111 2222")
    assert _tell(next_one, "until 2222").endswith("so")
    held.wait_until_cached([".so", "/"])  # the folder of the one that was killed is swept up later


def test_only_one_process_is_at_it(held: Held) -> None:
    for process in [held.start() for _ in range(3)]:
        assert _run(process)["version"] == "1111"
    _wait(held.behind)
    assert _run(held.start())["version"] == "1111"
    assert ".so" not in held.cached()
    calls = held.calls()
    assert 1 <= len(calls) <= 3
    assert set(calls) == {"--quick"}
    held.let_go()
    _wait(lambda: not any(map(_is_running, held.behind())))
    assert held.cached() == [".so"]


def test_the_bound_holds_for_what_comes_later(held: Held) -> None:
    process = held.start(FAIRGV_SOFTGPU_CACHE_BYTES="1")
    _run(process)
    other = held.device.cache / f"{0:032x}.quick.so"
    other.write_bytes(bytes(1000))
    os.utime(other, (0, 0))
    held.let_go(change="1111 2222")
    assert _tell(process, "until 2222").endswith("so")
    assert not other.exists()
    held.wait_until_cached([".so"])


def test_one_tier_where_it_is_asked_for(held: Held) -> None:
    process = held.start()
    _run(process)
    assert held.cached() == [".quick.so", "/"]
    alone = _run(held.start(FAIRGV_SOFTGPU_TIERS="1"))
    assert (alone["version"], alone["loaded"]) == ("1111", "1")
    assert held.calls() == ["--quick", ""]
    assert held.cached() == [".quick.so", ".so", "/"]
    held.let_go()
    held.wait_until_cached([".so"])


def test_a_quick_object_that_others_may_write_is_not_loaded(held: Held) -> None:
    _run(held.start())
    _wait(held.behind)
    (quick,) = held.device.cache.glob("*.quick.so")
    quick.chmod(0o620)
    assert _run(held.start())["version"] == "1111"
    assert held.calls() == ["--quick", "--quick"]
    held.let_go()
    held.wait_until_cached([".so"])


@pytest.mark.parametrize(("wall", "ends"), [("1", True), ("0", False)])
def test_what_stays_behind_ends_with_a_program_that_runs_kernels_of_others(held: Held, wall: str, ends: bool) -> None:
    process = held.start(FAIRGV_SOFTGPU_WALL=wall)
    assert _run(process)["version"] == "1111"
    _wait(held.behind)
    [behind] = held.behind()
    process.kill()
    process.communicate()
    if ends:
        _wait(lambda: not _is_running(behind))
    else:
        assert _is_running(behind)
        held.let_go()
        held.wait_until_cached([".so"])


def test_only_so_many_stay_behind(held: Held) -> None:
    """Who finds no place leaves the quick object to the next program."""
    held.device.cache.mkdir(mode=0o700)
    with contextlib.ExitStack() as places:
        for number in range(tiers._MOST_BEHIND):
            place = places.enter_context((held.device.cache / f".behind-{number}").open("w"))
            fcntl.flock(place, fcntl.LOCK_EX)
        assert _run(held.start())["version"] == "1111"
        assert held.cached() == [".quick.so"]
        assert held.behind() == []
    held.let_go()
    assert _run(held.start())["version"] == "1111"
    held.wait_until_cached([".so"])
    assert held.calls() == ["--quick", "--quick --finish"]


@pytest.mark.parametrize("program", ["textures"])
def test_both_tiers_compute_the_same(held: Held, program: str) -> None:
    quick = held.device.run(build_one(program), "--values")
    whole = held.device.with_settings(FAIRGV_SOFTGPU_TIERS="1").run(build_one(program), "--values")
    assert len(quick.stdout) > 1000
    assert quick.stdout == whole.stdout
    assert held.calls() == ["--quick", ""]


IMAGE = (HEADER + ".visible .entry k() { ret; }").encode()


def test_small_modules_have_one_tier(tmp_path: Path) -> None:
    compile_image(IMAGE, CAPABILITY, tmp_path / "k.so", quick=tmp_path / "k.quick.so")
    assert [path.name for path in tmp_path.iterdir()] == ["k.so"]


@pytest.mark.parametrize(("weights", "is_large"), [([290, 10], False), ([200, 200, 200], False), ([310, 10], True)])
def test_what_one_process_has_to_do_decides(weights: list[int], is_large: bool) -> None:
    assert tiers.is_large([Part(str, weight) for weight in weights]) == is_large


def test_who_comes_second_leaves_it_to_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRGV_SOFTGPU_TIERS", "all")
    monkeypatch.setattr(tiers, "_leave_behind", lambda *_: pytest.fail("a process more"))
    quick = tmp_path / "k.quick.so"
    quick.write_text("the first one's")
    with quick.open() as first:
        fcntl.flock(first, fcntl.LOCK_EX)
        compile_image(IMAGE, CAPABILITY, tmp_path / "k.so", quick=quick)
        tiers.finish(lambda: None, quick, tmp_path / "k.so")
    assert [path.name for path in tmp_path.iterdir()] == ["k.quick.so"]
    assert quick.read_text() == "the first one's"


def test_nothing_is_left_to_finish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "_leave_behind", lambda *_: pytest.fail("a process more"))
    output, quick = tmp_path / "k.so", tmp_path / "k.quick.so"
    tiers.finish(lambda: None, quick, output)
    for path in (quick, output):
        path.write_text("made")
    tiers.finish(lambda: None, quick, output)


def test_the_quick_object_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRGV_SOFTGPU_TIERS", "all")
    monkeypatch.setattr(tiers, "_leave_behind", lambda work, _: work() or True)
    compile_image(IMAGE, CAPABILITY, tmp_path / "k.so", quick=tmp_path / "k.quick.so")
    assert list(LoadedModule(tmp_path / "k.so").kernels) == ["k"]
    assert [path.name for path in tmp_path.iterdir()] == ["k.so"]
