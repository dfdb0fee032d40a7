"""Runs cases of one conformance program and prints as JSON what each printed: python -m tests.conformance.launch PROGRAM NAME...

The cases that allow it share a process; when it ends early, the rest go on in another. The others have a process each. Started once
natively and once as a guest: all processes are then clients of one region, and the daemon is asked for a region once.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

TIMEOUT_S = 60
"""Of one process."""


ENVIRONMENT = {"CUDA_MODULE_LOADING": "EAGER"}
"""A kernel that is loaded when it is first launched may wait for one that runs until it is let go."""


def kinds(program: Path) -> dict[str, str]:
    """The program's cases and how each is run: CASE, ALONE or BARE."""
    lines = subprocess.run([program, "--list"], capture_output=True, text=True, check=True).stdout.splitlines()
    return {name: kind for kind, name in (line.split() for line in lines)}


def _run(program: Path, names: Sequence[str]) -> tuple[str, str]:
    """What the process printed and how it ended."""
    try:
        result = subprocess.run(
            [program, *names],
            env={**os.environ, **ENVIRONMENT},
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


def run_cases(program: Path, names: Sequence[str]) -> dict[str, list[str]]:
    """The lines that each case printed; an "exit status" or "timed out" last where it ran alone or broke its process."""
    kind_of = kinds(program)
    printed = dict(_run_together(program, [name for name in names if kind_of[name] == "CASE"]))
    for name in names:
        if kind_of[name] != "CASE":
            output, end = _run(program, [name])
            printed[name] = [*(line for line in output.splitlines() if line[:3] not in ("== ", "-- ")), end]
    return printed


if __name__ == "__main__":
    json.dump(run_cases(Path(sys.argv[1]), sys.argv[2:]), sys.stdout)
