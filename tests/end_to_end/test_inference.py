"""The inference server of benchmarks/programs: that it computes its network, and the same natively and as a guest. No time is asserted."""

import json
import subprocess
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from benchmarks.build import build
from tests.end_to_end.host import Host

SIZE, CHANNELS, LAYERS, BATCH = 21, 5, 2, 3
SMALL = ("--size", str(SIZE), "--channels", str(CHANNELS), "--layers", str(LAYERS), "--batch", str(BATCH))
NR_CLASSES = 10
DENSE = 0xFFFFFFFF
WAYS = [("--pause-ms", "5", "--random", "3"), ("--rate", "50"), ()]

Floats = npt.NDArray[np.float64]


def report(result: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert result.returncode == 0, result.stderr
    [line] = result.stdout.splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


def numbers(row: int, *shape: int) -> Floats:
    """Those of the program at each place of a row, in double precision."""
    mask = 0xFFFFFFFF
    found = []
    for place in range(int(np.prod(shape))):
        bits = (place * 0x9E3779B9 + row * 0x7F4A7C15 + 1) & mask
        bits = (bits ^ (bits >> 16)) * 0x85EBCA6B & mask
        bits = (bits ^ (bits >> 13)) * 0xC2B2AE35 & mask
        found.append(((bits ^ (bits >> 16)) >> 8) * 2.0**-23 - 1)
    return np.array(found).reshape(shape)


def weights(row: int, nr: int, *shape: int) -> Floats:
    found: Floats = numbers(row, nr, *shape) * np.sqrt(6 / np.prod(shape))
    return found


def expected() -> Floats:
    """What the network says of the first image."""
    values = numbers(0, BATCH, 3, SIZE, SIZE)[0]
    for layer in range(1, LAYERS + 1):
        windows = np.lib.stride_tricks.sliding_window_view(np.pad(values, ((0, 0), (1, 1), (1, 1))), (3, 3), (1, 2))
        kernels = weights(layer, CHANNELS, len(values), 3, 3)
        sums = np.maximum(np.einsum("ocij,crsij->ors", kernels, windows), 0)
        half = sums.shape[1] // 2
        values = sums[:, : 2 * half, : 2 * half].reshape(CHANNELS, half, 2, half, 2).max((2, 4))
    features: Floats = values.ravel()
    found: Floats = weights(DENSE, NR_CLASSES, len(features)) @ features
    return found


def test_it_computes_its_network(host: Host) -> None:
    found = report(host.native(str(build("inference")), *SMALL, "--seconds", "0.1"))
    assert found["answers"] == pytest.approx(list(expected()), rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("way", WAYS)
def test_the_same_natively_and_as_a_guest(host: Host, way: tuple[str, ...]) -> None:
    program, words = build("inference"), (*SMALL, "--seconds", "0.5", *way)
    native, guest = report(host.native(str(program), *words)), report(host.guest(program, *words))
    assert native["digest"] == guest["digest"]
    assert native["answers"] == guest["answers"]
    for found in (native, guest):
        assert found["unit"] == "images/s"
        assert found["seconds"] == pytest.approx(0.5)
        assert found["throughput"] == pytest.approx(BATCH * found["counted_requests"] / 0.5)
        assert {"requests", "request_us", "request_p95_us"} <= set(found)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--rate", "0"), "--rate and --seconds are above 0"),
        (("--pause-ms", "inf"), "--pause-ms is 0 or more"),
        (("--rate", "2", "--pause-ms", "3"), "not both"),
        (("--size", "7", "--layers", "3"), "each of the --layers halves the size"),
        (("--batch", "0"), "up to 4096"),
        (("--speed", "3"), "speed"),
    ],
)
def test_impossible_servers_are_refused(host: Host, words: tuple[str, ...], why: str) -> None:
    result = host.native(str(build("inference")), *words)
    assert result.returncode == 2
    assert why in result.stderr
    assert result.stdout == ""
