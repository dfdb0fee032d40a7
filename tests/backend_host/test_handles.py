"""The guest's numbers: whatever goes with a handle that is unbound, and wherever entries stand, the table keeps what it should."""

import ctypes
import random

import pytest

from tests.backend_host.parts import load_parts
from tests.backend_host.worker_harness import WIRE_TEXT

NR_STREAMS, NR_EVENTS = 24, 600
"""Events enough that the table grows while the streams capture: entries that went round its end stand before the older ones then."""


def kind_named(name: str) -> int:
    """Its number in `enum fgv_handle_kind`."""
    names = WIRE_TEXT.partition("FGV_HANDLE_CONTEXT = 1,")[2].partition("}")[0].split()
    return 2 + [text.rstrip(",") for text in names].index(f"FGV_HANDLE_{name}")


STREAM, EVENT, GRAPH = kind_named("STREAM"), kind_named("EVENT"), kind_named("GRAPH")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """handles.c by itself."""
    library = load_parts("handle_table", [], tmp_path_factory.mktemp("handles"))
    for name in ("bind_number", "is_bound", "unbind", "hot_number"):
        getattr(library, name).argtypes = [ctypes.c_uint8, ctypes.c_uint64]
    library.hot_number.restype = ctypes.c_uint64
    library.bind_captured.argtypes = [ctypes.c_uint64, ctypes.c_uint64]
    for name in ("begin", "bind_number", "bind_captured", "is_bound"):
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
