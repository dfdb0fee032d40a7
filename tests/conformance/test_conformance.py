"""Small programs, one feature each: through FairGV they observe what they observe natively. The cases are in cases/."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.comparing import Known, compare, read_known
from tests.conformance.launch import kinds, run_alone
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
    entry = Known("some_case", "so it is", ("one more",), ("soft",))
    native, guest = ["one more: A", "x: 1", "x: 2"], ["one more: B", "x: 1", "x: 3"]
    assert compare("some_case", native, guest, [entry], "soft").unexpected[0].startswith("x #2")
    assert compare("some_case", native[:2], guest[:2], [entry], "soft").unexpected == []
    assert entry.reason in compare("some_case", native, native, [entry], "soft").vanished[0]
    assert compare("some_case", native, native, [entry], "cuda").vanished == []
    assert compare("some_case", native, native[:1], [], "soft").unexpected != []


def test_what_crashes_the_driver_of_a_gpu_is_not_compared_and_must_not_crash_a_guest() -> None:
    native, guest = ["x: crashes", "y: 1"], ["x: CUDA_ERROR_INVALID_VALUE", "y: 1"]
    assert compare("some_case", native, guest, [], "cuda").unexpected == []
    assert compare("some_case", native, guest, [], "soft").unexpected != []
    assert compare("some_case", guest, native, [], "cuda").unexpected != []
    assert compare("some_case", native, native, [], "cuda").unexpected != []


def test_a_case_goes_on_without_the_call_that_crashed(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text(
        "#!/bin/sh\necho == a\n"
        'for call in f g h; do case "\n$CONFORMANCE_SKIP\n" in *$call*) echo "$call: crashes"; continue;; esac\n'
        '[ $call = g ] && echo "g: crashes" && kill -SEGV $$\necho "$call: fine"; done\necho -- a\n'
    )
    program.chmod(0o755)
    assert run_alone(program, "a") == ["f: fine", "g: crashes", "h: fine", "exit status 0"]
