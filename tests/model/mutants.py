"""Faults put into the tables one at a time. A check that finds none shows nothing; each is found, in a setting as small as can be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tests.model.engine import Setting
from tests.model.programs import FAIR, FREE, FUNCTIONS, Alternative, Call, Choice, Function, Node, Step
from tests.model.settings import BELLS, SIBLINGS, TIME

TWO_INSIDE = "workers of two vGPUs are inside"
LOST_BIT = "a living worker's bit is gone"
SAME_SEQUENCE = "the grant goes on under the same sequence number"
FOR_EVER = "a worker waits for ever"

BROTHERS = replace(BELLS, vgpu_of=SIBLINGS)
DEATH = replace(TIME, nr_deaths=1)
ORPHANS = replace(DEATH, nr_deaths=2, may=("nudges", "daemon dies"))


@dataclass(frozen=True)
class Mutant:
    """`changes` are of the steps of functions, by label."""

    name: str
    setting: Setting
    fault: str
    changes: Mapping[str, Mapping[str, Node]]

    @property
    def mutated(self) -> Setting:
        functions = dict(FUNCTIONS)
        for name, steps in self.changes.items():
            functions[name] = changed(functions[name], steps)
        return replace(self.setting, functions=functions)


def changed(function: Function, steps: Mapping[str, Node]) -> Function:
    return replace(function, steps={**function.steps, **steps})


def led(function: str, label: str, **to: str) -> dict[str, dict[str, Node]]:
    """A step that leads elsewhere: `every` after all that it finds."""
    step = FUNCTIONS[function].steps[label]
    assert isinstance(step, Step)
    labels = {("else" if outcome == "every" else outcome.replace("_", " ")): there for outcome, there in to.items()}
    rest = {} if "else" in labels else {outcome: there for outcome, there in step.to.items() if outcome not in labels}
    return {function: {label: replace(step, to={**labels, **rest})}}


def flagged(flag: str, *places: tuple[str, str]) -> dict[str, dict[str, Node]]:
    changes: dict[str, dict[str, Node]] = {}
    for function, label in places:
        step = FUNCTIONS[function].steps[label]
        assert isinstance(step, Step)
        changes.setdefault(function, {})[label] = replace(step, flags=(*step.flags, flag))
    return changes


EXCHANGES = (
    ("fgw_grant_pass", "hand on"),
    ("pass_over", "hand on"),
    ("drop", "close"),
    ("fgw_grant_close", "close"),
    ("fgw_grant_nudge", "close"),
    ("try_enter", "take"),
)

MUTANTS = (
    Mutant(
        "try_enter looks at the grant before it sets its bit",
        TIME,
        TWO_INSIDE,
        {
            "try_enter": {
                **led("try_enter", "look", free="anybody", every="look again")["try_enter"],
                **led("try_enter", "anybody", some="look again")["try_enter"],
                **led("try_enter", "take", failed="look again")["try_enter"],
                "look again": Step("load grant", {"mine open": "add", "else": "remove"}),
                "add": Step("add", {"else": "return in"}),
            }
        },
    ),
    Mutant(
        "try_enter takes a free grant before it sets its bit",
        TIME,
        TWO_INSIDE,
        {
            "try_enter": {
                **led("try_enter", "anybody", none="take")["try_enter"],
                **led("try_enter", "take", done="add first")["try_enter"],
                "add first": Step("add", {"else": "return in"}),
            }
        },
    ),
    Mutant(
        "try_enter does not hand on what it did not get",
        BROTHERS,
        FOR_EVER,
        led("try_enter", "remove", every="return out"),
    ),
    Mutant(
        "fgw_grant_enter does not hand on once it is seen waiting",
        BELLS,
        FOR_EVER,
        led("fgw_grant_enter", "wait", every="look"),
    ),
    Mutant("fgw_grant_pass does not look for users", BELLS, TWO_INSIDE, led("fgw_grant_pass", "look", closed="choose")),
    Mutant("fgw_grant_pass rings no bell", BELLS, FOR_EVER, led("fgw_grant_pass", "hand on", given="return")),
    Mutant(
        "who hands on does not look whether that is still wanted",
        replace(BELLS, may=("cancels",), is_giving_checked=False),
        FOR_EVER,
        led("fgw_grant_pass", "ring", every="return"),
    ),
    Mutant(
        "fgw_grant_leave does not hand on",
        BELLS,
        FOR_EVER,
        led("leave", "remove", every="return"),
    ),
    Mutant(
        "drop takes no grant away that its vGPU does not use",
        BELLS,
        FOR_EVER,
        led("drop", "look", every="pass"),
    ),
    Mutant(
        "who sleeps knows the bell only from after its attempt",
        BELLS,
        FOR_EVER,
        {
            "worker": {
                "out": Choice({"enter": Alternative("enter", FREE)}),
                "waiting": Choice({"enter": Alternative("enter", FAIR)}),
                "enter": Call("fgw_grant_enter", {"in": "in", "out": "bell"}),
                "bell": Step("load bell", {"else": "sleep"}),
            }
        },
    ),
    Mutant(
        "no compare knows the sequence number",
        TIME,
        TWO_INSIDE,
        flagged("ignores sequence", *EXCHANGES),
    ),
    Mutant(
        "no hand-over changes the sequence number",
        BELLS,
        SAME_SEQUENCE,
        flagged("keeps sequence", EXCHANGES[0]),
    ),
    Mutant(
        "fgw_grant_nudge does not look for users once it has closed",
        TIME,
        TWO_INSIDE,
        led("fgw_grant_nudge", "close", done="pass over"),
    ),
    Mutant(
        "fgw_grant_nudge takes nothing from an idle holder",
        replace(TIME, nr_deaths=2, may=("nudges", "workers return")),
        FOR_EVER,
        {"fgw_grant_nudge": {"age": Choice({"young": Alternative("pass", FAIR)})}},
    ),
    Mutant(
        "fgw_grant_nudge repairs nobody",
        ORPHANS,
        FOR_EVER,
        led("fgw_grant_nudge", "ask daemon", every="whose"),
    ),
    Mutant(
        "fgw_grant_nudge repairs the living",
        ORPHANS,
        LOST_BIT,
        flagged("trusts no death", ("fgw_grant_nudge", "look for dead")),
    ),
    Mutant("the daemon repairs nobody", DEATH, FOR_EVER, led("daemon", "learn", every="repaired")),
    Mutant(
        "fgw_grant_clear does not hand on",
        replace(DEATH, may=()),
        FOR_EVER,
        led("fgw_grant_clear", "users", every="return"),
    ),
)
