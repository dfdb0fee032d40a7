"""Some kills of servers of event loops, of their workers and of the daemon; the long run is a command of its own."""

import random
from pathlib import Path

from tests.endurance.gloop_kills import run

NR_KILLS = 5


def test_whoever_is_killed_in_the_midst_of_requests_the_others_go_on(tmp_path: Path) -> None:
    done = run(NR_KILLS, random.Random(18), tmp_path)
    assert done.total() == NR_KILLS
    assert len(done) == NR_KILLS, "each of both, the worker of each, and the daemon"
