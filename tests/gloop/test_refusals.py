"""What cannot be done is told: by nvcc, by host.launch, or with -DGLOOP_CHECK by the place in the program."""

import re
import subprocess

import pytest

from tests.gloop.build import HEADERS, HERE, INCLUDE, command_for
from tests.gloop.conftest import Runner


@pytest.mark.parametrize(
    ("what", "text"),
    [
        (
            "threads",
            "gloop: a launch of 1 blocks of 1500 threads: give it 1 to 2147483647 blocks, of 1 to 1024 threads",
        ),
        ("blocks", "gloop: a launch of 0 blocks of 32 threads: give it 1 to 2147483647 blocks, of 1 to 1024 threads"),
        ("shared", "bytes of shared memory, 960 of them the kernel's own: a block of this device has at most "),
        ("bounds", "shared memory do not fit: this kernel is for at most 64 threads"),
        ("before", "gloop: launched; before that cudaErrorMemoryAllocation"),
        ("thread", "gloop: launched elsewhere"),
        ("made", "gloop: a kernel, left out by nvcc where it captures [name = value]: invalid "),
        ("slots", "gloop: a block has 32 slots, for callbacks that wait and for the one that runs"),
        ("slots of a callback", "gloop: a block has 32 slots, for callbacks that wait and for the one that runs"),
        ("all slots", "run 32\nrun 31\n"),
        ("own", "gloop: postTaskPerThread captures more than Options::per_thread_bytes"),
        ("keep", "gloop: keep names what is not shared memory, or no multiple of 8 bytes"),
        ("fault", "gloop: a kernel: an illegal memory access was encountered"),
        ("copy", "gloop: a copy between host and device: invalid argument (/proc/self/exe)"),
        ("name", "gloop: a name of more than 255 bytes: nnnn"),
    ],
)
def test_an_exception_says_why(runner: Runner, what: str, text: str) -> None:
    result = runner.run("refusals", what)
    assert text in result.stdout, result.stderr
    assert result.returncode == 0


def test_a_host_loop_does_not_survive_fork(native: Runner) -> None:
    assert native.run("refusals", "fork").stdout.splitlines() == [
        "1 CUDA does not survive fork; make one there before CUDA is used here",
        "parent goes on 0",
    ]


def test_threads_that_post_different_callbacks_are_found(native: Runner) -> None:
    line = next(
        number
        for number, text in enumerate((HERE / "programs" / "checked.cu").read_text().splitlines(), 1)
        if "postTask" in text
    )
    assert native.run("checked", "same").stdout == "sum 1152\n"
    told = native.run("checked", "different").stdout
    assert told.startswith("gloop: threads of a block post different callbacks, or capture different values, ")
    assert told.endswith(f"tests/gloop/programs/checked.cu:{line}\n")


def test_nvcc_says_what_a_callback_may_not_capture() -> None:
    command = [*command_for(HERE / "wrong.cu"), "-ptx", "-o", "/dev/null"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode != 0
    assert "a callback captures at most 384 bytes: capture a pointer to more" in result.stderr
    assert "a callback captures only what may be copied byte by byte" in result.stderr


def test_the_headers_are_small() -> None:
    lines = {path.name: len(path.read_text().splitlines()) for path in HEADERS}
    assert sum(lines.values()) <= 2000
    assert max(lines.values()) <= 400


def test_gloop_cuh_has_them_all() -> None:
    reached, to_read = set(), ["gloop.cuh"]
    while to_read:
        name = to_read.pop()
        reached.add(name)
        text = (INCLUDE / "gloop" / name).read_text()
        to_read += set(re.findall(r'#include "(.+)"', text)) - reached
    assert reached == {path.name for path in HEADERS}
