"""Runs cases of one conformance program and prints as JSON what each printed: python -m tests.conformance.launch PROGRAM NAME...

The cases that allow it share a process; when it ends early, the rest go on in another. The others have a process each, and with
`--apart N` all have, N at a time: NVIDIA's driver follows handles that are none, and what that breaks must not be seen by the next case.
Started once natively and once as a guest: all processes are then clients of one region, and the daemon is asked for a region once.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TIMEOUT_S = 60
"""Of one process."""


ENVIRONMENT = {"CUDA_MODULE_LOADING": "EAGER"}
"""A kernel that is loaded when it is first launched may wait for one that runs until it is let go."""


def kinds(program: Path) -> dict[str, str]:
    """The program's cases and how each is run: CASE, ALONE or BARE."""
    lines = subprocess.run([program, "--list"], capture_output=True, text=True, check=True).stdout.splitlines()
    return {name: kind for kind, name in (line.split() for line in lines)}


CRASHES = ": crashes"
"""What a line says of a call that ended its process."""


def _run(program: Path, names: Sequence[str], skipped: Sequence[str] = ()) -> tuple[str, str]:
    """What the process printed and how it ended; it leaves out the calls that these labels name."""
    try:
        result = subprocess.run(
            [program, *names],
            env={**os.environ, **ENVIRONMENT, "CONFORMANCE_SKIP": "\n".join(skipped)},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as expired:
        output = expired.stdout if isinstance(expired.stdout, bytes) else b""
        return output.decode(errors="replace"), "timed out"
    sys.stderr.write(result.stderr)
    return result.stdout, f"exit status {result.returncode}"


def _run_together(program: Path, names: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    remaining = list(names)
    while remaining:
        output, end = _run(program, remaining)
        finished = re.findall(r"^== (\w+)\n(.*?)^-- \1$", output, re.MULTILINE | re.DOTALL)
        for name, printed in finished:
            yield name, printed.splitlines()
        remaining = remaining[len(finished) :]
        if remaining:  # it broke the process
            yield remaining.pop(0), [*output.rpartition("\n== ")[2].splitlines()[1:], end]


def run_alone(program: Path, name: str) -> list[str]:
    """The lines of one case, which goes on without a call that crashed the process."""
    skipped: list[str] = []
    while True:
        output, end = _run(program, [name], skipped)
        lines = [line for line in output.splitlines() if line[:3] not in ("== ", "-- ")]
        crashed = lines[-1].removesuffix(CRASHES) if lines and lines[-1].endswith(CRASHES) else ""
        if not crashed or crashed in skipped or end == "exit status 0":
            return [*lines, end]
        skipped.append(crashed)


def run_cases(program: Path, names: Sequence[str], nr_apart: int = 0) -> dict[str, list[str]]:
    """The lines that each case printed; an "exit status" or "timed out" last where it ran alone or broke its process.

    `nr_apart`: so many processes at a time, with one case each; 0: one process at a time, shared by the cases that allow it.
    """
    kind_of = kinds(program)
    together = [name for name in names if not nr_apart and kind_of[name] == "CASE"]
    printed = dict(_run_together(program, together))
    alone = [name for name in names if name not in printed]
    with ThreadPoolExecutor(nr_apart or 1) as pool:
        printed.update(zip(alone, pool.map(lambda name: run_alone(program, name), alone), strict=True))
    return printed


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.launch", description=__doc__)
    parser.add_argument("--apart", type=int, default=0, metavar="N", help="a process for each case, N at a time")
    parser.add_argument("program", type=Path)
    parser.add_argument("cases", nargs="+")
    arguments = parser.parse_args()
    json.dump(run_cases(arguments.program, arguments.cases, arguments.apart), sys.stdout)


if __name__ == "__main__":
    main()
