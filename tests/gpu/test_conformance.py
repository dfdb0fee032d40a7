"""The conformance cases on a real GPU: through FairGV they observe what they observe on NVIDIA's driver."""

import pytest

from tests.conformance.comparing import read_known
from tests.conformance.running import ALL_NAMES, Outputs, chosen_cases, problems, run_both_ways
from tests.end_to_end.host import Host

pytestmark = pytest.mark.gpu
KNOWN = read_known()


@pytest.fixture(scope="module")
def outputs(gpu_host: Host, request: pytest.FixtureRequest) -> Outputs:
    """What the cases printed that were chosen for this run."""
    return run_both_ways(gpu_host, chosen_cases(request), gpu_host.state_dir)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("case", ALL_NAMES)
def test_same_natively_and_through_fairgv(outputs: Outputs, case: str) -> None:
    found = problems(outputs, case, KNOWN, "cuda")
    assert not found, found
