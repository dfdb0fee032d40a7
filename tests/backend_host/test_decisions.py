"""What workers decide at each look is what they decided before: a change of form in the floor `turn` shows none here.

decisions.txt has a digest of each play. A change of rules changes them: `python -m tests.backend_host.test_decisions` writes the file anew.
To see where two versions part, build decisions.c with each, play, and compare what they write down, line by line.
"""

import contextlib
import ctypes
import hashlib
import itertools
import os
import tempfile
from pathlib import Path

import pytest

from backend_host.device.control import NR_OBJECTS
from tests.backend_host.parts import PAGE, TRACK, TURN, load_parts

PARTS = (*TURN, "beside", *PAGE, *TRACK)
Objects = ctypes.c_int * NR_OBJECTS
DIGESTS = Path(__file__).with_name("decisions.txt")
NR_STEPS = 10_000
PLAYS = tuple(itertools.product(range(1, 4), (False, True), (False, True), (False, True)))
"""Seed, and what the device has: it preempts, its channels can be held, it has engines for copies."""


def load(folder: Path) -> ctypes.CDLL:
    """The floor `turn` with what it calls here."""
    library = load_parts("decisions", PARTS, folder)
    library.play.argtypes = [Objects, ctypes.c_char_p, ctypes.c_uint64, ctypes.c_uint32, *[ctypes.c_bool] * 3]
    library.play.restype = ctypes.c_bool
    return library


def played(library: ctypes.CDLL, folder: Path, play: tuple[int, bool, bool, bool]) -> str:
    """A line of decisions.txt."""
    seed, *device = play
    path = folder / "steps"
    with contextlib.ExitStack() as stack:
        objects = [os.memfd_create(f"object-{number}") for number in range(NR_OBJECTS)]
        for fd in objects:
            stack.callback(os.close, fd)
        assert library.play(Objects(*objects), bytes(path), seed, NR_STEPS, *device)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    return " ".join([str(seed), *(str(int(has)) for has in device), digest])


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return load(tmp_path_factory.mktemp("decisions"))


@pytest.mark.parametrize("play", PLAYS)
def test_all_decisions_are_those_of_before(
    library: ctypes.CDLL, tmp_path: Path, play: tuple[int, bool, bool, bool]
) -> None:
    assert played(library, tmp_path, play) in DIGESTS.read_text().splitlines()


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        library = load(Path(name))
        DIGESTS.write_text("".join(f"{played(library, Path(name), play)}\n" for play in PLAYS))


if __name__ == "__main__":
    main()
