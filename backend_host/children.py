"""Children of ours: those that nobody waits for longer than he said, and those that end with us.

Processes that open a device library may hang in its driver where no signal ends them. One that was killed and does not end is left behind: it
holds no lock and no pipe of ours, and ends once its driver lets it.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

END_S = 1.0
"""For the end of a process that was killed."""
_PR_SET_PDEATHSIG = 1


def ending_with_us() -> Callable[[], None]:
    """What a child does before it executes its program (`preexec_fn`): the kernel then kills it when we end, however that comes about. It takes
    the signals that we take now: whoever starts it blocks those whose handlers raise, as Python passes over what they raise while it forks.

    For children of a thread that outlives them: the kernel takes the death of the thread that forked for that of the parent. Wrong when the
    program is set-user-ID or changes its user (sudo), which makes the kernel forget this.
    """
    parent, prctl = os.getpid(), ctypes.CDLL(None).prctl
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())

    def prepare() -> None:
        prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
        if os.getppid() != parent:  # it ended before the request, and is no more the parent after it
            os.kill(os.getpid(), signal.SIGKILL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    return prepare


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
