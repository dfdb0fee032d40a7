"""The phases of a worker: their table is whole, and nothing leaves it."""

import ctypes
import itertools
import subprocess
import sys
from xml.etree import ElementTree

import pytest
from backend_host.worker._worker import ffi, lib

from backend_host import phases
from tests.backend_host.parts import load_parts

PARTS = ("phase", "change", "log")
OUT, WAITING, RUNNING, OFF_USER = "out", "waiting", "running", "off-user"
STANDS_OUT = 0
WORK_OFF = 3


def opened(path: str) -> ctypes.CDLL:
    library = ctypes.CDLL(path)
    for name in ("stand_of", "work_of", "change", "may_follow"):
        getattr(library, name).argtypes = [ctypes.c_uint32] * (2 if name in ("change", "may_follow") else 1)
    library.may_follow.restype = ctypes.c_bool
    library.nr_bad_phases.restype = ctypes.c_uint64
    return library


@pytest.fixture(scope="module")
def debug_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(load_parts("phases", PARTS, tmp_path_factory.mktemp("debug"))._name)


@pytest.fixture(scope="module")
def library(debug_path: str) -> ctypes.CDLL:
    return opened(debug_path)


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return opened(str(load_parts("phases", PARTS, tmp_path_factory.mktemp("release"), flags=())._name))


def word(phase: int) -> str:
    return str(ffi.string(lib.fgw_phase_word(phase)).decode())


def words(library: ctypes.CDLL) -> dict[str, int]:
    return {word(phase): phase for phase in range(ctypes.c_uint32.in_dll(library, "nr_phases").value)}


def test_each_phase_has_a_word_of_its_own(library: ctypes.CDLL) -> None:
    numbers = words(library)
    assert len(numbers) == ctypes.c_uint32.in_dll(library, "nr_phases").value
    assert numbers[OUT] == 0, "a fresh slot says so"


@pytest.mark.parametrize("number", [100, 2**32 - 1])
def test_a_number_that_no_worker_of_ours_writes_is_no_phase(number: int) -> None:
    assert word(number) == "unknown"


def test_every_phase_is_entered_from_out_and_left_for_it(library: ctypes.CDLL) -> None:
    numbers = words(library)
    ways = {(a, b) for a, b in itertools.product(numbers.values(), repeat=2) if library.may_follow(a, b)}

    def reached(arrows: set[tuple[int, int]]) -> set[int]:
        found = {numbers[OUT]}
        while more := {b for a, b in arrows if a in found} - found:
            found |= more
        return found

    assert reached(ways) == set(numbers.values())
    assert reached({(b, a) for a, b in ways}) == set(numbers.values())
    assert all(a != b for a, b in ways)


def test_nobody_gets_in_but_by_entering_and_out_but_by_leaving(library: ctypes.CDLL) -> None:
    """What is off the device is on it again in a turn, unless its client has ended."""
    numbers = words(library)
    for (a, from_), (b, to) in itertools.permutations(numbers.items(), 2):
        if library.may_follow(from_, to) and library.work_of(from_) == WORK_OFF != library.work_of(to):
            assert (a, b) in {(OFF_USER, RUNNING), ("off-waiting", "beside-waiting"), ("off-out", "beside")}
        if library.may_follow(from_, to) and library.work_of(to) == WORK_OFF != library.work_of(from_):
            assert (library.stand_of(to) == STANDS_OUT) == (b == "off-out")


def test_a_change_is_shown(library: ctypes.CDLL) -> None:
    numbers = words(library)
    assert library.change(numbers[OUT], numbers[WAITING]) == numbers[WAITING]


def test_what_is_not_in_the_table_stops_a_debug_build(library: ctypes.CDLL, debug_path: str) -> None:
    numbers = words(library)
    program = f"import ctypes; ctypes.CDLL({debug_path!r}).change({numbers[WAITING]}, {numbers[RUNNING]})"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode < 0
    assert "no way leads from the phase waiting to running" in ended.stderr


def test_and_is_counted_by_any_other(release: ctypes.CDLL) -> None:
    numbers = words(release)
    assert release.change(numbers[OUT], numbers[WAITING]) == numbers[WAITING]
    assert release.nr_bad_phases() == 0
    assert release.change(numbers[WAITING], numbers[RUNNING]) == numbers[RUNNING]
    assert release.nr_bad_phases() == 1


def test_the_documentation_tells_of_the_same_table(library: ctypes.CDLL) -> None:
    machine, numbers = phases.read(phases.PHASE_H.read_text()), words(library)
    assert [phase.word for phase in machine.phases] == list(numbers)
    told = {(numbers[machine.word(way.source)], numbers[machine.word(way.target)]) for way in machine.transitions}
    assert told == {way for way in itertools.product(numbers.values(), repeat=2) if library.may_follow(*way)}
    assert len(told) == len(machine.transitions), "none stands there twice"


def test_the_picture_has_each_phase_and_each_transition() -> None:
    machine = phases.read(phases.PHASE_H.read_text())
    svg = ElementTree.fromstring(phases.picture(machine, phases.THEMES["dark"]))
    names = [text.text for text in svg.iter("{http://www.w3.org/2000/svg}text")]
    titles = [title.text for title in svg.iter("{http://www.w3.org/2000/svg}title")]
    assert {phase.word for phase in machine.phases} <= set(names)
    assert len(titles) == len(machine.phases) + len(machine.transitions)


def test_a_page_without_a_place_for_it_is_refused() -> None:
    machine = phases.read(phases.PHASE_H.read_text())
    with pytest.raises(phases.PhasesError):
        phases.page("# A page\n", machine)
    with pytest.raises(phases.PhasesError):
        phases.read('X(OUT, "out", FGW_STANDS_OUT, FGW_WORK_NONE, "x") X(OUT, GONE, "y")')
