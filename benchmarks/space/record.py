"""Records surfaces of sharing in space (programs/surfaces.cu), for searches to be replayed on and to predict from.

surfaces.json: the paper's programs, each best-effort one with each critical one, on the whole grid.
micro.json: instances of the micro-benchmark in all pairs, on a coarse grid. They are the medoids of 180 instances by their features.

Features are from timings (the head of surfaces.cu says which), from 0, the least of all instances, to 1, the greatest. A program's are bounded
alike. Wrong when something else runs on the device; softgpu's figures show that the recorder runs, and nothing more.
"""

import json
import subprocess
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

from backend_host.config import PACKAGE_ROOT
from backend_host.whole_file import whole
from benchmarks.devices import device_name, native_environment
from benchmarks.errors import ProgramFailedError
from benchmarks.space.build import build
from benchmarks.space.medoids import Vector, bounds_of, medoids, normalised

FOLDER = PACKAGE_ROOT / "benchmarks/space"
SURFACES, MICRO = "surfaces.json", "micro.json"
BEST_EFFORT = ("cfd", "md", "matrixMul", "nn", "lavaMD")
CRITICAL = ("backprop", "lbm", "hotspot", "pathfinder", "spmv")
PAIRS = tuple(product(BEST_EFFORT, CRITICAL))
STRIDES, OVERLAPS, ITERATIONS = (1, 2, 3, 4, 6, 8, 12, 16, 32), (0.0, 0.05, 0.1, 0.15, 0.2), (1, 2, 3, 4)
SILENT_S = 60
"""After which the recorder hangs; a pair takes a tenth of it."""

Measured = dict[str, Any]
"""What the recorder says of a pair or of a program, one line of it."""


@dataclass(frozen=True)
class Size:
    """What a device is given to do: pairs of the paper's programs, instances of the micro-benchmark, and steps of n for either."""

    words: tuple[str, ...]
    pairs_words: tuple[str, ...]
    micro_words: tuple[str, ...]
    step: int
    micro_step: int
    pairs: tuple[tuple[str, str], ...]
    instances: tuple[tuple[int, float, int], ...]
    nr_medoids: int


SIZES = {
    "cuda": Size(
        ("--large",),
        ("--step", "4", "--rounds", "21", "--ms", "20"),
        ("--step", "12", "--ks", "1,2,4,6,8", "--rounds", "7", "--ms", "8", "--longest", "20"),
        4,
        12,
        PAIRS,
        tuple(product(STRIDES, OVERLAPS, ITERATIONS)),
        12,
    ),
    "soft": Size(
        ("--numbers", "4", "--rounds", "2", "--ms", "20", "--window-ms", "1"),
        ("--step", "8", "--ks", "1"),
        ("--step", "16", "--ks", "1"),
        8,
        16,
        tuple(product(BEST_EFFORT[:2], CRITICAL[:2])),
        tuple(product((1, 8), (0.0, 0.2), (1, 4))),
        2,
    ),
}


def instance(shape: tuple[int, float, int]) -> str:
    """What the recorder calls an instance of the micro-benchmark."""
    stride, overlap, iterations = shape
    return f"stride-{stride}-overlap-{overlap:g}-iterations-{iterations}"


def recorded(device: str, words: Sequence[str]) -> Iterator[Measured]:
    """What the recorder prints, line by line. ProgramFailedError, also when it says nothing for SILENT_S."""
    command = [str(build("surfaces")), *SIZES[device].words, *words]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=native_environment(device), stdout=pipe, stderr=pipe, text=True) as program:
        try:
            while line := _line(program):
                yield json.loads(line)
            status = program.wait()
            assert program.stderr is not None
            errors = program.stderr.read().strip()
        finally:
            program.kill()
    if status:
        raise ProgramFailedError(f"surfaces: {errors or f'nothing was said for {SILENT_S} s'}")


def _line(program: subprocess.Popen[str]) -> str:
    """The next one, or nothing when it ended or said nothing for too long."""
    watch = threading.Timer(SILENT_S, program.kill)
    watch.start()
    try:
        assert program.stdout is not None
        return program.stdout.readline()
    finally:
        watch.cancel()


class Recording:
    """One calibration, whose two files have what was measured until it ended, however that was."""

    def __init__(self, device: str, folder: Path, more: Sequence[str] = ()) -> None:
        """`more`: further words for the recorder."""
        self.device, self.folder, self.more = device, folder, more
        self.size = SIZES[device]
        self.features: dict[str, Vector] = {}

    def learn(self) -> Iterator[str]:
        """Features of all instances and programs; yields each name."""
        programs = {name for pair in self.size.pairs for name in pair}
        names = [*map(instance, self.size.instances), *sorted(programs)]
        raw = {}
        for found in recorded(self.device, [*self.more, "--features", ",".join(names)]):
            raw[found["name"]] = found["features"]
            yield found["name"]
        bounds = bounds_of([raw[instance(shape)] for shape in self.size.instances])
        for name, vector in raw.items():
            [self.features[name]] = normalised([vector], bounds)

    def chosen(self) -> list[str]:
        """Instances that stand for all."""
        names = [*map(instance, self.size.instances)]
        return [names[at] for at in medoids([self.features[name] for name in names], self.size.nr_medoids)]

    def pairs(self) -> Iterator[Measured]:
        """The paper's programs."""
        yield from self._record(SURFACES, self.size.step, self.size.pairs_words, self.size.pairs)

    def micro(self) -> Iterator[Measured]:
        """Instances of the micro-benchmark."""
        chosen = self.chosen()
        yield from self._record(MICRO, self.size.micro_step, self.size.micro_words, list(product(chosen, chosen)))

    def _record(
        self, name: str, step: int, words: Sequence[str], pairs: Sequence[tuple[str, str]]
    ) -> Iterator[Measured]:
        asked = [*self.more, *words, "--pairs", ",".join(":".join(pair) for pair in pairs)]
        found: list[Measured] = []
        try:
            for measured in recorded(self.device, asked):
                roles = ("best_effort", "critical")
                features = {role: [round(x, 4) for x in self.features[measured[role]]] for role in roles}
                found.append(measured | {"features": features})
                yield found[-1]
        finally:
            self._write(name, step, found)

    def _write(self, name: str, step: int, pairs: Sequence[Measured]) -> None:
        """One pair a line."""
        head = {"device": device_name(self.device), "date": datetime.now(UTC).date().isoformat()}
        nr = pairs[0]["multiprocessors"] if pairs else 0
        text = json.dumps({**head, "multiprocessors": nr, "step": step, "pairs": []})
        lines = ",\n".join(
            json.dumps({key: value for key, value in pair.items() if key != "multiprocessors"}) for pair in pairs
        )
        self.folder.mkdir(parents=True, exist_ok=True)
        with whole(self.folder / name) as file:
            file.write_text(f"{text.removesuffix(']}')}\n{lines}\n]}}\n")
