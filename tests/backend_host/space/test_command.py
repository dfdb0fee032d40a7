"""What `fairgv-host space` says of a space, by what the daemon tells."""

from dataclasses import asdict
from typing import Any

import pytest
from rich.console import Console

from backend_host.space.drawing import NO_SPACE, shown
from backend_host.statistics import SpaceStatistics


def lines_of(**changes: Any) -> list[str]:
    told = SpaceStatistics(name="web", gpu_number=0, way="softgpu", best_effort=("trains",), **changes)
    console = Console(width=200)
    with console.capture() as captured:
        console.print(shown([asdict(told)]))
    return captured.get().splitlines()


def test_where_there_is_no_space_the_way_to_one_is_told() -> None:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(shown([]))
    assert captured.get().strip() == NO_SPACE


@pytest.mark.parametrize(
    ("nr", "ns", "line"),
    [(0, 0, ""), (3, 1_250_000_000, "web: the gate: 3 launches that cannot give way waited 1.25 s for rounds to end")],
)
def test_what_waited_at_the_gate_is_told_once_something_did(nr: int, ns: int, line: str) -> None:
    told = [each for each in lines_of(nr_gated=nr, gated_ns=ns) if "the gate" in each]
    assert told == ([line] if line else [])
