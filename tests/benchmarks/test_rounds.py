"""What a critical program in Python does around its rounds, without a network: told as programs of pairs are. No time is asserted."""

import json
import subprocess
import sys
import threading

import pytest

from benchmarks.frameworks.rounds import Loop

PROGRAM = (
    "import sys, time\nfrom benchmarks.frameworks.rounds import obey\nsys.exit(obey(lambda: time.sleep(0.001), 100))\n"
)
LIMIT_S = 60.0


def obeying(told: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM], input=told, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )


def test_it_rests_until_it_is_told_to_work() -> None:
    finished = obeying("look\nrest\n")
    assert finished.returncode == 0, finished.stderr
    ready, *told = finished.stdout.splitlines()
    assert ready == "ready"
    assert [json.loads(line)["times_us"] for line in told] == [[], []]


@pytest.mark.parametrize("told", ["sleep\n", "\n", "work\nlook\nfault\n"])
def test_a_word_that_is_none_ends_it(told: str) -> None:
    finished = obeying(told)
    assert finished.returncode == 2
    assert finished.stderr.startswith("a program is told to work, to look or to rest, not ")


def test_rounds_are_counted_until_it_rests() -> None:
    made, some = [], threading.Event()

    def make_round() -> None:
        made.append(1)
        if len(made) == 5:
            some.set()

    loop = Loop(make_round, 0)
    loop.work()
    assert some.wait(LIMIT_S)
    loop.rest()
    nr_made = len(made)
    found = loop.take()
    assert len(found) == nr_made
    assert all(each >= 0 for each in found)
    assert loop.take() == []
    loop.end()
    assert len(made) == nr_made
