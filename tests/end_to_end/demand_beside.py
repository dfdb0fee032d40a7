"""`python -m tests.end_to_end.demand_beside [SECONDS]`: the demand of programs alone, beside one that never pauses, and beside two that do.

It asks whether the daemon's figure is what the program would use alone, whoever is beside it. Prints a table for
docs/lab/demand.md. It is no test: figures depend on who else uses the machine.
"""

import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.build import build
from tests.end_to_end.host import Host, start_host, stop_host, wait_until

NR_FIRST = 100
"""Launches until a program has got going: softgpu compiles its kernels, and again with more care."""
FOR_EVER = ("--seconds", "100000")
PROGRAMS: dict[str, tuple[str, ...]] = {
    "spin 5 ms, sleep 5 ms": ("spin", "--kernel-us", "5000", "--sleep-us", "5000"),
    "spin 1 ms, sleep 9 ms": ("spin", "--kernel-us", "1000", "--sleep-us", "9000"),
    "spin 10 x 1 ms, sleep 30 ms": ("spin", "--kernel-us", "1000", "--queue", "10", "--sleep-us", "30000"),
    "spin 1 ms, no sleep": ("spin", "--kernel-us", "1000"),
    "spin 2 ms, random sleeps of 6 ms": ("spin", "--kernel-us", "2000", "--sleep-us", "6000", "--random", "1"),
    "inference, pauses of 20 ms": ("inference", "--size", "32", "--pause-ms", "20"),
}
BUSY = ("spin", "--kernel-us", "3000", "--queue", "4")
MODEST = ("spin", "--kernel-us", "4000", "--sleep-us", "12000")


def command(program: Sequence[str]) -> list[str]:
    return [str(build(program[0])), *program[1:], *FOR_EVER]


@contextmanager
def running(host: Host, programs: dict[str, Sequence[str]]) -> Iterator[None]:
    children = []
    for name, program in programs.items():
        path, *arguments = command(program)
        children.append(host.start(path, *arguments, options=("--vgpu", name)))
    try:
        yield
    finally:
        for child in children:
            child.terminate()
            child.communicate()
        wait_until(lambda: not host.status()["vgpus"], "all have ended")


def demand_of(
    host: Host, program: Sequence[str], others: Sequence[Sequence[str]], seconds: float
) -> tuple[float, float]:
    """What it would use alone by its counters, as device/demand.py has it, and what it used; of a stretch after its start, which is no part of
    a minute's mean as long as it lasts."""
    names = {"watched": program, **{f"other-{number}": other for number, other in enumerate(others)}}
    with running(host, names):
        wait_until(lambda: all(nr_launches(vgpu) > NR_FIRST for vgpu in host.status()["vgpus"]), "all run")
        before = counters(host)
        time.sleep(seconds)
        now = counters(host)
    passed, gpu, busy, waited = (new - old for new, old in zip(now, before, strict=True))
    return gpu / (gpu + max(0, passed - busy - waited)), gpu / passed


def nr_launches(vgpu: dict[str, Any]) -> int:
    return sum(client["nr_launches"] for client in vgpu["clients"])


def counters(host: Host) -> tuple[int, int, int, int]:
    """The time, and of the program that is watched its use of the device, its work there, and its waits, in ns."""
    status = host.status()
    [client] = [client for vgpu in status["vgpus"] if vgpu["name"] == "watched" for client in vgpu["clients"]]
    return status["uptime_ns"], client["gpu_ns"], client["busy_ns"], client["wait_ns"]


def main(seconds: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        host = start_host(Path(folder))
        try:
            print("| program | alone | beside a busy one | share there | beside two that pause | share there |")
            print("|---|---|---|---|---|---|")
            for name, program in PROGRAMS.items():
                alone, _ = demand_of(host, program, [], seconds)
                busy, busy_share = demand_of(host, program, [BUSY], seconds)
                modest, modest_share = demand_of(host, program, [MODEST, MODEST], seconds)
                figures = (alone, busy, busy_share, modest, modest_share)
                print(f"| {name} | {' | '.join(f'{figure:.1%}' for figure in figures)} |", flush=True)
        finally:
            stop_host(host)


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 20.0)
