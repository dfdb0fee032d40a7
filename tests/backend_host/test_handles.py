"""The guest's numbers: whatever goes with a handle that is unbound, and wherever entries stand, the table keeps what it should."""

import ctypes
import random
import re

import pytest

from tests.backend_host.parts import load_parts
from tests.backend_host.worker_harness import WIRE_TEXT

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
    library.bind_under.argtypes = [ctypes.c_uint8, ctypes.c_uint64] * 2
    for name in ("begin", "bind_number", "bind_captured", "bind_under", "is_bound"):
        getattr(library, name).restype = ctypes.c_bool
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
    assert all(table.bind_number(EVENT, number) for number in range(1000, 1000 + (1 << 20) - 1))
    assert not table.bind_number(EVENT, 3)
    table.drop_context(0)
    assert table.nr_bound() == 0
