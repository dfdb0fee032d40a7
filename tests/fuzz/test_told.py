"""The guest gets the driver's code of each call that fails, or the table below says why it gets another, or none."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter

import pytest

from tests.fuzz.build import build
from tests.fuzz.inputs import pack
from tests.fuzz.programs import PROGRAMS
from tests.fuzz.test_worker import WAYS, nr_calls
from tests.fuzz.told import CODE, MOVE, TELLS, Failure, failures

pytestmark = pytest.mark.skipif(shutil.which("clang-14") is None, reason="needs clang's libFuzzer: .ci/packages")

ANY = "any request"
MARK = "an event of the worker's own: what the guest asked for is done, and its end is found by another mark, or by waiting"
LOOK = "a look of the worker's own: it goes on with what it knew, or takes the careful way"
VARIANT = "a launch that was to go in parts, of which nothing has run yet: it goes whole, and what that says is told"
SPACE = "a word by which kernels are asked to give way: they are not asked"
PINS = "the heap is pinned for another context or is no more: copies from there take the driver's own way"
ENTER = "the context is entered again, and the code told, at the next request in it"
MANAGED = "whether a variable is managed: it is told as one that is not"
COUNT = "memory that the driver took is counted by what was known before"
KEPT = "it is unmapped or trimmed, as was asked; the driver keeps the memory until the worker ends"
STAGING = "whether a node stages a copy, and which: it is told as any other, or is CUDA_ERROR_UNKNOWN, and a copy changes or goes without it"
LEFT = "of what staged the copy that was asked for, which is gone: it stays in the graph, behind no number"

REASONS: dict[tuple[str, str], str] = {
    ("cuEventCreate", ANY): MARK,
    ("cuEventRecord", ANY): MARK,
    ("cuEventQuery", ANY): MARK,
    ("cuEventSynchronize", ANY): MARK,
    ("cuEventDestroy_v2", ANY): MARK,
    ("cuEventElapsedTime", ANY): MARK,
    ("cuStreamIsCapturing", ANY): LOOK,
    ("cuStreamQuery", ANY): LOOK,
    ("cuStreamGetPriority", ANY): LOOK,
    ("cuFuncGetAttribute", ANY): LOOK,
    ("cuPointerGetAttribute", "cuModuleGetGlobal_v2"): MANAGED,
    ("cuPointerGetAttribute", "cuLibraryGetGlobal"): MANAGED,
    ("cuKernelGetAttribute", ANY): LOOK,
    ("cuCtxGetLimit", "context_create"): COUNT,
    ("cuDeviceGetGraphMemAttribute", ANY): COUNT,
    ("cuCtxSetCurrent", "context_create"): ENTER,
    ("cuCtxSetCurrent", "context_destroy"): ENTER,
    ("cuCtxPopCurrent_v2", "context_create"): ENTER,
    ("cuMemHostUnregister", "context_destroy"): PINS,
    ("cuGraphHostNodeGetParams", ANY): STAGING,
    ("cuGraphNodeGetDependencies_v2", ANY): STAGING,
    ("cuGraphNodeGetDependentNodes_v2", ANY): STAGING,
    ("cuGraphNodeGetType", ANY): STAGING,
    ("cuGraphDestroyNode", "cuGraphDestroyNode"): LEFT,
    ("cuMemRelease", "cuMemUnmap"): KEPT,
    ("cuMemFree_v2", "cuMemPoolTrimTo"): KEPT,
}
IN_PARTS = frozenset(
    {
        "cuFuncGetName",
        "cuFuncGetParamInfo",
        "cuKernelGetFunction",
        "cuKernelGetName",
        "cuKernelGetParamInfo",
        "cuLaunchKernel",
        "cuLibraryGetGlobal",
        "cuLibraryGetKernel",
        "cuLibraryLoadData",
        "cuMemcpyDtoDAsync_v2",
        "cuModuleGetGlobal_v2",
        "cuOccupancyMaxActiveBlocksPerMultiprocessor",
        "cuStreamCopyAttributes",
        "cuStreamCreate",
        "cuStreamCreateWithPriority",
        "cuStreamWaitEvent",
        "cuStreamWriteValue64_v2",
    }
)
"""Of the programs PROGRAMS_IN_PARTS alone: VARIANT."""
PROGRAMS_IN_PARTS = ("parts", "parts in turn")
IN_WORDS = frozenset({"cuStreamCreate", "cuStreamWriteValue32_v2"})
"""Of "words": SPACE."""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Failure]]:
    """By program."""
    worker = build("worker")
    failed = {}
    for number, (name, records) in enumerate(PROGRAMS.items()):
        folder = tmp_path_factory.mktemp(f"inputs{number}")
        for at in range(nr_calls(name)):
            for flags in WAYS.get(name, (0, 1)):
                (folder / f"{at:03}-{flags}").write_bytes(pack(records, fail_at=at, flags=flags))
        done = subprocess.run(
            [worker, "-runs=0", folder],
            env={**os.environ, **TELLS},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            timeout=250,
            check=False,
            cwd=folder.parent,
        )
        assert done.returncode == 0, done.stderr[-8000:]
        failed[name] = list(failures(done.stderr))
        assert failed[name], name
    return failed


def reason(name: str, failure: Failure) -> str:
    """Why nobody is told; "" where there is none."""
    if name in PROGRAMS_IN_PARTS and failure.call in IN_PARTS:
        return VARIANT
    if name == "words" and failure.call in IN_WORDS:
        return SPACE
    return REASONS.get((failure.call, ANY)) or REASONS.get((failure.call, failure.request), "")


def test_each_code_arrives_or_has_a_reason_not_to(found: dict[str, list[Failure]]) -> None:
    lost = Counter(
        (name, failure.call, failure.request, failure.own)
        for name, all_of_it in found.items()
        for failure in all_of_it
        if not failure.is_told and failure.request != MOVE and not reason(name, failure)
    )
    assert not lost


def test_no_row_is_without_a_case(found: dict[str, list[Failure]]) -> None:
    silent = [(name, each) for name, all_of_it in found.items() for each in all_of_it if not each.is_told]
    calls = {(each.call, each.request) for _, each in silent}
    known = calls | {(call, ANY) for call, _ in calls}
    assert {row for row in REASONS if row not in known} == set()
    assert {each.call for name, each in silent if name == "parts"} >= IN_PARTS
    assert {each.call for name, each in silent if name == "words"} >= IN_WORDS


def test_what_a_guest_asks_for_by_name_is_told_to_it(found: dict[str, list[Failure]]) -> None:
    """Also of calls that the worker makes for itself: where the request is that call, some failure of it is the request's answer."""
    asked = {each.call for all_of_it in found.values() for each in all_of_it if each.call == each.request}
    told = {each.call for all_of_it in found.values() for each in all_of_it if each.own == CODE}
    assert len(asked) > 40
    assert asked <= told
