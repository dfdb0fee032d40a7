"""Some kills of programs of a space, and of their workers; the long run is a command of its own."""

import random
from pathlib import Path

from tests.endurance.space_kills import run

NR_KILLS = 4


def test_whoever_is_killed_in_a_space_the_other_one_goes_on(tmp_path: Path) -> None:
    done = run(NR_KILLS, random.Random(3), tmp_path)
    assert done.total() == NR_KILLS
    assert len(done) == NR_KILLS, "each of both, and the worker of each"
