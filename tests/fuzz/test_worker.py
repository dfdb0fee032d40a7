"""What fuzzing the worker found, each as an input of its own; and each call that the driver gets in six short programs fails once."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.fuzz.build import build
from tests.fuzz.inputs import FIRST, GRAPH, MOVE, NO_CHUNK, NODE, Record, pack

pytestmark = pytest.mark.skipif(shutil.which("clang-14") is None, reason="needs clang's libFuzzer: .ci/packages")

CORPUS = Path(__file__).parent / "corpus" / "worker"
ARENA, DEVICE = 1, 3
MEMORY = 0x7000_0000_0000
"""The first address that the stand-in gives: 8 KiB that are there already."""


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


BOX = {
    "to_place": DEVICE,
    "to_address": MEMORY,
    "to_pitch_bytes": 64,
    "to_plane_rows": 1,
    "from_place": ARENA,
    "from_pitch_bytes": 64,
    "from_plane_rows": 1,
    "width_bytes": 64,
    "height": 1,
    "depth": 1,
    "chunk": 0,
}
BEGIN = Record("capture_begin", {"stream": FIRST})


def test_captured_copy_gives_its_chunk_back(program: Path, tmp_path: Path) -> None:
    run(program, tmp_path, [pack([BEGIN, Record("cuMemcpy3DAsync_v2", {**BOX, "stream": FIRST})])])


SET = Record("cuMemsetD8Async", {"dstDevice": MEMORY, "N": 64, "hStream": FIRST})
DESTROY = Record("cuStreamDestroy_v2", {"hStream": FIRST})


@pytest.mark.parametrize("busy", [0, 255])
def test_destroyed_stream_is_not_marked(program: Path, tmp_path: Path, busy: int) -> None:
    """Whatever call fails, that of its last mark included."""
    wait = Record("cuCtxSynchronize", rounds=1)
    other = Record("cuMemsetD8Async", {"dstDevice": MEMORY, "N": 64, "hStream": 4})
    records = [Record("cuStreamCreate", {"phStream": 4}), SET, other, DESTROY, wait]
    run(program, tmp_path, [pack(records, fail_at=n, busy=busy) for n in range(-1, 24)])


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


def test_nothing_is_read_of_a_link_that_has_no_image_yet(program: Path, tmp_path: Path) -> None:
    """No byte was, but from no address."""
    records = [Record("cuLinkCreate_v2", {"link": 4}), Record("link_read", {"link": 4, "bytes": 0, "chunk": 0})]
    run(program, tmp_path, [pack(records)])


PROGRAMS = {
    "streams": [
        Record("cuStreamCreate", {"phStream": 4}),
        Record("cuEventCreate", {"phEvent": 4}),
        SET,
        Record("cuEventRecord", {"hEvent": 4, "hStream": FIRST}),
        Record("cuStreamWaitEvent", {"hStream": 4, "hEvent": 4}),
        Record("cuMemcpyHtoDAsync_v2", {"destination": MEMORY, "bytes": 64, "place": ARENA, "chunk": 1, "stream": 4}),
        Record(
            "cuMemcpyDtoHAsync_v2", {"source": MEMORY, "bytes": 64, "place": ARENA, "chunk": 2, "stream": 4}, rounds=2
        ),
        Record("cuStreamSynchronize", {"hStream": 4}, rounds=2),
        Record("cuMemcpy3DAsync_v2", {**BOX, "stream": 4}, rounds=1),
        Record("cuStreamDestroy_v2", {"hStream": 4}),
        Record("cuEventDestroy_v2", {"hEvent": 4}),
        Record("cuCtxSynchronize", rounds=2),
    ],
    "code": [
        Record(
            "cuLaunchKernel",
            {"function": FIRST, "grid": [1, 1, 1], "block": [1, 1, 1], "nr_parameter_bytes": 32},
            bytes(32),
        ),
        Record(
            "cuLaunchKernel",
            {"function": FIRST, "grid": [1, 1, 1], "block": [1, 1, 1], "nr_parameter_bytes": 32, "flags": 2},
            bytes(32),
        ),
        Record("cuLibraryGetModule", {"library": FIRST, "pMod": 4}),
        Record("cuKernelGetFunction", {"kernel": FIRST, "pFunc": 5}),
        Record("cuModuleUnload", {"hmod": FIRST}),
        Record("cuLibraryUnload", {"library": FIRST}),
    ],
    "memory": [
        Record("cuMemAllocPitch_v2", {"WidthInBytes": 100, "Height": 4, "ElementSizeBytes": 4}),
        Record("cuMemAddressReserve", {"bytes": 1 << 21}),
        Record("cuMemCreate", {"handle": 4, "bytes": 1 << 21}),
        Record("cuMemRelease", {"handle": 4}),
        Record("cuMemFree_v2", {"dptr": MEMORY}),
    ],
    "arrays": [
        Record("cuArray3DCreate_v2", {"handle": 4, "width": 8, "height": 8, "format": 1, "nr_channels": 1}),
        Record(
            "cuMipmappedArrayCreate",
            {"handle": 4, "width": 8, "height": 8, "format": 1, "nr_channels": 1, "nr_levels": 3},
        ),
        Record("cuMipmappedArrayGetLevel", {"mipmap": 4, "handle": 5, "level": 1}),
        Record("cuArrayDestroy", {"handle": 4}),
        Record("cuMipmappedArrayDestroy", {"handle": 4}),
    ],
    "graphs": [
        Record("graph_create"),
        BEGIN,
        SET,
        Record("capture_info", {"stream": FIRST, "chunk": 1}),
        Record("capture_end", {"stream": FIRST}),
        Record("graph_clone", {"graph": GRAPH | 3}),
        Record("graph_list", {"handle": GRAPH | 3, "chunk": 1}),
        Record("cuGraphDestroyNode", {"hNode": NODE | 4}),
        Record("cuGraphDestroy", {"hGraph": GRAPH | 3}),
        Record("cuGraphDestroy", {"hGraph": GRAPH | 1}),
    ],
    "contexts": [
        SET,
        Record("context_create", {"handle": 4}, context=0),
        Record("cuStreamCreate", {"phStream": 4}, context=4),
        Record("context_destroy", {"handle": 4}),
        Record("cuCtxSynchronize", response=MOVE),
        Record("context_destroy", {"handle": FIRST}),
        Record("context_create", {"handle": FIRST, "is_primary": 1}, context=0),
    ],
}
MOST_CALLS = 120
"""Of the driver, in any of them; a call that no program comes to fails nowhere."""


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_call_of_the_driver_fails_once(program: Path, tmp_path: Path, name: str) -> None:
    records = PROGRAMS[name]
    run(program, tmp_path, [pack(records, fail_at=n, flags=flags) for n in range(-1, MOST_CALLS) for flags in (0, 1)])


def test_corpus(program: Path, tmp_path: Path) -> None:
    run(program, tmp_path, [path.read_bytes() for path in sorted(CORPUS.iterdir())])
