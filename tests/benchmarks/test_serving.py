"""What an inference server does around its model, without a model: on a clock that goes by what is done, and as a program that is told."""

import argparse
import json
import subprocess
import sys
from itertools import pairwise

import pytest

from benchmarks.frameworks import serving
from benchmarks.frameworks.serving import Arrivals, Request, Stretch, answer_requests, parse_stretch, report

STRETCH = Stretch(10.0, 20.0, 4.0)
PROGRAM = (
    "import argparse, sys\nfrom benchmarks.frameworks.serving import add_options, serve\n"
    "parser = argparse.ArgumentParser()\nadd_options(parser)\n"
    "sys.exit(serve(lambda: None, 2, parser.parse_args()))\n"
)


class Steps:
    """A clock on which an answer takes 2 s, and all is over at 100 s."""

    def __init__(self) -> None:
        self.at_s = 0.0

    def now_s(self) -> float:
        return self.at_s

    def is_over_by(self, at_s: float) -> bool:
        self.at_s = max(self.at_s, at_s)
        return self.at_s >= 100

    def answer(self) -> None:
        self.at_s += 2


def answered(mean_s: float, is_queue: bool, seed: int = 1) -> list[Request]:
    steps = Steps()
    return answer_requests(steps.answer, Arrivals(mean_s, is_queue, seed), steps)


def test_without_pauses_one_request_follows_the_other() -> None:
    assert answered(0.0, is_queue=False) == [Request(at_s, at_s + 2) for at_s in range(0, 100, 2)]


def test_pauses_stand_between_requests() -> None:
    found = answered(3.0, is_queue=False)
    assert all(request.end_s - request.begin_s == pytest.approx(2) for request in found)
    assert all(later.begin_s > earlier.end_s for earlier, later in pairwise(found))


def test_what_queues_up_counts_from_its_arrival() -> None:
    """Requests come twice as fast as they are answered: each waits for all before it, and there is no pause."""
    found = answered(1.0, is_queue=True)
    assert all(later.end_s == pytest.approx(earlier.end_s + 2) for earlier, later in pairwise(found[5:]))
    assert found[-1].end_s - found[-1].begin_s > 20
    # They come whether they are answered or not.
    chance = Arrivals(1.0, is_queue=True, seed=1)
    came_s = 0.0
    for request in found:
        came_s = chance.after(Request(came_s, 1e9))
        assert request.begin_s == came_s


def test_chance_is_the_seed_s_and_has_the_mean() -> None:
    assert answered(3.0, is_queue=False) == answered(3.0, is_queue=False)
    assert answered(3.0, is_queue=False) != answered(3.0, is_queue=False, seed=2)
    arrivals, nothing = Arrivals(0.5, is_queue=False, seed=3), Request(0.0, 0.0)
    assert sum(arrivals.after(nothing) for _ in range(10_000)) / 10_000 == pytest.approx(0.5, rel=0.05)


@pytest.mark.parametrize(
    ("at_s", "part"), [(9.9, 0), (10, 0), (11, 0.25), (14, 1), (16, 1), (19, 0.25), (20, 0), (25, 0)]
)
def test_less_counts_towards_the_ends(at_s: float, part: float) -> None:
    assert STRETCH.part_of(at_s) == pytest.approx(part)
    assert Stretch(10.0, 20.0, 0.0).part_of(at_s) == (10 <= at_s < 20)


def test_a_report_of_known_requests() -> None:
    """One in each second, that took as many ms as there were before it; those of the edges count half in the mean."""
    requests = [Request(second + 0.5 - second / 1000, second + 0.5) for second in range(100)]
    found = report(requests, Stretch(10.0, 50.0, 20.0), 3)
    assert found["seconds"] == 20
    assert found["requests"] == 40
    assert found["counted_requests"] == pytest.approx(20)
    assert found["throughput"] == pytest.approx(3)
    assert found["unit"] == "images/s"
    assert found["request_us"] == pytest.approx(29_500)
    assert found["request_p95_us"] == pytest.approx(47_000)  # 38 of 40


def test_a_stretch_without_requests() -> None:
    found = report([Request(0, 1)], STRETCH, 1)
    assert (found["requests"], found["request_us"], found["request_p95_us"], found["throughput"]) == (0, 0, 0, 0)


def test_a_stretch_is_three_numbers() -> None:
    assert parse_stretch("2 10 4\n", 8.0) == STRETCH


@pytest.mark.parametrize(
    "line", ["", "now", "1 2", "-1 2 0", "0 0 0", "0 2 1.1", "0 2 -1", "nan 2 0", "1763000000 3 0", "0 inf 0"]
)
def test_what_is_none_is_refused(line: str) -> None:
    with pytest.raises(serving.NoStretchError, match="a window is three numbers"):
        parse_stretch(line, 0.0)


def program(*words: str, told: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *words], input=told, capture_output=True, text=True, timeout=120, check=False
    )


def test_a_program_is_told_its_stretch() -> None:
    done = program("--together", "--pause-ms", "1", told="0 0.4 0.1\nend\n")
    assert done.returncode == 0, done.stderr
    ready, last = done.stdout.splitlines()
    assert ready == "ready"
    assert json.loads(last)["seconds"] == pytest.approx(0.3)


def test_a_program_without_others() -> None:
    found = json.loads(program("--rate", "100", "--seconds", "0.3").stdout)
    assert found["seconds"] == pytest.approx(0.3)
    assert set(found) == {
        *("throughput", "unit", "counted_requests", "seconds", "requests", "request_us", "request_p95_us")
    }


def test_a_program_that_is_told_nonsense() -> None:
    done = program("--together", told="soon\n")
    assert done.returncode == 2
    assert done.stdout == "ready\n"
    assert "a window is three numbers" in done.stderr


@pytest.mark.parametrize(
    "words", [("--rate", "0"), ("--pause-ms", "-1"), ("--seconds", "inf"), ("--rate", "2", "--pause-ms", "3")]
)
def test_impossible_requests_are_refused(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    serving.add_options(parser)
    with pytest.raises(SystemExit):
        parser.parse_args(words)
    assert "error: argument --" in capsys.readouterr().err
