"""Small programs, one feature each: through FairGV they observe what they observe natively. The cases are in cases/."""

import re
from collections.abc import Iterator

import pytest

from tests.conformance.comparing import compare, read_known
from tests.conformance.launch import kinds
from tests.conformance.running import ALL_NAMES, NAMES, Outputs, chosen_cases, problems, run_both_ways
from tests.end_to_end.host import Host, start_host, stop_host

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
    return run_both_ways(host, chosen_cases(request), host.state_dir)


@pytest.mark.parametrize("case", ALL_NAMES)
def test_same_natively_and_through_fairgv(outputs: Outputs, case: str) -> None:
    found = problems(outputs, case, KNOWN, "soft")
    assert not found, found


def test_the_programs_have_the_cases_of_the_sources(outputs: Outputs) -> None:
    for program, names in NAMES.items():
        assert sorted(kinds(program)) == sorted(names)
    assert len(set(ALL_NAMES)) == len(ALL_NAMES)


def test_every_known_difference_names_a_case() -> None:
    assert all(any(re.fullmatch(entry.case, name) for name in ALL_NAMES) for entry in KNOWN)
    assert all(entry.reason for entry in KNOWN)


def test_a_difference_is_found_and_a_known_one_must_stay() -> None:
    [entry] = [known for known in KNOWN if known.case == "launch_bounds"]
    native, guest = ["one more: A", "x: 1", "x: 2"], ["one more: B", "x: 1", "x: 3"]
    assert compare("launch_bounds", native, guest, KNOWN, "soft").unexpected[0].startswith("x #2")
    assert compare("launch_bounds", native[:2], guest[:2], KNOWN, "soft").unexpected == []
    assert entry.reason in compare("launch_bounds", native, native, KNOWN, "soft").vanished[0]
    assert compare("launch_bounds", native, native, KNOWN, "cuda").vanished == []
    assert compare("launch_bounds", native, native[:1], [], "soft").unexpected != []
