"""What a worker asks of its device library, from a library between the two: call_log.c."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.backend_host.between import build_between
from tests.backend_host.test_worker_parts import Kernels
from tests.backend_host.worker_harness import Served


@dataclass(frozen=True)
class Call:
    """One that puts work in order: create, launch, record, wait or destroy.

    `detail`: the event, the blocks of a row, or the priority, negated. Also `state`: where a persistent variant counts, in place of a stream.
    """

    name: str
    stream: int
    detail: int


def build_call_log(folder: Path) -> Path:
    """The library that stands between."""
    return build_between("call_log", folder)


class Logged(Kernels):
    """A guest whose worker's calls can be read."""

    def __init__(self, served: Served, log: Path) -> None:
        super().__init__(served)
        self._log, self._nr_seen = log, 0
        self.wait()

    def calls(self) -> list[Call]:
        """Since it was last asked."""
        lines = self._log.read_text().splitlines()
        fresh, self._nr_seen = lines[self._nr_seen :], len(lines)
        fields = (line.split() for line in fresh)
        return [Call(name, int(stream, 16), int(detail, 16)) for name, stream, detail in fields]

    def wait(self) -> list[Call]:
        """Until all is done; the calls until then."""
        self.guest.ok("cuCtxSynchronize")
        return self.calls()
