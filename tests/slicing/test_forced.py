"""Programs whose launches all go in parts: they compute what they compute natively, to the bit, and observe what they observe natively."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.build import NAMES
from tests.conformance.comparing import read_known
from tests.conformance.running import ALL_NAMES, Outputs, problems, run_both_ways
from tests.end_to_end.host import Host, comparable
from tests.slicing.forced import VGPU, forced_host, native_digest, run_program

KNOWN = read_known()
CASES = [
    name
    for name in ALL_NAMES
    if re.match(
        r"launch_(?!stack)|stream_(busy|legacy|blocking|host|callback)|event_(elapsed|wait|destroyed)",
        name,
    )
    or re.match(
        r"fault_(assert|trap|then_printf|in_one)|module_(globals|twice)|library_(in_two|module)|thread_(launch|waits)",
        name,
    )
]
PROGRAMS = {
    "global_symbols": "",
    "graph_capture": "graph",
    "grid_sync": "cooperative",
    "host_functions": "",
    "linked": "separate compilation",
    "look_back": "waits for blocks",
    "simple_atomics": "",
    "simple_printf": "",
    "stream_values": "",
    "surfaces": "",
    "textures": "",
}
"""With the reason for which large launches of it go whole, if any do by all means."""


Once = Callable[[str, Callable[[], Any]], Any]
"""What it is, and how it is found out."""


@pytest.fixture(scope="module", params=["boxes", "persistent"])
def host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """One whose launches go in parts, and stop and go on."""
    way = str(request.param)
    with forced_host(tmp_path_factory.mktemp(way), way) as running:
        yield running


@pytest.fixture(scope="session")
def once() -> Once:
    """What a program does natively, which is the same beside both hosts: asked for at the first one."""
    kept: dict[str, Any] = {}

    def ask(what: str, find: Callable[[], Any]) -> Any:
        if what not in kept:
            kept[what] = find()
        return kept[what]

    return ask


@pytest.mark.parametrize("name", NAMES)
def test_benchmark_programs_to_the_bit(host: Host, once: Once, name: str) -> None:
    outcome = run_program(host, name)
    assert outcome.digest, outcome.errors
    assert outcome.digest == once(name, lambda: native_digest(host, name))


@pytest.mark.parametrize("name", PROGRAMS)
def test_prints_what_it_prints_natively(host: Host, once: Once, name: str) -> None:
    guest = host.guest(name, options=("--vgpu", VGPU))
    assert comparable(guest) == once(name, lambda: comparable(host.native(name))), guest.stderr
    [vgpu] = host.status()["vgpus"]
    assert not PROGRAMS[name] or vgpu["totals"]["whole"].get(PROGRAMS[name], 0) > 0


@pytest.fixture(scope="session")
def kept_outputs() -> dict[str, list[str]]:
    """Natively, from the first host on."""
    return {}


@pytest.fixture(scope="module")
def outputs(host: Host, kept_outputs: dict[str, list[str]]) -> Outputs:
    """What the cases printed."""
    found = run_both_ways(host, CASES, host.state_dir, kept_outputs or None)
    kept_outputs.update(found.native)
    return found


@pytest.mark.parametrize("case", CASES)
def test_cases_of_the_conformance_suite(outputs: Outputs, case: str) -> None:
    found = problems(outputs, case, KNOWN, "soft")
    assert not found, found


def test_launches_went_in_parts(host: Host, outputs: Outputs) -> None:
    """Of all programs above that ran on this host."""
    del outputs
    [vgpu] = host.status()["vgpus"]
    totals = vgpu["totals"]
    assert totals["nr_sliced"] > 0
    assert totals["nr_parts"] > totals["nr_sliced"]
    assert totals["nr_variants"] > 0
    assert totals["variant_ns"] > 0


def test_a_host_that_slices_nothing_prepares_nothing(tmp_path: Path) -> None:
    with forced_host(tmp_path, "whole") as host:
        assert host.guest("matrix_mul", options=("--vgpu", VGPU)).returncode == 0
        [vgpu] = host.status()["vgpus"]
        assert vgpu["totals"]["nr_variants"] == vgpu["totals"]["variant_ns"] == 0
        assert vgpu["totals"]["whole"] == {}
