"""An experiment: may the owner of a CUDA context take its own kernel off the device? `python -m benchmarks.preemption [--json FILE]`.

A kernel that has no PTX cannot be made to give way. But NVIDIA's published kernel driver has controls that the owner of a channel may use
without privilege: a time slice of its own, a preemption, and channels that are kept off the device until they are let on again. Here one
program with a long kernel uses them on itself, natively, without FairGV, while a neighbour launches small kernels: what the driver answers,
how long that takes, what the neighbour gains, and whether the kernel computes the same afterwards.

The program finds its channels by standing before libc's `ioctl` (channels.h). Only its own are named. The first answer that is not as
wished ends the experiment; a program that ends takes its channels with it.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console

from backend_host import channels
from backend_host.config import PACKAGE_ROOT
from backend_host.errors import FairGVError
from benchmarks import document as documents
from benchmarks.build import CUDA_FLAGS, build
from benchmarks.devices import choose_device, device_name, native_environment
from benchmarks.document import Record
from benchmarks.errors import NotMeasurableError, ProgramFailedError
from benchmarks.guests.process import ProcessRunning
from benchmarks.nvcc import find_nvcc, rebuilding, seal_of
from benchmarks.preemption.grid import preemption_grids

FOLDER = Path(__file__).parent
CHANNELS = channels.SOURCE.parent
C_SOURCES = (channels.SOURCE, FOLDER / "controls.c")
PROGRAM = PACKAGE_ROOT / "build/benchmarks/preemption"
C_FLAGS = ("-O2", "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror")
LIMIT_S = 60.0
KERNEL_S = 12.0
"""Longer than what is done beside one kernel."""
TIMESLICES_US = (100, 1000, 10000)
NR_WAKES, SLEEP_US = 150, 5000
NR_PREEMPTIONS = 100
NR_TURNS, TURN_US = 200, 2000


def build_tenant() -> Path:
    """The program, up to date."""
    nvcc = find_nvcc()
    objects = [PROGRAM.with_name(f"preemption.{source.stem}.o") for source in C_SOURCES]
    sources = [FOLDER / "tenant.cu", FOLDER / "controls.h", FOLDER / "rounds.h", CHANNELS / "channels.h", *C_SOURCES]
    compile_c = [
        ["gcc", *C_FLAGS, "-I", str(CHANNELS), "-c", str(source), "-o", str(target)]
        for source, target in zip(C_SOURCES, objects, strict=True)
    ]
    link = [str(nvcc.path), *CUDA_FLAGS, "-L", str(nvcc.libraries), "-I", str(CHANNELS), "-I", str(FOLDER)]
    link += [str(FOLDER / "tenant.cu"), *map(str, objects), "-Xlinker", "--export-dynamic", "-o"]
    with rebuilding(PROGRAM, seal_of([*compile_c, link], sources, nvcc)) as unfinished:
        if unfinished:
            for command in (*compile_c, [*link, str(unfinished)]):
                subprocess.run(command, check=True)
    return PROGRAM


class UnexpectedAnswerError(FairGVError):
    """The driver did not do as told: the experiment ends here."""


class Tenant:
    """The program with the long kernel. `found` says what it knows of its channels."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._running = ProcessRunning([str(build_tenant())], environment, "tenant")
        self.found = self._read()

    def __enter__(self) -> "Tenant":
        return self

    def __exit__(self, *_: object) -> None:
        self._running.stop()

    def ask(self, command: str) -> dict[str, Any]:
        """One command's answer; see tenant.cu. Raises ProgramFailedError when there is none."""
        self._running.tell(command)
        return self._read()

    def control(self, what: str, command: str) -> Record:
        """A command of the driver's, as a record. It is for the caller to look whether all was well."""
        return {"kind": "control", "what": what, **self.ask(command)}

    def _read(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self._running.read_line(time.monotonic() + LIMIT_S))
        return answer


def wakes(what: str, environment: dict[str, str]) -> Record:
    """What the neighbour's small kernels take, in us."""
    neighbour = ProcessRunning([str(build("large")), "wake", str(NR_WAKES), str(SLEEP_US)], environment, "neighbour")
    try:
        told = json.loads(neighbour.finish(LIMIT_S).checked("neighbour"))
    finally:
        neighbour.stop()
    return {"kind": "wait", "what": what, "us": told["us"]}


def expect(record: Record) -> Record:
    """The record, where each answer was as wished."""
    for answer in record["answers"]:
        if answer["errno"] or answer["status"]:
            raise UnexpectedAnswerError(
                f"{record['what']}: errno {answer['errno']}, status {answer['status']:#x}; nothing more is tried"
            )
    return record


def experiment(environment: dict[str, str]) -> Iterator[Record]:
    """Record by record, each as soon as it stands; an answer that is not as wished is the last but for the verdict on the kernel."""
    build("large")
    yield wakes("absent", environment)
    with Tenant(environment) as tenant:
        yield {"kind": "found", **tenant.found}
        if tenant.found["computing"] != 1:
            raise NotMeasurableError(f"the channel group that computes was not found: {tenant.found}")
        tenant.ask(f"start {KERNEL_S / 4}")
        undisturbed = tenant.ask("finish")
        try:
            for each in (_timeslices, _preemptions, _holds):
                for record in each(tenant, environment):
                    yield record
                    if record["kind"] == "control":
                        expect(record)
        except UnexpectedAnswerError as error:
            yield {"kind": "verdict", "what": "ended early", "verdict": str(error)}
            return
        tenant.ask(f"start {KERNEL_S / 4}")
        record = tenant.control(f"held and released in turn, {TURN_US} us each", f"alternate {NR_TURNS} {TURN_US}")
        yield record
        disturbed = tenant.ask("finish")
        is_same = undisturbed["digest"] == disturbed["digest"]
        yield _verdict("the result of a kernel that was held again and again", is_same, "the same", "ANOTHER")


def _timeslices(tenant: Tenant, environment: dict[str, str]) -> Iterator[Record]:
    tenant.ask(f"start {KERNEL_S}")
    yield wakes("in one long kernel", environment)
    own = tenant.control("asked for the time slice", "timeslice")
    yield own
    for us in (*TIMESLICES_US, own["timeslice_us"]):
        yield tenant.control(f"time slice of {us} us", f"timeslice {us}")
        if us != own["timeslice_us"]:
            yield wakes(f"in one long kernel, time slice of {us} us", environment)
    tenant.ask("finish")


def _preemptions(tenant: Tenant, environment: dict[str, str]) -> Iterator[Record]:
    tenant.ask(f"start {KERNEL_S / 4}")
    yield tenant.control("preempted, alone on the device", f"preempt {NR_PREEMPTIONS}")
    tenant.ask("finish")


def _holds(tenant: Tenant, environment: dict[str, str]) -> Iterator[Record]:
    tenant.ask(f"start {KERNEL_S / 4}")
    yield tenant.control("held", "hold")
    before = tenant.ask("progress")["rounds"]
    yield wakes("held in one long kernel", environment)
    after = tenant.ask("progress")["rounds"]
    yield _verdict("a kernel that is held", before == after, "stands still", "GOES ON")
    yield tenant.control("released", "release")
    time.sleep(0.1)
    yield _verdict("a kernel that is released", tenant.ask("progress")["rounds"] > after, "goes on", "STANDS STILL")
    tenant.ask("finish")


def _verdict(what: str, is_well: bool, well: str, ill: str) -> Record:
    return {"kind": "verdict", "what": what, "verdict": well if is_well else ill}


def main() -> int:
    """Entry point; 1 when the experiment could not be made, or a driver's answer ended it."""
    parser = argparse.ArgumentParser(prog="preemption", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    command = documents.command_line("python -m benchmarks.preemption", sys.argv[1:], options.json)
    console = Console()
    try:
        device = choose_device("cuda")
        document = documents.head("preemption", device_name(device), command) | {"records": []}
        for record in experiment(native_environment(device)):
            document["records"].append(record)
            if options.json:
                documents.write(options.json, document)
    except (NotMeasurableError, ProgramFailedError) as error:
        Console(stderr=True).print(f"preemption: {error}", markup=False)
        return 1
    for grid in preemption_grids(document):
        console.print(grid.on_terminal())
    return 1 if any(record.get("what") == "ended early" for record in document["records"]) else 0


if __name__ == "__main__":
    sys.exit(main())
