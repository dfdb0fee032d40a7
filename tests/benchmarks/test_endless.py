"""The program of endless long kernels: that it counts right, on softgpu, natively and as a guest whose launches go in parts."""

from collections.abc import Iterator

import pytest

from benchmarks.build import build, build_without_ptx
from benchmarks.devices import private_device
from benchmarks.guests import NATIVE, Setting, open_session, run
from benchmarks.stretch import run_together
from benchmarks.workloads import Workload, parse_report
from scheduler.registry import DEFAULT_POLICY

SHORT = ("--kernel-seconds", "0.1", "--rounds", "100")
THRESHOLD = 100


@pytest.fixture(autouse=True, scope="module")
def device() -> Iterator[None]:
    with private_device("soft"):
        yield


def setting(slicing: str) -> Setting:
    daemon = {"slicing": slicing, "slicing_threshold_blocks": THRESHOLD, "slicing_least_blocks": 2}
    return Setting("soft", daemon=daemon)


@pytest.mark.parametrize(
    ("system", "slicing"), [(NATIVE, "off"), (DEFAULT_POLICY, "boxes"), (DEFAULT_POLICY, "persistent")]
)
def test_each_block_counts_once(system: str, slicing: str) -> None:
    with open_session(system, setting(slicing)) as session:
        words = [*SHORT, "--launches", "3"]
        report = parse_report(run(session, 0, build("endless"), words).checked("endless"))
        accounts = session.accounts()
    assert report["kernel_blocks"] > THRESHOLD
    assert report["launched"] > 3 * report["kernel_blocks"]
    assert report["done"] == report["launched"]
    assert all(account.nr_parts >= 3 for account in accounts)


def test_a_stretch_ends_long_before_the_kernel() -> None:
    """Blocks that are left do nothing, and none is lost: else the program fails."""
    workload = Workload("endless", "long", ("--kernel-seconds", "60"))
    with open_session(DEFAULT_POLICY, setting("boxes")) as session:
        [outcome] = run_together(session, [workload], 2.0, 0.1)
    assert outcome.throughput > 0
    assert 0 < outcome.report["done"] < outcome.report["launched"]
    assert outcome.nr_parts is not None
    assert outcome.nr_parts > 0


def test_without_ptx_softgpu_has_no_kernel() -> None:
    with open_session(NATIVE, setting("off")) as session:
        finished = run(session, 0, build_without_ptx("endless", 90), SHORT)
    assert finished.exit_code == 2
    assert "cudaErrorNoKernelImageForDevice" in finished.errors


@pytest.mark.parametrize("words", [("--kernel-seconds", "0"), ("--rounds", "-1"), ("--kernel-seconds", "1e9")])
def test_impossible_kernels_are_refused(words: tuple[str, ...]) -> None:
    with open_session(NATIVE, setting("off")) as session:
        finished = run(session, 0, build("endless"), words)
    assert finished.exit_code == 2
    assert finished.errors.startswith("endless: ")
