"""What being watched costs the daemon: CPU of all of it with 100 vGPUs, while nobody looks, while its metrics are scraped each second, while
its page is open, and while it is both.

    .venv/bin/python -m tests.backend_host.watching

Real vGPUs on two devices of softgpu, in this process, with every thread that looks at them in a daemon. Their programs are readings of workers
that are served, and stand still: what calls of programs that run cost the daemon is not in it. Whoever reads has its CPU subtracted.
"""

import contextlib
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from backend_host.address import Address
from backend_host.guest_teller import GuestTeller
from backend_host.metrics.server import MetricsServer
from backend_host.metrics.text import exposition
from backend_host.vgpus import VGpuRegistry
from backend_host.watchdog import Watchdog
from backend_host.web.serving import Looker
from backend_host.web.telling import Teller
from tests.backend_host.metrics import scraping
from tests.backend_host.metrics.cost import NR_VGPUS, crowd, run_programs, statistics
from tests.backend_host.web.cost import reading
from tests.backend_host.web.serving import served

SECONDS = 20
WATCHDOG_NS = 10_000_000_000


def main() -> None:
    with crowd() as registry, daemon(registry):
        for nr_programs in (0, 1, 2):
            for vgpu in registry._vgpus.values():
                run_programs(vgpu, nr_programs)
            print(f"{NR_VGPUS} vGPUs with {nr_programs} programs each, % of a core:", end="")
            for is_scraped, is_open in ((False, False), (True, False), (False, True), (True, True)):
                words = ["scraped"] * is_scraped + ["the page open"] * is_open
                print(
                    f" {' and '.join(words) or 'idle'} {percent(registry, is_scraped, is_open):.2f}",
                    end=";",
                    flush=True,
                )
            print()


@contextlib.contextmanager
def daemon(registry: VGpuRegistry) -> Iterator[None]:
    """What looks at all vGPUs in a daemon beside what a Gpu brings."""
    with contextlib.ExitStack() as stack:
        watchdogs = [Watchdog(gpu.page, WATCHDOG_NS, lambda *_: None) for gpu in registry._gpus]
        for looking in (GuestTeller(registry.tell_guests), *watchdogs):
            looking.start()
            stack.callback(looking.stop)
        yield


def percent(registry: VGpuRegistry, is_scraped: bool, is_open: bool) -> float:
    with contextlib.ExitStack() as stack:
        if is_scraped:
            stack.enter_context(scraped(registry))
        if is_open:
            stack.enter_context(opened(registry))
        before = spent()
        time.sleep(SECONDS)
        return 100 * (spent() - before) / SECONDS


def spent() -> float:
    """CPU of this process but for its readers'."""
    clocks = [
        time.pthread_getcpuclockid(thread.ident or 0) for thread in threading.enumerate() if thread.name == "reader"
    ]
    return time.process_time() - sum(map(time.clock_gettime, clocks))


@contextlib.contextmanager
def scraped(registry: VGpuRegistry) -> Iterator[None]:
    """Each second."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "metrics.sock"
        server = MetricsServer(Address(path=path), lambda: exposition(statistics(registry), "0"))
        server.start()
        is_over = threading.Event()

        def scrape() -> None:
            while not is_over.wait(1):
                scraping.ask(path)

        reader = threading.Thread(target=scrape, name="reader")
        reader.start()
        try:
            yield
        finally:
            is_over.set()
            reader.join()
            server.stop()


@contextlib.contextmanager
def opened(registry: VGpuRegistry) -> Iterator[None]:
    """By one."""
    teller = Teller(lambda: statistics(registry), registry.glance, {})
    with served(teller) as host:
        looker = Looker(teller, host.server)
        looker.start()
        try:
            with reading(host):
                yield
        finally:
            looker.stop()


if __name__ == "__main__":
    main()
