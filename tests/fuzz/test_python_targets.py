"""Hostile bytes at what of the host's Python reads them: some of what `make fuzz` does, the same each time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.fuzz.by_lines import Target, fuzz, lines_of
from tests.fuzz.python_targets import targets

EXECUTIONS = {"PTX": 40, "ivshmem server": 100, "region": 100}
"""Of these an input takes longer."""
NAMES = ("fat binary", "PTX", "control socket", "ivshmem server", "region")


@pytest.fixture(scope="module")
def by_name() -> Iterator[dict[str, Target]]:
    with ExitStack() as stack:
        yield {target.name: target for target in targets(stack)}


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_found(by_name: dict[str, Target], name: str) -> None:
    assert set(by_name) == set(NAMES)
    target = by_name[name]
    outcome = fuzz(target, seed=7, executions=EXECUTIONS.get(name, 300))
    assert not outcome.findings, outcome.findings[0]
    reached = {path for path, _ in outcome.lines}
    assert reached <= target.files
    assert reached, "no input came to any line that counts"


def test_an_exception_is_a_finding() -> None:
    def run(data: bytes) -> None:
        if data[:1] != b"a":
            raise ValueError(data)

    outcome = fuzz(Target("broken", run, [b"abc"], frozenset({__file__})), seed=1, executions=200)
    assert outcome.nr_executions == 200
    assert outcome.findings
    assert all(data[:1] != b"a" and "ValueError" in why for data, why in outcome.findings)


def test_lines_of_other_files_do_not_count() -> None:
    reached: set[tuple[str, int]] = set()
    with lines_of(frozenset({"no file"}), reached):
        pytest.approx(1.0)
    assert not reached
