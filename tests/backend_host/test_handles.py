"""The guest's numbers: whatever goes with a handle that is unbound, and wherever entries stand, the table keeps what it should."""

import ctypes
import random
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from backend_host.worker.build_ffi import INCLUDES
from tests.backend_host.parts import load_parts
from tests.backend_host.worker_guest import WIRE_TEXT

NR_STREAMS, NR_EVENTS = 24, 600
"""Events enough that the table grows while the streams capture: entries that went round its end stand before the older ones then."""


def kind_named(name: str) -> int:
    """Its number in `enum fgv_handle_kind`."""
    names = re.findall(r"FGV_HANDLE_(\w+)", WIRE_TEXT)
    return 1 + names.index(name)


STREAM, EVENT, GRAPH = kind_named("STREAM"), kind_named("EVENT"), kind_named("GRAPH")
CONTEXT, MODULE, FUNCTION, LIBRARY = (kind_named(name) for name in ("CONTEXT", "MODULE", "FUNCTION", "LIBRARY"))
CONTEXTS = 100, 101
"""Numbers of the two contexts of handle_table.c."""


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """handles.c by itself."""
    library = load_parts("handle_table", [], tmp_path_factory.mktemp("handles"))
    for name in ("bind_number", "is_bound", "unbind", "hot_number"):
        getattr(library, name).argtypes = [ctypes.c_uint8, ctypes.c_uint64]
    library.hot_number.restype = ctypes.c_uint64
    library.bind_captured.argtypes = [ctypes.c_uint64, ctypes.c_uint64]
    library.bind_run.argtypes = [ctypes.c_uint8, ctypes.c_uint64, ctypes.c_uint32]
    library.copy_stays.argtypes = [ctypes.c_uint8, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32]
    library.bind_under.argtypes = [ctypes.c_uint8, ctypes.c_uint64] * 2
    for name in ("begin", "bind_number", "bind_captured", "bind_under", "is_bound", "copy_stays"):
        getattr(library, name).restype = ctypes.c_bool
    library.longest_run.restype = ctypes.c_uint32
    library.nr_bound.restype = ctypes.c_uint32
    return library


@pytest.mark.parametrize("seed", range(20))
def test_a_stream_goes_with_the_graph_of_its_capture_and_nothing_else_does(table: ctypes.CDLL, seed: int) -> None:
    """A guest picks the numbers of its streams, so it picks what moves when the graph goes."""
    choice = random.Random(seed)
    assert table.begin()
    captures: dict[int, int] = {}
    for _ in range(NR_STREAMS):
        stream = table.hot_number(STREAM, choice.randrange(1 << 48, 1 << 60))
        assert table.bind_number(STREAM, stream)
        captures[stream] = table.hot_number(GRAPH, choice.randrange(1 << 48, 1 << 60))
    for stream, graph in captures.items():
        assert table.bind_captured(stream, graph)
    events = [choice.randrange(1 << 48, 1 << 60) for _ in range(NR_EVENTS)]
    assert all(table.bind_number(EVENT, event) for event in events)
    for stream in choice.sample(sorted(captures), NR_STREAMS):
        table.unbind(STREAM, stream)
        graph = captures.pop(stream)
        assert not table.is_bound(STREAM, stream)
        assert not table.is_bound(GRAPH, graph)
        assert all(table.is_bound(STREAM, other) and table.is_bound(GRAPH, captures[other]) for other in captures)
        assert all(table.is_bound(EVENT, event) for event in events)
        assert table.nr_bound() == NR_EVENTS + 3 * len(captures)


def released(table: ctypes.CDLL) -> list[int]:
    numbers = (ctypes.c_uint64 * 64)()
    return list(numbers[: table.tell_gone(numbers)])


def test_a_context_takes_what_is_below_it_the_lowest_and_newest_first(table: ctypes.CDLL) -> None:
    assert table.begin()
    assert table.bind_number(CONTEXT, CONTEXTS[0])
    for module in (10, 20):
        assert table.bind_number(MODULE, module)
    for module in (10, 20):
        assert table.bind_under(FUNCTION, module + 1, MODULE, module)
        assert table.bind_under(FUNCTION, module + 2, MODULE, module)
    table.drop_context(0)
    assert released(table) == [22, 21, 20, 12, 11, 10, CONTEXTS[0]]
    assert table.nr_bound() == 0


def test_a_function_lives_where_its_module_does_and_not_where_it_was_asked_for(table: ctypes.CDLL) -> None:
    assert table.begin()
    assert table.bind_number(CONTEXT, CONTEXTS[0])
    assert table.bind_number(CONTEXT, CONTEXTS[1])
    assert table.bind_number(MODULE, 10)
    table.enter(1)
    assert table.bind_under(FUNCTION, 11, MODULE, 10)
    table.drop_context(1)
    assert released(table) == [CONTEXTS[1]]
    table.drop_context(0)
    assert released(table) == [CONTEXTS[1], 11, 10, CONTEXTS[0]]


@pytest.mark.parametrize("first", ["context", "library"])
def test_a_librarys_module_in_a_context_goes_with_whichever_goes_first(table: ctypes.CDLL, first: str) -> None:
    assert table.begin()
    assert table.bind_number(CONTEXT, CONTEXTS[0])
    assert table.bind_number(LIBRARY, 30)
    assert table.bind_under(MODULE, 31, LIBRARY, 30)
    assert table.bind_under(FUNCTION, 32, MODULE, 31)
    if first == "context":
        table.drop_context(0)
        assert released(table) == [32, 31, CONTEXTS[0]]
    table.unbind(LIBRARY, 30)
    assert released(table)[-1] == 30
    assert [number for number in released(table) if number in (31, 32)] == [32, 31]


def test_a_million_handles_come_and_go_in_a_moment(table: ctypes.CDLL) -> None:
    """The table is full then, and a context of that many takes as long as its handles, not as their square."""
    assert table.begin()
    assert table.bind_number(CONTEXT, CONTEXTS[0])
    assert table.bind_run(EVENT, 1000, 1 << 20) == (1 << 20) - 1
    assert not table.bind_number(EVENT, 3)
    table.drop_context(0)
    assert table.nr_bound() == 0


@dataclass
class Model:
    """What should be in the table: of each number its kind, what it is under (0: the client), and the context that it lives in (None: none)."""

    bound: dict[int, tuple[int, int, int | None]]
    current: int = 0

    def below(self, number: int) -> set[int]:
        found = {number}
        for _ in range(4):
            found |= {one for one, (_, above, _) in self.bound.items() if above in found}
        return found

    def drop(self, numbers: set[int]) -> None:
        for gone in [one for number in numbers for one in self.below(number)]:
            self.bound.pop(gone, None)

    def drop_context(self, place: int) -> None:
        self.drop({CONTEXTS[place], *(one for one, (_, _, home) in self.bound.items() if home == place)})


ABOVE = {MODULE: (LIBRARY,), FUNCTION: (MODULE,), LIBRARY: (), EVENT: ()}


def step(table: ctypes.CDLL, model: Model, choice: random.Random, number: int) -> None:
    """Something comes, or goes, in the table and in the model."""
    if model.bound and choice.random() < 0.3:
        gone = choice.choice(sorted(model.bound))
        if gone in CONTEXTS:
            table.drop_context(CONTEXTS.index(gone))
            model.drop_context(CONTEXTS.index(gone))
        else:
            table.unbind(model.bound[gone][0], gone)
            model.drop({gone})
        return
    model.current = choice.randrange(2)
    table.enter(model.current)
    context = CONTEXTS[model.current]
    if context not in model.bound:
        assert table.bind_number(CONTEXT, context)
        model.bound[context] = (CONTEXT, 0, None)
    kind = choice.choice(sorted(ABOVE))
    parents = [one for one, (other, _, _) in model.bound.items() if other in ABOVE[kind]]
    if parents and (kind == FUNCTION or choice.random() < 0.5):
        above = choice.choice(parents)
        home = model.bound[above][2]
        assert table.bind_under(kind, number, model.bound[above][0], above)
        model.bound[number] = (kind, above, model.current if home is None else home)
    elif kind != FUNCTION:
        assert table.bind_number(kind, number)
        model.bound[number] = (kind, 0, None) if kind == LIBRARY else (kind, context, model.current)


@pytest.mark.parametrize("seed", range(5))
def test_what_comes_and_goes_leaves_what_it_should(table: ctypes.CDLL, seed: int) -> None:
    assert table.begin()
    model, choice = Model({}), random.Random(seed)
    kinds: dict[int, int] = {}
    for number in range(1000, 3000):
        step(table, model, choice, number)
        kinds.update({one: kind for one, (kind, _, _) in model.bound.items()})
        assert table.nr_bound() == len(model.bound)
    assert all(table.is_bound(kind, number) == (number in model.bound) for number, kind in kinds.items())


@pytest.mark.parametrize(
    "number_of",
    [
        lambda i: i << 52 ^ i << 20 ^ 1 << 40,  # met in one place when the table's hash had no secret
        lambda i: i << 5,
        lambda i: i << 53,
        lambda i: int(f"{i:010b}"[::-1], 2) << 54,
    ],
    ids=["high and low", "in steps", "high", "reversed"],
)
def test_numbers_that_a_guest_chose_do_not_meet_in_one_place(
    table: ctypes.CDLL, number_of: Callable[[int], int]
) -> None:
    """Whatever the secret: with products alone one of 160 put all of them into a few rows."""
    for _ in range(300):
        assert table.begin()
        assert all(table.bind_number(EVENT, ctypes.c_uint64(number_of(i))) for i in range(1, 400))
        assert table.longest_run() < 100


PEEK = """
#include "client/handles.h"
const void *peek(struct fgw_worker *worker);
const void *peek(struct fgw_worker *worker)
{
    return %s;
}
"""


@pytest.mark.parametrize(
    ("pointer", "compiles"), [("worker->handles.places + 1", True), ("worker->handles.entries + 1", False)]
)
def test_no_file_beside_the_table_points_at_a_handle(pointer: str, compiles: bool) -> None:
    """It would keep pointing there when the table moves: what an entry is, handles.c alone knows."""
    command = ["gcc", "-fsyntax-only", *(f"-I{include}" for include in INCLUDES), "-xc", "-"]
    done = subprocess.run(command, input=PEEK % pointer, text=True, capture_output=True, check=False)
    assert (done.returncode == 0) == compiles, done.stderr
    assert compiles or "struct fgw_entry" in done.stderr


def test_a_copy_stays_while_the_table_moves(table: ctypes.CDLL) -> None:
    assert table.begin()
    assert table.bind_number(EVENT, 10)
    assert table.copy_stays(EVENT, 10, 100, 5000)
