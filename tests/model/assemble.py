"""From the tables of programs.py to one flat list of instructions: functions are put in where they are called, what cannot differ is one.

Two instructions are one if they do the same and lead to the same ones, so that a state forgets which of them it stands at. Its name is then
that of the first. What of a process's copies still matters at an instruction is known, too: a state forgets the rest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from tests.model.programs import Alternative, Call, Choice, Function, Node, Step

WORDS = ("free", "mine open", "mine closed", "other open", "other closed")
OUTCOMES: dict[str, tuple[str, ...]] = {
    "load grant": WORDS,
    "close": ("done", "failed"),
    "hand on": ("given", "freed", "failed"),
    "take": ("done", "failed"),
    "add": ("",),
    "remove": ("",),
    "has users": ("some", "none"),
    "waits": ("some", "none"),
    "anybody waits": ("some", "none"),
    "choose": ("one held", "one free", "none held", "none free", "on"),
    "ring": ("",),
    "load bell": ("",),
    "sleep": ("asleep", "awake"),
    "asleep": ("",),
    "ask daemon": ("alive", "ended"),
    "look for dead": ("dead", "none"),
    "is member": ("yes", "no"),
    "learn": ("",),
    "gone": ("",),
    "choice": (),
    "entered": ("waited", "did not wait"),
    "if waiting": ("yes", "no"),
    "if word": WORDS,
    "repaired": ("",),
}
"""Of each op, in the order of enum model_op."""

USES_AND_MAKES: dict[str, tuple[set[str], set[str]]] = {
    "load grant": (set(), {"word"}),
    "close": ({"word"}, set()),
    "hand on": ({"word", "next"}, set()),
    "take": ({"word"}, set()),
    "choose": ({"word", "next"}, {"next"}),
    "ring": ({"next"}, set()),
    "load bell": (set(), {"bell"}),
    "sleep": ({"bell"}, set()),
    "look for dead": ({"word"}, {"number"}),
    "if word": ({"word"}, set()),
    "repaired": ({"number"}, set()),
    "learn": (set(), {"number"}),
}


class Doing(NamedTuple):
    """What an instruction does, but for where it leads."""

    op: str
    set: str = "users"
    who: str = "own"
    word: int = 0
    flags: frozenset[str] = frozenset()
    kinds: tuple[str, ...] = ()


@dataclass(frozen=True)
class Instruction:
    """`to` are places in the program; `names` are those of the alternatives of a choice."""

    function: str
    label: str
    doing: Doing
    to: tuple[int, ...]
    names: tuple[str, ...] = ()
    live: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Program:
    instructions: tuple[Instruction, ...]
    entries: Mapping[str, int]


@dataclass(frozen=True)
class _Frame:
    """One call of a function: where its returns lead, and what its caller handed it."""

    function: Function
    returns: Mapping[str, int]
    who: str
    word: int
    flags: frozenset[str]


def outcome_target(to: Mapping[str, str], outcome: str) -> str:
    """The label for an outcome: of the first key whose words it has, else of "else"."""
    for key, label in to.items():
        if key == "else" or set(key.split()) <= set(outcome.split()):
            return label
    raise KeyError(f"no label for {outcome!r} in {dict(to)}")


class _Assembler:
    def __init__(self, functions: Mapping[str, Function], allowed: Collection[str]) -> None:
        self._functions = functions
        self._allowed = allowed
        self._made: list[Instruction | None] = []

    def finished(self) -> tuple[Instruction, ...]:
        return tuple(instruction for instruction in self._made if instruction is not None)

    def place(self) -> int:
        self._made.append(None)
        return len(self._made) - 1

    def put_in(self, frame: _Frame, at: int | None = None) -> dict[str, int]:
        """All steps of a function; the first of them at the place `at`, where there is one. Gives the place of each label."""
        steps = frame.function.steps
        first = next(iter(steps))
        places = {label: self.place() if label != first or at is None else at for label in steps}
        for label, node in steps.items():
            self._put_node(frame, label, node, places)
        return places

    def _target(self, frame: _Frame, label: str, places: Mapping[str, int]) -> int:
        if label in places:
            return places[label]
        word, _, value = label.partition(" ")
        if word != "return":
            raise KeyError(f"{frame.function.name} has no label {label!r}")
        return frame.returns[value] if value in frame.returns else frame.returns["else"]

    def _put_node(self, frame: _Frame, label: str, node: Node, places: Mapping[str, int]) -> None:
        match node:
            case Step():
                self._put_step(frame, label, node, places)
            case Call():
                returns = {value: self._target(frame, next_label, places) for value, next_label in node.to.items()}
                callee = self._functions[node.function]
                who = frame.who if node.who == "subject" else node.who
                word = frame.word if callee.word is None else callee.word
                inner = _Frame(callee, returns, who, word, frame.flags | set(node.flags))
                self.put_in(inner, places[label])
            case Choice():
                self._put_choice(frame, label, node.alternatives, places)

    def _put_step(self, frame: _Frame, label: str, step: Step, places: Mapping[str, int]) -> None:
        who = frame.who if step.who == "subject" else step.who
        doing = Doing(step.op, step.set, who, frame.word, frame.flags | set(step.flags))
        to = (
            places[label] if outcome == "on" else self._target(frame, outcome_target(step.to, outcome), places)
            for outcome in OUTCOMES[step.op]
        )
        self._made[places[label]] = Instruction(frame.function.name, label, doing, tuple(to))

    def _put_choice(
        self, frame: _Frame, label: str, alternatives: Mapping[str, Alternative], places: Mapping[str, int]
    ) -> None:
        possible = {name: one for name, one in alternatives.items() if not one.needs or one.needs in self._allowed}
        doing = Doing("choice", kinds=tuple(one.kind for one in possible.values()))
        to = tuple(self._target(frame, one.to, places) for one in possible.values())
        self._made[places[label]] = Instruction(frame.function.name, label, doing, to, tuple(possible))


def _renumbered(program: Program, new_of: Mapping[int, int], kept: Iterable[int]) -> Program:
    instructions = (program.instructions[old] for old in kept)
    moved = tuple(replace(one, to=tuple(new_of[old] for old in one.to)) for one in instructions)
    return Program(moved, {name: new_of[old] for name, old in program.entries.items()})


def _reached(program: Program) -> Program:
    """Without what no entry leads to."""
    kept = list(dict.fromkeys(program.entries.values()))
    for old in kept:  # which grows meanwhile
        kept.extend(to for to in dict.fromkeys(program.instructions[old].to) if to not in kept)
    return _renumbered(program, {old: new for new, old in enumerate(kept)}, kept)


def _smallest(program: Program) -> Program:
    """With one for all instructions that do the same and lead to the same: they are parted until nothing tells them apart any more."""
    instructions = program.instructions
    parts: list[object] = [(one.doing, one.names) for one in instructions]
    classes = _numbered(parts)
    while True:
        finer = _numbered([(classes[old], tuple(classes[to] for to in one.to)) for old, one in enumerate(instructions)])
        if max(finer) == max(classes):
            break
        classes = finer
    kept = [classes.index(number) for number in range(max(classes) + 1)]
    return _renumbered(program, dict(enumerate(classes)), kept)


def _numbered(parts: Iterable[object]) -> list[int]:
    """Equal ones get one number, in the order of their first ones."""
    numbers: dict[object, int] = {}
    return [numbers.setdefault(part, len(numbers)) for part in parts]


def _uses_and_makes(doing: Doing) -> tuple[set[str], set[str]]:
    uses, makes = (set(found) for found in USES_AND_MAKES.get(doing.op, (set(), set())))
    if doing.who == "slot":
        uses.add("number")
    if doing.who == "holder":
        uses.add("word")
    copy = {"word": "kept"} if doing.word else {}
    return {copy.get(name, name) for name in uses}, {copy.get(name, name) for name in makes}


def _with_live(program: Program) -> Program:
    """What matters before an instruction: what it uses, and what matters behind it and is not made by it."""
    live: list[frozenset[str]] = [frozenset()] * len(program.instructions)
    is_changed = True
    while is_changed:
        is_changed = False
        for at, one in reversed(list(enumerate(program.instructions))):
            uses, makes = _uses_and_makes(one.doing)
            behind = frozenset[str]().union(*(live[to] for to in one.to))
            found = frozenset(uses | (behind - makes))
            is_changed = is_changed or found != live[at]
            live[at] = found
    instructions = tuple(replace(one, live=live[at]) for at, one in enumerate(program.instructions))
    return Program(instructions, program.entries)


def assemble(functions: Mapping[str, Function], allowed: Collection[str] = ()) -> Program:
    """A program with entries "worker" (out), "daemon" (idle) and "gone"."""
    assembler = _Assembler(functions, allowed)
    worker = assembler.put_in(_Frame(functions["worker"], {}, "own", 0, frozenset()))
    daemon = assembler.put_in(_Frame(functions["daemon"], {}, "own", 0, frozenset()))
    entries = {"worker": worker["out"], "daemon": daemon["idle"], "gone": worker["gone"]}
    return _with_live(_smallest(_reached(Program(assembler.finished(), entries))))
