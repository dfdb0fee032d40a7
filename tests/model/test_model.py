"""The protocol by which workers hand the grant on, gone through state by state; what is checked stands in __main__.py."""

from dataclasses import replace

import pytest

from backend_host import phases
from tests.model.engine import Model
from tests.model.mutants import MUTANTS, Mutant
from tests.model.phases import AFTER_EVICTION, WORKER, differences, told_by
from tests.model.report import described
from tests.model.settings import BEYOND, SMALL, TIME

PHASE_OF_STAND = {"STANDS_OUT": "out", "WAITS": "waiting", "USES": "in"}


@pytest.mark.parametrize("name", SMALL)
def test_no_grant_is_lost_none_is_double_and_nobody_waits_for_ever(name: str) -> None:
    model = Model(SMALL[name])
    found = model.search()
    assert not found.fault, described(model, found)
    assert found.is_whole
    unknown = differences(WORKER, found.changes).unknown
    assert unknown <= (AFTER_EVICTION if "evictions" in SMALL[name].may else frozenset())


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_each_fault_that_is_put_in_is_found(mutant: Mutant) -> None:
    model = Model(mutant.mutated)
    found = model.search()
    assert found.fault == mutant.fault
    assert len(found.trace) > 5
    assert described(model, found).count("\n") > len(found.trace)


@pytest.mark.parametrize("name", BEYOND)
def test_what_is_beyond_the_promise_is_known(name: str) -> None:
    setting, fault = BEYOND[name]
    assert Model(setting).search().fault == fault


def test_a_trace_says_who_did_what() -> None:
    mutant = next(mutant for mutant in MUTANTS if mutant.name == "fgw_grant_leave does not hand on")
    model = Model(mutant.mutated)
    lines = described(model, model.search()).splitlines()
    assert lines[0].startswith("a worker waits for ever (")
    assert lines[1].split() == ["step", "who", "does", "grant", "users", "waiting"]
    assert lines[2].split()[:5] == ["1", "worker", "0", "of", "vGPU"]
    assert any("fgw_grant_leave: remove (users)" in line for line in lines)
    assert lines[-1].startswith("the daemon is at ")


def test_the_table_of_phases_is_what_the_model_sees() -> None:
    """Evictions apart, which bring changes of their own."""
    seen = Model(replace(TIME, may=("nudges", "cancels"))).search().changes
    assert differences(WORKER, seen) == differences(set(), set())
    with_evictions = Model(replace(TIME, may=("nudges", "cancels", "evictions"))).search().changes
    assert differences(WORKER | AFTER_EVICTION, with_evictions) == differences(set(), set())


def test_a_finer_table_is_told_by_these_phases() -> None:
    finer = [("out", "waiting"), ("waiting", "running"), ("running", "idle"), ("idle", "draining"), ("draining", "out")]
    phase_of = {"out": "out", "waiting": "waiting", "running": "in", "idle": "in", "draining": "leaving"}
    assert told_by(finer, phase_of) == {("out", "waiting"), ("waiting", "in"), ("in", "leaving"), ("leaving", "out")}


def test_the_phases_of_the_c_code_are_those_of_the_model() -> None:
    """Each of them is one of the model's, by the worker's bit and by whether it may submit; READY may be at the end of a turn, too."""
    machine = phases.read(phases.PHASE_H.read_text())
    phase_of = {
        phase.name: "leaving" if phase.name in ("DRAINING", "STOPPING") else PHASE_OF_STAND[phase.stand]
        for phase in machine.phases
    }
    table = told_by(((change.source, change.target) for change in machine.transitions), phase_of)
    assert differences(WORKER | AFTER_EVICTION, table) == differences(set(), set())
