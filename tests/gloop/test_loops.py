"""Callbacks of every kind compute what Python computes, and the same bytes whenever blocks give way."""

import random

import pytest

from tests.gloop.conftest import Runner

NR_BLOCKS, NR_THREADS, NR_STEPS = 7, 96, 60
MASK = (1 << 64) - 1


def chain(block: int) -> int:
    value = 1
    for left in range(NR_STEPS, 0, -1):
        value = (value * 31 + left + block) & MASK
    return value


def many() -> int:
    return NR_THREADS * sum(number * 1001 for number in range(20)) + 20 * sum(range(NR_THREADS))


def turn() -> int:
    wheel = list(range(NR_THREADS))
    for left in range(NR_STEPS, 0, -1):
        wheel = [(wheel[(place + 1) % NR_THREADS] * 3 + left) & MASK for place in range(NR_THREADS)]
    return sum(value * (place + 1) for place, value in enumerate(wheel)) & MASK


def count() -> int:
    value = 1
    for step in range(20 * NR_STEPS):
        value = (value * 17 + step) & MASK
    return value


def each() -> int:
    total = 0
    for thread in range(NR_THREADS):
        mine = thread
        for _ in range(NR_STEPS):
            mine = mine * 5 + thread
        total += mine
    return total & MASK


def blocks() -> int:
    return sum((y + 30 * z) * 100 * 32 + sum(range(32)) for y in range(30) for z in range(20))


def expected() -> str:
    sums = {
        "chain": [chain(block) for block in range(NR_BLOCKS)],
        "many": [many()] * NR_BLOCKS,
        "turn": [turn()] * NR_BLOCKS,
        "count": [count()] * NR_BLOCKS,
        "each": [each()] * NR_BLOCKS,
        "blocks": [blocks()] * NR_BLOCKS,
        "own": list(range(NR_BLOCKS)),
        "exit": [1] + [0] * (NR_BLOCKS - 1),
        "again": [blocks()] * NR_BLOCKS,
    }
    one_place = "".join(f"{what} {' '.join(map(str, values))}\n" for what, values in sums.items())
    return one_place * 2  # slots in shared, and in global memory


def test_without_giving_way(runner: Runner) -> None:
    result = runner.run("loops")
    assert (result.returncode, result.stdout) == (0, expected()), result.stderr
    assert int(result.stderr.split()[-1]) >= 18, "a kernel for each launch"


@pytest.mark.parametrize("seed", range(4))
def test_giving_way_after_every_few_points(runner: Runner, seed: int) -> None:
    points = random.Random(seed).randint(1, 50)
    result = runner.run("loops", points=points)
    assert (result.returncode, result.stdout) == (0, expected()), f"after {points} points: {result.stderr}"
    assert int(result.stderr.split()[-1]) > 18 + 2 * (NR_STEPS // points), "it gave way"


def test_a_table_of_what_points_cost_is_printed(native: Runner) -> None:
    result = native.run("points", 10000)
    assert result.returncode == 0, result.stderr
    lines = [line.partition(":")[0] for line in result.stdout.splitlines()]
    assert lines == [
        "point,    1 threads",
        "point,   32 threads",
        "point,  256 threads",
        "point, 1024 threads",
        "postTaskIfNecessary, 1 thread",
        "launch for each step",
        "request,   1 blocks",
        "request, 132 blocks",
        "request, 264 blocks",
    ]
