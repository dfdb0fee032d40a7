"""A guest that lies: every call with random, cut, overlong and mismatched requests. The worker answers each and outlives all; then the same
against a worker built with AddressSanitizer and UndefinedBehaviorSanitizer."""

import contextlib
import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ivshmem.region import ClientState
from tests.backend_host.worker_guest import (
    CALLS,
    PRIMARY,
    ROOT,
    WIRE_TEXT,
    Guest,
    make_region,
    request_bytes,
    wait_for_state,
    wire,
)
from tests.backend_host.worker_harness import SOFTGPU, Host

NR_ROUNDS = 3000
CAPACITY = 32 << 20
SPAN = 0x3000_0000_0000
MOVE_S = 0.002
HANDLES = [
    0,
    1,
    2,
    PRIMARY,
    PRIMARY + 1,
    *(kind << 56 | 1 << 24 | 1 for kind in range(0x41, 0x50)),
    *(kind << 56 | count for kind in (0xC8, 0xC9) for count in range(1, 6)),
]
NUMBERS = [
    0,
    1,
    2,
    3,
    7,
    8,
    255,
    4095,
    4096,
    32768,
    65535,
    1 << 20,
    1 << 31,
    (1 << 32) - 1,
    1 << 47,
    (1 << 63) - 1,
    (1 << 64) - 1,
]
FATAL_FIELDS = {"grid", "block"}
"""Left small: a launch of 2**93 threads is the guest's right, and its own loss of time."""
ENDLESS = {"cuStreamWaitValue32_v2", "cuStreamWaitValue64_v2"}
"""Left to test_worker_gates.py: a stream that waits for ever is the guest's right, too, and nothing after it ends."""
MAILBOX = "host_mailbox"
"""Left to test_host_functions.py: a function that is posted where an answer is awaited would spoil that."""


def fields_of(call: str) -> list[tuple[str, int, int]]:
    """Name, bytes of an element, and elements of each member."""
    if f"struct fgv_request_{call} {{" not in WIRE_TEXT:
        return []
    found = []
    for name, field in wire.typeof(f"struct fgv_request_{call}").fields:
        is_array = field.type.kind == "array"
        element = field.type.item if is_array else field.type
        if element.cname != "float":
            found.append((name, wire.sizeof(element), field.type.length if is_array else 1))
    return found


class Liar:
    """Makes requests out of a seed."""

    def __init__(self, guest: Guest, seed: int) -> None:
        self.guest = guest
        self.choice = random.Random(seed)
        self.calls = [
            name
            for name in CALLS
            if name not in ENDLESS | {MAILBOX}
            and (f"struct fgv_request_{name} {{" in WIRE_TEXT or name == "cuCtxSynchronize")
        ]
        self.heap = [guest.address, guest.address + guest.parts["arena"], guest.address + guest.allocate(1 << 16)]
        self.device = [guest.ok("cuMemAlloc_v2", bytesize=1 << 16).dptr]

    def number(self, nbytes: int) -> int:
        kind = self.choice.random()
        if kind < 0.4:
            value = self.choice.choice(HANDLES)
        elif kind < 0.6:
            value = self.choice.choice(self.device + self.heap) + self.choice.choice([0, 0, 1, 4096])
        elif kind < 0.9:
            value = self.choice.choice(NUMBERS)
        else:
            value = self.choice.getrandbits(64)
        return value & ((1 << 8 * nbytes) - 1)

    def record(self) -> bytes:
        guest, choice = self.guest, self.choice
        call = choice.choice(self.calls)
        if choice.random() < 0.02:
            return choice.randbytes(choice.randrange(200))
        packed = bytearray(request_bytes(call, {}))
        offset = 0
        for name, nbytes, count in fields_of(call):
            for i in range(count):
                value = choice.randrange(3) if name in FATAL_FIELDS else self.number(nbytes)
                at = offset + i * nbytes
                packed[at : at + nbytes] = value.to_bytes(nbytes, "little")
            offset += nbytes * count
        payload = choice.randbytes(choice.choice([0, 0, 1, 8, 72, 4096, 32768]))
        context = choice.choice([guest.context] * 8 + [0, 77])
        header = CALLS[call].to_bytes(2, "little") + b"\0\0" + (context & 0xFFFFFFFF).to_bytes(4, "little")
        whole = header + bytes(packed) + (payload if choice.random() < 0.5 else b"")
        if choice.random() < 0.1:
            whole = whole[: choice.randrange(len(whole))]
        return whole

    def attack(self, nr_rounds: int) -> None:
        guest, choice = self.guest, self.choice
        pending: list[int] = []
        for _ in range(nr_rounds):
            if choice.random() < 0.3:
                guest.send_raw(self.record(), choice.choice([0xFFFF, 0xFFFF, 16, 1000, 65534]))
                continue
            if len(pending) == guest.NR_RESPONSES - 1:
                guest.finish("cuCtxSynchronize", pending.pop(choice.randrange(len(pending))))
            pending.append(guest.begin_raw(self.record()))
            if choice.random() < 0.01:
                guest.call("context_destroy", handle=PRIMARY)
                guest.call("context_create", context=0, handle=PRIMARY, is_primary=1)
        for slot in pending:
            guest.finish("cuCtxSynchronize", slot)


@contextlib.contextmanager
def moving(host: Host, slot: int, seed: int) -> Iterator[None]:
    """A device that is short: what the worker may have there goes up and down all the time."""
    choice, is_over = random.Random(seed), threading.Event()
    host.control.set_capacity(CAPACITY, 2 * CAPACITY)

    def move() -> None:
        while not is_over.wait(MOVE_S):
            host.control.set_target(slot, choice.choice([0, 2 << 20, 8 << 20, CAPACITY]))
        host.control.set_target(slot, CAPACITY)

    mover = threading.Thread(target=move)
    mover.start()
    try:
        yield
    finally:
        is_over.set()
        mover.join()


def attack(host: Host, seed: int, nr_rounds: int, *, is_short: bool = False) -> None:
    with make_region() as region:
        vgpu = host.control.vgpu_take(64 << 20)
        guest = Guest(region)
        worker = host.start(region, 0, vgpu, memory="span" if is_short else "driver")
        assert wait_for_state(region, 0, {ClientState.READY, ClientState.REFUSED}) is ClientState.READY
        guest.ok("context_create", context=0, handle=PRIMARY, is_primary=1)
        with contextlib.ExitStack() as meanwhile:
            if is_short:
                guest.ok("span_open", address=SPAN, bytes=1 << 34)
                meanwhile.enter_context(moving(host, worker.slot, seed))
            Liar(guest, seed).attack(nr_rounds)
        reading = host.control.worker(worker.slot)
        assert reading is not None
        assert reading.nr_refused > nr_rounds / 100
        guest.call("context_destroy", handle=PRIMARY)
        guest.ok("context_create", context=0, handle=PRIMARY, is_primary=1)
        guest.ok("cuMemAlloc_v2", bytesize=4096)
        guest.close()
        assert worker.ended() == {"ended": "the client closed"}
        after = host.control.vgpu(vgpu)
        assert after is not None
        assert (after.memory_bytes, after.nr_workers, after.nr_waiting) == (0, 0, 0)
        assert host.control.holder().vgpu is None


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_lies_are_answered(host: Host, seed: int) -> None:
    attack(host, seed, NR_ROUNDS)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_lies_are_answered_while_memory_moves(host: Host, seed: int) -> None:
    attack(host, seed, NR_ROUNDS, is_short=True)


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sanitized")
    flags = "-O0 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined"
    command = [sys.executable, "-m", "backend_host.worker.build_ffi", "--to", str(folder)]
    environment = {**os.environ, "CFLAGS": flags, "FAIRGV_DEBUG": "1"}
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
    return next(folder.glob("_worker*.so"))


@pytest.mark.parametrize("is_short", [False, True], ids=["as-ever", "while-memory-moves"])
def test_lies_under_sanitizers(sanitized: Path, is_short: bool) -> None:
    found = subprocess.run(
        ["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    ).stdout.strip()
    environment = {
        "LD_PRELOAD": str(Path(found).resolve()),
        # What it takes for the size of a module's thread-local memory is whatever stands before it: it read through that, and died.
        "ASAN_OPTIONS": "detect_leaks=1:abort_on_error=0:exitcode=99:intercept_tls_get_addr=0",
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": str(ROOT),
    }
    program = str(ROOT / "tests" / "backend_host" / "sanitized_worker.py")
    host = Host(SOFTGPU, environment, start=(program, str(sanitized)), shared=[sanitized.parent])
    try:
        attack(host, 4, NR_ROUNDS, is_short=is_short)
        worker = host.workers[0]
        told = worker.errors()
        assert worker.process.returncode == 0, told
        assert "runtime error" not in told
        assert "54321 byte(s)" in told
        leaks = [block for block in told.split("\n\n") if "leak of" in block and "fgv_" in block]
        assert not leaks, "\n\n".join(leaks)
    finally:
        host.close()
