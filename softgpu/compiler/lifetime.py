"""
How long processes of the compiler live: a fork no longer than the process that made it, and one that stays behind no longer than the program,
where the program asks for that by a pipe as standard input, of which it keeps the other end for its life.

The kernel sees to both, so that nothing outlives a process that is killed.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import stat

_PR_SET_PDEATHSIG = 1


def end_with(parent: int) -> None:
    """Has this process killed when `parent`, which has just forked it, ends. Wrong when that has threads: the one that forked counts."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def has_input_of_program() -> bool:
    """Whether the standard input is such a pipe."""
    return stat.S_ISFIFO(os.fstat(0).st_mode)


def end_with_input() -> None:
    """Goes on in a fork that is killed when the standard input closes; this process does nothing but wait for either's end."""
    at_work, working = os.pipe()
    parent = os.getpid()
    if os.fork() == 0:
        end_with(parent)
        os.close(at_work)
        return
    os.close(working)
    ends = select.poll()
    for descriptor in (0, at_work):
        ends.register(descriptor, 0)  # that the other side is closed is always told
    ends.poll()
    os._exit(0)
