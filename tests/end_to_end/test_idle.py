"""Guests that do nothing cost next to nothing: how often anything of theirs wakes up is counted."""

import contextlib
import subprocess
import sys
import time
from pathlib import Path

from tests.end_to_end.host import Host

WINDOW_S = 3.0
NR_GUESTS = 3
MOST_WAKES_PER_S = 150
"""Of the guests, their workers and the daemon. A wake-up with its look around takes some 20 us: that many are 0.3 % of a core."""

IDLE = """
import ctypes, os, sys
cuda, context, pointer = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), 4096) == 0
assert cuda.cuMemsetD8_v2(pointer, 7, 4096) == 0
assert cuda.cuCtxSynchronize() == 0
print(os.getpid(), flush=True)
sys.stdin.read()
"""


def nr_wakes(pid: int) -> int:
    """How often threads of a process have gone to sleep, which is how often they woke. Who loses its core to others has not."""
    switches = 0
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread that has just ended
            lines = status.read_text().splitlines()
            switches += sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))
    return switches


def test_three_idle_guests_hardly_wake_up(host: Host) -> None:
    with contextlib.ExitStack() as stack:
        pids = [int(host.status()["pid"])]
        for number in range(NR_GUESTS):
            command = [sys.executable, "-m", "backend_host.run", "--state-dir", str(host.state_dir)]
            command += ["--vgpu", f"idle-{number}", "--", sys.executable, "-c", IDLE]
            child = stack.enter_context(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            stack.callback(child.kill)
            assert child.stdout is not None
            pids.append(int(child.stdout.readline()))
        clients = [client for vgpu in host.status()["vgpus"] for client in vgpu["clients"]]
        pids += [int(client["worker_pid"]) for client in clients]
        assert len(pids) == 1 + 2 * NR_GUESTS
        before = {pid: nr_wakes(pid) for pid in pids}
        time.sleep(WINDOW_S)
        grown = {pid: nr_wakes(pid) - before[pid] for pid in pids}
        assert all(before.values())
        assert sum(grown.values()) <= MOST_WAKES_PER_S * WINDOW_S, grown
