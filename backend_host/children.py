"""Processes that open a device library, which may hang in its driver where no signal ends them: nobody waits for one longer than he said.

One that was killed and does not end is left behind: it holds no lock and no pipe of ours, and ends once its driver lets it.
"""

import contextlib
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

END_S = 1.0
"""For the end of a process that was killed."""


def run_within(
    limit_s: float, command: Sequence[str | Path], said: str = "", **options: Any
) -> subprocess.CompletedProcess[str]:
    """Runs it to its end, with `said` on its standard input, and gives what it said. `options`: of subprocess.Popen. Raises TimeoutExpired
    after `limit_s`, and OSError or SubprocessError where it cannot be started."""
    child = subprocess.Popen(
        command,
        stdin=subprocess.PIPE if said else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        **options,
    )
    try:
        output, errors = child.communicate(said or None, timeout=limit_s)
    except BaseException:
        end(child)
        raise
    return subprocess.CompletedProcess(command, child.returncode, output, errors)


def end(child: subprocess.Popen[Any], within_s: float = END_S) -> None:
    """Kills it, closes its pipes, and waits for it, `within_s` at most."""
    child.kill()
    for pipe in (child.stdin, child.stdout, child.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError):  # what it did not read
                pipe.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(within_s)
