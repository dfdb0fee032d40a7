"""The servers that `fairgv-bench bursts` measures with: programs that answer one request after the other, with pauses at random between them.

There are three kinds, each with programs whose requests are to take about 36, 64 and 78 ms alone, as those of Gemini's figure 15 do:

* kernels: a row of kernels is a request (benchmarks/programs/spin.cu), each of a given work, so that its length is known beforehand;
* network: a small network of our own (benchmarks/programs/inference.cu), on any device;
* detection: torchvision's models that find objects (benchmarks/frameworks/torch_detection.py), on a GPU.

Of the last two the lengths are measured first, alone as a guest. They are told by the wall clock, so they have what the host does for a
request, too.
"""

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from benchmarks.errors import NotMeasurableError, ProgramFailedError
from benchmarks.guests import Guests, Session
from benchmarks.stretch import run_together
from benchmarks.workloads import Script, Workload, spin

KERNELS, NETWORK, DETECTION = "kernels", "network", "detection"
KINDS = (KERNELS, NETWORK, DETECTION)
PART = 3.5
"""Each program wants one part in so many of the GPU: three of them leave a seventh."""
ALONE_S = 3.0
"""For the length of a request, alone; less where a measurement is shorter."""
NETWORKS: Mapping[str, tuple[str, ...]] = {
    "cuda": ("--size", "224", "--channels", "256"),
    "soft": ("--size", "32", "--channels", "8"),
}
NETWORK_BATCHES: Mapping[str, tuple[int, ...]] = {"cuda": (12, 22, 26), "soft": (4, 7, 9)}
"""An H100 takes 2.95 ms for an image; softgpu has lengths of the same proportions, a few ms."""
DETECTION_MODELS = ("fasterrcnn_resnet50_fpn", "retinanet_resnet50_fpn", "maskrcnn_resnet50_fpn")
DETECTION_SIZE = 320
"""All models scale images to 800 pixels, but masks are as large as the image: for one of 480 pixels an H100's host takes 117 ms."""
DETECTION_BATCHES = (4, 10, 1)
"""36, 62 and 82 ms on an H100, by medians and means of 25 requests, which vary by the host."""
NEEDED = ("torch", "torchvision")


class Server(Protocol):
    """One program."""

    @property
    def label(self) -> str:
        """What tables call it."""

    @property
    def length_ms(self) -> float:
        """Of a request, where its program has the GPU to itself."""

    def workload(self, seed: int) -> Workload:
        """The program, with pauses of `pause_ms` in the mean; the same seed gives the same pauses."""

    def useful_s(self, report: Mapping[str, Any]) -> float:
        """What of a request's length alone a program got done in the time that counts, by its report."""


def pause_ms(server: Server) -> float:
    """From the end of a request to the next, in the mean."""
    return server.length_ms * (PART - 1)


@dataclass(frozen=True)
class Kernels:
    """See `Server`: so many kernels in a row."""

    kernel_ms: float
    nr_kernels: int

    @property
    def label(self) -> str:
        """See `Server`."""
        return f"{self.nr_kernels} kernels of {self.kernel_ms:g} ms"

    @property
    def length_ms(self) -> float:
        """See `Server`."""
        return self.kernel_ms * self.nr_kernels

    def workload(self, seed: int) -> Workload:
        """See `Server`."""
        return spin(1000 * self.kernel_ms, self.nr_kernels, 1000 * pause_ms(self), is_work=True, seed=seed)

    def useful_s(self, report: Mapping[str, Any]) -> float:
        """See `Server`: of kernels, whether their request has ended or not."""
        return float(report["kernels"] * self.kernel_ms / 1000)


@dataclass(frozen=True)
class Model:
    """See `Server`: a network or a model. `alone` is its program without pauses, `seed_option` what that calls the seed."""

    alone: Workload
    seed_option: str
    length_ms: float

    @property
    def label(self) -> str:
        """See `Server`."""
        return self.alone.label

    def workload(self, seed: int) -> Workload:
        """See `Server`."""
        chance = ("--pause-ms", f"{pause_ms(self):.6g}", self.seed_option, str(seed))
        return replace(self.alone, arguments=(*self.alone.arguments, *chance))

    def useful_s(self, report: Mapping[str, Any]) -> float:
        """See `Server`: of whole requests, less and less of those towards the ends of the stretch."""
        return float(report["counted_requests"] * self.length_ms / 1000)


ROWS = (Kernels(6, 6), Kernels(8, 8), Kernels(13, 6))
NR_SERVERS = len(ROWS)
"""Of each kind."""


def check(kind: str, device: str, guests: str, batch: Sequence[int] | None) -> None:
    """NotMeasurableError for what cannot be had here."""
    if kind == KERNELS and batch:
        raise NotMeasurableError(
            f"--batch is of servers that compute on images: choose --servers {NETWORK} or {DETECTION}"
        )
    if batch and len(batch) != NR_SERVERS:
        raise NotMeasurableError(f"--batch is {NR_SERVERS} numbers, one for each server, not {len(batch)}")
    if kind != DETECTION:
        return
    if device != "cuda":
        raise NotMeasurableError(f"softgpu does not run PyTorch: choose --servers {KERNELS} or {NETWORK}, or a GPU")
    if guests != "process":
        raise NotMeasurableError("machines have no Python: detection takes guests that are processes")
    if not (python := shutil.which("python3")):
        raise NotMeasurableError("there is no python3 in PATH, which detection is run by")
    asked = f"import importlib.util, sys; sys.exit(None in map(importlib.util.find_spec, {NEEDED!r}))"
    if subprocess.run([python, "-c", asked], check=False).returncode != 0:
        raise NotMeasurableError(
            f"{python} has no {' and '.join(NEEDED)}: install them, or put a Python that has them first in PATH"
        )


def programs(kind: str, device: str, batch: Sequence[int] | None) -> list[Workload]:
    """One for each server, without pauses where lengths are not known."""
    if kind == KERNELS:
        return [each.workload(0) for each in ROWS]
    if kind == NETWORK:
        return [
            Workload("inference", f"network, {_images(each)}", (*NETWORKS[device], "--batch", str(each)))
            for each in batch or NETWORK_BATCHES[device]
        ]
    return [
        Script(
            "torch_detection",
            f"{model.removesuffix('_fpn')}, {_images(each)}",
            (model, "--size", str(DETECTION_SIZE), "--batch", str(each)),
        )
        for model, each in zip(DETECTION_MODELS, batch or DETECTION_BATCHES, strict=True)
    ]


def servers(kind: str, guests: Guests, found: Sequence[Workload], seconds: float) -> list[Server]:
    """Of the `programs`, each measured alone, for so long at most, where its length is not known. ProgramFailedError."""
    if kind == KERNELS:
        return list(ROWS)
    option = "--random" if kind == NETWORK else "--seed"
    with guests.session(quota="slice") as session:
        return [Model(each, option, _length_ms(session, each, min(seconds, ALONE_S))) for each in found]


def _length_ms(session: Session, alone: Workload, seconds: float) -> float:
    """The mean time of a request."""
    [outcome] = run_together(session, [alone], seconds)
    if outcome.report["requests"] <= 0:
        raise ProgramFailedError(
            f"{alone.label}: no request ended within {seconds:g} s with nobody beside it: a smaller --batch, or more --seconds"
        )
    return round(float(outcome.report["request_us"]) / 1000, 3)


def _images(nr: int) -> str:
    return f"{nr} image{'s' if nr > 1 else ''}"
