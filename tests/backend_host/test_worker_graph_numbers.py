"""Graphs and nodes for which there is no number any more: nobody could name them, so the driver does not keep them."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ivshmem.region import Region
from tests.backend_host.between import build_between
from tests.backend_host.test_worker_graphs import EMPTY, NODES, add_node, node_params
from tests.backend_host.worker_guest import STREAM, Guest
from tests.backend_host.worker_harness import Host, Served

OUT_OF_MEMORY = 2
NR_NODES = 1000
"""Of a graph whose clones fill the table of handles: listing a clone gives each of its nodes a number."""


@dataclass(frozen=True)
class Full:
    """A guest that has as many handles as it may. One of its graphs, and a clone of that."""

    guest: Guest
    log: Path
    graph: int
    clone: int

    def nr_graphs(self) -> int:
        """That the driver has."""
        lines = self.log.read_text().split()
        return lines.count("+") - lines.count("-")

    def nr_nodes(self) -> int:
        """That the driver has in the graph."""
        return int(self.guest.ok("graph_list", handle=self.graph, what=NODES, chunk=0).nr_all)


@pytest.fixture
def full(tmp_path: Path, region: Region) -> Iterator[Full]:
    log = tmp_path / "graphs"
    log.touch()
    log.chmod(0o666)
    library = build_between("graph_log", tmp_path)
    with contextlib.closing(Host(library, {"FAIRGV_GRAPH_LOG": str(log)}, shared=[tmp_path])) as host:
        guest = Served(host, region).primary()
        guest.ok("cuStreamCreate", phStream=STREAM)
        graph = guest.ok("graph_create").graph
        for _ in range(NR_NODES):
            assert add_node(guest, graph, node_params(EMPTY)).result == 0
        result = 0
        while result == 0:
            clone = guest.ok("graph_clone", graph=graph).graph
            result = guest.call("graph_list", handle=clone, what=NODES, chunk=0, capacity=NR_NODES).result
        assert result == OUT_OF_MEMORY
        yield Full(guest, log, graph, clone)


def test_what_gets_no_number_is_destroyed(full: Full) -> None:
    guest, nr_graphs = full.guest, full.nr_graphs()
    assert guest.call("graph_create").result == OUT_OF_MEMORY
    assert guest.call("graph_clone", graph=full.graph).result == OUT_OF_MEMORY
    guest.ok("capture_begin", stream=STREAM)
    ended = guest.ok("capture_end", stream=STREAM)
    assert (ended.error, ended.is_over, ended.graph) == (OUT_OF_MEMORY, 1, 0)
    assert full.nr_graphs() == nr_graphs
    assert add_node(guest, full.graph, node_params(EMPTY)).result == OUT_OF_MEMORY
    assert full.nr_nodes() == NR_NODES
    guest.ok("cuGraphDestroy", hGraph=full.clone)
    assert add_node(guest, full.graph, node_params(EMPTY)).result == 0
    guest.ok("graph_create")
    assert (full.nr_graphs(), full.nr_nodes()) == (nr_graphs, NR_NODES + 1)
