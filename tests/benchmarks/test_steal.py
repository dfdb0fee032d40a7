"""What a hypervisor gave to others while this machine wanted it, as the kernel counts it."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.document import origin
from benchmarks.steal import CpuTime, cpu_time, disturbance, most_stolen, steal_between
from tests.benchmarks.test_results import HEAD


def test_the_kernel_s_line_of_all_cpus(tmp_path: Path) -> None:
    """Time of guests is in that of users; what is idle, or waits for a disk, is wanted by nobody."""
    stat = tmp_path / "stat"
    stat.write_text("cpu  1000 200 300 9999 8888 40 5 77 600 50\ncpu0 1 2 3 4 5 6 7 8 9 10\n")
    assert cpu_time(stat) == CpuTime(used=1545, stolen=77)


def test_this_machine_s_own_counts() -> None:
    before = cpu_time()
    sum(range(10**6))
    after = cpu_time()
    assert after.used >= before.used > 0
    assert 0 <= steal_between(before, after) <= 1


@pytest.mark.parametrize(
    ("after", "part"),
    [
        (CpuTime(190, 30), 0.1),
        (CpuTime(150, 20), 0.0),
        (CpuTime(100, 25), 1.0),
        (CpuTime(100, 20), 0.0),  # nothing was wanted
        (CpuTime(150, 15), 0.0),  # the hypervisor took it back
    ],
)
def test_the_part_of_what_was_wanted(after: CpuTime, part: float) -> None:
    assert steal_between(CpuTime(100, 20), after) == pytest.approx(part)


def test_a_document_says_by_how_much_it_was_disturbed() -> None:
    records: list[dict[str, Any]] = [{"kind": "alone", "steal": 0.004}, {"kind": "together", "steal": 0.0812}]
    document = {**HEAD, "experiment": "mmr", "records": records}
    assert most_stolen(records) == 0.0812
    assert "load 0.1 before, at most 8.1 % of CPU time stolen: `" in origin(document)
    assert "In 1 of 2 measurements" in disturbance(records)
    assert "8.1 % at most" in disturbance(records)


def test_a_quiet_document_and_one_from_before_steal_was_counted_say_nothing() -> None:
    assert disturbance([{"kind": "alone", "steal": 0.004}]) == ""
    old: list[dict[str, Any]] = [{"kind": "alone"}]
    assert disturbance(old) == ""
    assert most_stolen(old) is None
    assert "stolen" not in origin({**HEAD, "experiment": "mmr", "records": old})
