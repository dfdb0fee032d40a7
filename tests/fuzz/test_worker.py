"""What fuzzing the worker found, each as an input of its own; and each call that the driver gets in six short programs fails once."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.fuzz.build import build
from tests.fuzz.daemon_programs import DAEMON_PROGRAMS
from tests.fuzz.inputs import ARENA, FIRST, GRAPH, MEMORY, NO_CHUNK, Record, pack
from tests.fuzz.programs import BEGIN, BOX, PROGRAMS, SET

pytestmark = pytest.mark.skipif(shutil.which("clang-14") is None, reason="needs clang's libFuzzer: .ci/packages")

CORPUS = Path(__file__).parent / "corpus" / "worker"


@pytest.fixture(scope="module")
def program() -> Path:
    return build("worker")


def run(program: Path, folder: Path, inputs: list[bytes]) -> None:
    """Fails with what the sanitizers or the stand-in say."""
    paths = [folder / f"{i:05}" for i in range(len(inputs))]
    for path, data in zip(paths, inputs, strict=True):
        path.write_bytes(data)
    done = subprocess.run(
        [program, "-runs=0", folder], capture_output=True, text=True, timeout=280, check=False, cwd=folder.parent
    )
    assert done.returncode == 0, done.stderr[-8000:]
    assert f"files found in {folder}" in done.stderr


def test_captured_copy_gives_its_chunk_back(program: Path, tmp_path: Path) -> None:
    run(program, tmp_path, [pack([BEGIN, Record("cuMemcpy3DAsync_v2", {**BOX, "stream": FIRST})])])


DESTROY = Record("cuStreamDestroy_v2", {"hStream": FIRST})


@pytest.mark.parametrize("busy", [0, 255])
def test_destroyed_stream_is_not_marked(program: Path, tmp_path: Path, busy: int) -> None:
    """Whatever call fails, that of its last mark included."""
    wait = Record("cuCtxSynchronize", rounds=1)
    other = Record("cuMemsetD8Async", {"dstDevice": MEMORY, "N": 64, "hStream": 4})
    records = [Record("cuStreamCreate", {"phStream": 4}), SET, other, DESTROY, wait]
    run(program, tmp_path, [pack(records, fail_at=n, busy=busy) for n in range(-1, 24)])


def copy_of(chunk: int) -> Record:
    fields = {"destination": MEMORY, "bytes": 64, "place": ARENA, "stream": FIRST, "chunk": chunk}
    return Record("cuMemcpyHtoDAsync_v2", fields)


@pytest.mark.parametrize("busy", [0, 255])
def test_chunk_behind_which_no_mark_will_stand(program: Path, tmp_path: Path, busy: int) -> None:
    """Its copy is captured, when the driver failed to tell; or it was waited for instead of marked, behind a mark that has not ended."""
    of_other = Record("capture_begin", {"stream": 4})
    records = [
        [BEGIN, copy_of(1), copy_of(2)],
        [Record("cuStreamCreate", {"phStream": 4}), SET, of_other, copy_of(1), copy_of(2)],
    ]
    seeds = range(40)
    random = [pack(each, busy=busy, seed=seed, fails=48) for each in records for seed in seeds]
    run(program, tmp_path, [*random, *(pack(each, fail_at=n, busy=busy) for each in records for n in range(24))])


INFO = Record("capture_info", {"stream": FIRST, "chunk": NO_CHUNK})


def test_destroyed_capturing_stream_takes_its_graph_s_number(program: Path, tmp_path: Path) -> None:
    """Also when the driver did not name the graph as the capture began, and did later."""
    use = [Record("cuGraphDestroy", {"hGraph": GRAPH | n}) for n in (1, 2, 3)]
    records = [SET, BEGIN, INFO, DESTROY, *use, Record("cuCtxSynchronize", rounds=1)]
    run(program, tmp_path, [pack(records, fail_at=n) for n in range(-1, 24)])


def test_capture_whose_graph_has_no_name_leaves_no_number(program: Path, tmp_path: Path) -> None:
    end = Record("capture_end", {"stream": FIRST})
    use = [Record("cuGraphDestroy", {"hGraph": GRAPH | n}) for n in (1, 2, 3)]
    run(program, tmp_path, [pack([BEGIN, SET, end, *use], fail_at=n) for n in range(-1, 24)])


def test_no_mark_is_made_in_another_context(program: Path, tmp_path: Path) -> None:
    """Where the driver does not enter a stream's own: the event would go with the other one, and be used again."""
    in_fourth = Record("cuMemsetD8Async", {"dstDevice": MEMORY, "N": 64}, context=4)
    marks_all = [BEGIN, Record("capture_end", {"stream": FIRST})]
    ends = [Record("context_destroy", {"handle": FIRST}), Record("cuCtxSynchronize", rounds=3, context=4)]
    records = [Record("context_create", {"handle": 4}, context=0), in_fourth, *marks_all, *ends]
    run(program, tmp_path, [pack(records, fail_at=n) for n in range(-1, 60)])


def test_nothing_is_read_of_a_link_that_has_no_image_yet(program: Path, tmp_path: Path) -> None:
    """No byte was, but from no address."""
    records = [Record("cuLinkCreate_v2", {"link": 4}), Record("link_read", {"link": 4, "bytes": 0, "chunk": 0})]
    run(program, tmp_path, [pack(records)])


MOST_CALLS = {"staging": 590}
"""Of the driver, in programs with more than 110; a call that no program comes to fails nowhere."""
WAYS = {"parts": (4, 8), "parts in turn": (4, 8), "links": (0,)}
"""Flags that a program is run with: launches in boxes, persistent ones. Others with and without a device that takes work back."""


def nr_calls(name: str) -> int:
    """Of the driver at most."""
    return MOST_CALLS.get(name, 110)


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_call_of_the_driver_fails_once(program: Path, tmp_path: Path, name: str) -> None:
    records = PROGRAMS[name]
    ways = WAYS.get(name, (0, 1))
    run(program, tmp_path, [pack(records, fail_at=n, flags=flags) for n in range(-1, nr_calls(name)) for flags in ways])


@pytest.mark.parametrize("name", DAEMON_PROGRAMS)
def test_what_the_daemon_does_while_a_call_fails(program: Path, tmp_path: Path, name: str) -> None:
    flags, records = DAEMON_PROGRAMS[name]
    most = nr_calls(name) if any(isinstance(record, Record) for record in records) else 0
    run(program, tmp_path, [pack(records, fail_at=n, flags=flags, busy=64 * (n % 2)) for n in range(-1, most)])


def test_corpus(program: Path, tmp_path: Path) -> None:
    run(program, tmp_path, [path.read_bytes() for path in sorted(CORPUS.iterdir())])
