"""The ports as workloads of measurements."""

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.gloop.build import build
from benchmarks.guests import Session, run
from benchmarks.workloads import Workload, parse_report

PLAIN, SPLIT, GLOOP = WAYS = ("plain", "split", "gloop")
SIZES = {"cuda": "gpu", "soft": "soft"}
WITH_FILES = ("grep", "images")
LIMIT_S = 300.0


@dataclass(frozen=True)
class Port(Workload):
    """One of benchmarks/gloop/programs in place of one of benchmarks/programs."""

    def path(self) -> Path:
        """Built, and up to date."""
        return build(self.program)


def port(program: str, way: str, device: str, *words: str, size: str | None = None) -> Port:
    """A port in one of its ways, as large as the device wants it unless told otherwise."""
    return Port(
        program,
        f"{program}, {way}",
        ("--way", way, "--size", size or SIZES[device], "--json", "--no-check", *words),
    )


def report_of(session: Session, workload: Workload, *words: str) -> dict[str, Any]:
    """Runs a port by itself. ProgramFailedError."""
    with folder(workload.program) as more:
        arguments = [*workload.arguments, *more, *words]
        return parse_report(run(session, 0, workload.path(), arguments, limit_s=LIMIT_S).checked(workload.label))


@contextlib.contextmanager
def folder(program: str) -> Iterator[tuple[str, ...]]:
    """Words that name a folder for a port's files, where it has any. It goes with the block, however the program ends."""
    if program not in WITH_FILES:
        yield ()
        return
    with tempfile.TemporaryDirectory(prefix="fairgv-bench-gloop-") as path:
        yield ("--folder", path)
