"""What a scrape costs the daemon: CPU of 100 vGPUs' metrics, with programs that run and without.

    .venv/bin/python -m tests.backend_host.metrics.cost

Real vGPUs on two devices of softgpu, in this process; programs are readings of workers that are served, as a daemon has them.
"""

import contextlib
import os
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

from backend_host.worker._worker import ffi, lib

from backend_host.config import load_config
from backend_host.device.gpu import serving
from backend_host.device.readings import WorkerState
from backend_host.devices import choose
from backend_host.entitlement import PLAIN
from backend_host.generate import FIRST_OFFSET
from backend_host.history import APART_NS
from backend_host.metrics.text import exposition
from backend_host.statistics import DaemonStatistics
from backend_host.vgpu import VGpu
from backend_host.vgpus import VGpuRegistry
from backend_host.worker_process import Slot, WorkerProcess
from tests.backend_host.grantees import attach
from tests.end_to_end.host import WALLS

NR_VGPUS = 100
NR_SCRAPES = 50
REGION_BYTES = 256 << 20
NR_COUNTERS = ffi.sizeof("struct fgw_counters") // 8
HEAP_AGE_NS = 15_000_000_000
MINUTE_NS = 60_000_000_000


def statistics(registry: VGpuRegistry) -> DaemonStatistics:
    """As the daemon's."""
    gpus, vgpus = registry.snapshot(HEAP_AGE_NS)
    return DaemonStatistics(os.getpid(), 0, gpus[0].policy, 0, gpus[0], gpus, vgpus)


def scrape(registry: VGpuRegistry) -> int:
    """How many bytes were told."""
    return len(exposition(statistics(registry), "0"))


def run_programs(vgpu: VGpu, nr: int) -> None:
    """From now on its caretaker tells of so many workers, that have counted something of everything."""
    workers = vgpu.caretaker.workers()
    for _ in range(nr - len(workers)):
        slot, grantee = attach(vgpu.gpu.page, vgpu.index)
        ffi.cast("uint32_t *", grantee.slot)[0] = WorkerState.SERVING
        counters = ffi.cast("char *", grantee.slot) + FIRST_OFFSET
        ffi.memmove(counters, ffi.new("uint64_t[]", [1] * NR_COUNTERS), 8 * NR_COUNTERS)
        worker = WorkerProcess(Slot(vgpu.gpu.page, slot), SimpleNamespace(kill=lambda: None), socket.socket())  # type: ignore[arg-type]
        worker.is_ended.set()
        workers.append(worker)
    vgpu.caretaker.workers = lambda: workers  # type: ignore[method-assign]


def grow_old(vgpu: VGpu) -> None:
    """Of a minute there is all that is kept."""
    history, now_ns = vgpu.gpu.keeper._history, time.monotonic_ns()
    history.begin(vgpu.index, now_ns - 2 * MINUTE_NS)
    for moment_ns in range(now_ns - MINUTE_NS, now_ns, APART_NS):
        history.note(moment_ns, {vgpu.index: 0})


def measured_ms(registry: VGpuRegistry) -> float:
    times = []
    for _ in range(NR_SCRAPES):
        before = time.thread_time()
        scrape(registry)
        times.append((time.thread_time() - before) * 1e3)
    return sorted(times)[NR_SCRAPES // 2]


@contextlib.contextmanager
def crowd() -> Iterator[VGpuRegistry]:
    """`NR_VGPUS` that have been there for a while."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        os.environ |= {"FAIRGV_SOFTGPU_STATE": f"{folder}/device", "FAIRGV_SOFTGPU_DEVICES": "2"}
        config = load_config(None, state_dir=Path(folder), device="soft", nr_warm_workers=0, walls=WALLS)
        devices, _ = choose(config)
        gpus = [
            stack.enter_context(serving(number, device, config, frozenset(), None))
            for number, device in enumerate(devices)
        ]
        registry = VGpuRegistry(gpus, lib.fgw_table_hash(), config.limits)
        stack.callback(registry.remove_all)
        for number in range(NR_VGPUS):
            grow_old(registry.open_session(f"vgpu-{number}", PLAIN, REGION_BYTES, os.getuid()))
        yield registry


def main() -> None:
    with crowd() as registry:
        for nr_programs in (0, 1, 2):
            for vgpu in registry._vgpus.values():
                run_programs(vgpu, nr_programs)
            print(
                f"{NR_VGPUS} vGPUs with {nr_programs} programs each: {scrape(registry)} bytes, "
                f"{measured_ms(registry):.2f} ms of CPU a scrape"
            )


if __name__ == "__main__":
    main()
