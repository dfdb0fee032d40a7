"""A process that plays a worker in the tests of grants: it enters, looks whether a worker of another vGPU is inside, and leaves.

Arguments: board fd, vGPU, slot, rounds, seed, descriptors of the page. The board holds a byte per slot, 1 + vGPU while inside, then a
counter of rounds per slot (4 bytes), then one of violations and one of lost wake-ups (4 bytes each). As a worker does, it says in which phase
it is.
"""

import mmap
import random
import sys
import time

from backend_host.worker._worker import ffi, lib

from backend_host.device.control import MAX_WORKERS, ControlPage

ROUNDS = MAX_WORKERS
VIOLATIONS = ROUNDS + 4 * MAX_WORKERS
LOST = VIOLATIONS + 4
BOARD_BYTES = 4096
OUT, WAITING, READY = range(3)
"""Phases."""
PATIENCE_NS = 20_000_000_000


def add(board: mmap.mmap, offset: int) -> None:
    value = int.from_bytes(board[offset : offset + 4], "little") + 1
    board[offset : offset + 4] = value.to_bytes(4, "little")


def enter(grantee: ffi.CData, board: mmap.mmap) -> None:
    while True:
        lib.fgw_grant_follow(grantee)
        bell = lib.fgw_grant_bell(grantee)
        if lib.fgw_grant_enter(grantee, lib.fgw_clock_ns()):
            lib.fgw_grant_show_phase(grantee, READY)
            return
        lib.fgw_grant_show_phase(grantee, WAITING)
        before_ns = lib.fgw_clock_ns()
        lib.fgw_grant_sleep(grantee, bell, ffi.NULL, PATIENCE_NS)
        if lib.fgw_clock_ns() - before_ns >= PATIENCE_NS:
            add(board, LOST)


def main() -> None:
    board_fd, vgpu, slot, nr_rounds, seed, *page = map(int, sys.argv[1:])
    control = ControlPage.open(page, vgpu)
    board = mmap.mmap(board_fd, BOARD_BYTES)
    choice = random.Random(seed)
    grantee = ffi.new("struct fgw_grantee *")
    while not lib.fgw_grantee_attach(grantee, control.page, vgpu, slot):  # until it is assigned
        time.sleep(0)
    for _ in range(nr_rounds):
        enter(grantee, board)
        begun_ns = lib.fgw_clock_ns()
        board[slot] = 1 + vgpu
        for _ in range(choice.randrange(4)):
            if any(byte not in (0, 1 + vgpu) for byte in board[:MAX_WORKERS]):
                add(board, VIOLATIONS)
            if choice.random() < 0.2:
                time.sleep(0)
        board[slot] = 0
        lib.fgw_grant_charge(grantee, begun_ns, lib.fgw_clock_ns())
        if choice.random() < 0.5:
            lib.fgw_grant_close(grantee)
        wants_more = choice.random() < 0.5
        lib.fgw_grant_leave(grantee, wants_more, lib.fgw_clock_ns())
        lib.fgw_grant_show_phase(grantee, WAITING if wants_more else OUT)
        add(board, ROUNDS + 4 * slot)
    lib.fgw_grantee_detach(grantee)


main()
