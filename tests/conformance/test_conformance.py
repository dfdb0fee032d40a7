"""Small programs, one feature each: through FairGV they observe what they observe natively. The cases are in cases/."""

from collections.abc import Iterator

import pytest

from tests.conformance.comparing import compare, read_known
from tests.conformance.running import NAMES, Outputs, run_both_ways
from tests.end_to_end.host import Host, start_host, stop_host

ALL = [name for names in NAMES.values() for name in names]
KNOWN = read_known()


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A private daemon on softgpu."""
    running = start_host(tmp_path_factory.mktemp("host"))
    yield running
    stop_host(running)


@pytest.fixture(scope="module")
def outputs(host: Host, request: pytest.FixtureRequest) -> Outputs:
    """What the cases printed that were chosen for this run."""
    chosen = [
        item.callspec.params["case"]
        for item in request.session.items
        if hasattr(item, "callspec") and "case" in item.callspec.params
    ]
    return run_both_ways(host, chosen, host.state_dir)


@pytest.mark.parametrize("case", ALL)
def test_same_natively_and_through_fairgv(outputs: Outputs, case: str) -> None:
    comparison = compare(case, outputs.native[case], outputs.guest[case], KNOWN, "soft")
    assert outputs.native[case], "a case that prints nothing shows nothing"
    assert not comparison.unexpected, "\n".join(["differs:", *comparison.unexpected])
    assert not comparison.vanished, "\n".join(["agrees now, take it out of differences.toml:", *comparison.vanished])
