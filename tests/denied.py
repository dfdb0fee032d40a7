"""A program to which the kernel denies a system call: `python -m tests.denied fork|seccomp COMMAND...`.

fork: new processes that get a copy of memory; those for a command at once (vfork) may be made. seccomp: filters beyond this one.
"""

import ctypes
import os
import struct
import sys

_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 22, 38
_PRCTL, _CLONE, _FORK, _SECCOMP, _CLONE3 = 157, 56, 57, 317, 435
_CLONE_VM = 0x100
_LOAD_NUMBER, _LOAD_FIRST = (0x20, 0, 0, 0), (0x20, 0, 0, 16)
_ALLOW, _EPERM, _ENOSYS = (0x06, 0, 0, 0x7FFF0000), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x00050026)


def _unless(value: int, skipped: int) -> tuple[int, int, int, int]:
    return (0x15, 0, skipped, value)


PROGRAMS = {
    "fork": [
        _LOAD_NUMBER,
        _unless(_FORK, 1),
        _EPERM,
        _unless(_CLONE3, 1),
        _ENOSYS,  # libc then uses clone, whose flags a filter sees
        _unless(_CLONE, 3),
        _LOAD_FIRST,
        (0x45, 1, 0, _CLONE_VM),
        _EPERM,
        _ALLOW,
    ],
    "seccomp": [
        _LOAD_NUMBER,
        _unless(_SECCOMP, 1),
        _EPERM,
        _unless(_PRCTL, 3),
        _LOAD_FIRST,
        _unless(_PR_SET_SECCOMP, 1),
        _EPERM,
        _ALLOW,
    ],
}


def deny(what: str) -> None:
    """For this process and all that it starts."""
    program = b"".join(struct.pack("<HBBI", *statement) for statement in PROGRAMS[what])
    code = ctypes.create_string_buffer(program, len(program))
    filter_of = struct.pack("<HxxxxxxQ", len(program) // 8, ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    for option, first, second in ((_PR_SET_NO_NEW_PRIVS, 1, 0), (_PR_SET_SECCOMP, 2, filter_of)):
        if libc.prctl(option, first, second, 0, 0):
            raise OSError(ctypes.get_errno(), f"prctl {option}")


if __name__ == "__main__":
    deny(sys.argv[1])
    os.execvp(sys.argv[2], sys.argv[2:])
