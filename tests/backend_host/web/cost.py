"""What the page costs the daemon: CPU of its two threads with 100 vGPUs, while nobody looks, one does, and five do.

    .venv/bin/python -m tests.backend_host.web.cost

Real vGPUs on two devices of softgpu, in this process, as for the cost of a scrape; looks are a second apart, as they are in a daemon.
"""

import contextlib
import http.client
import threading
import time
from collections.abc import Iterator

from backend_host.vgpus import VGpuRegistry
from backend_host.web.history import NR_POINTS
from backend_host.web.serving import Looker
from backend_host.web.telling import Teller, encoded
from tests.backend_host.metrics.cost import NR_VGPUS, crowd, run_programs, statistics
from tests.backend_host.web.serving import Served, served

SECONDS = 30


def main() -> None:
    with crowd() as registry:
        for nr_programs in (0, 1, 2):
            for vgpu in registry._vgpus.values():
                run_programs(vgpu, nr_programs)
            for nr_readers in (0, 1, 5):
                print(
                    f"{NR_VGPUS} vGPUs with {nr_programs} programs each, {nr_readers} readers: "
                    f"{percent(registry, nr_readers):.2f} % of a core"
                )
        print(f"the whole hour: {document(registry)}")


def percent(registry: VGpuRegistry, nr_readers: int) -> float:
    teller = Teller(lambda: statistics(registry), registry.glance, {})
    with served(teller) as host, contextlib.ExitStack() as stack:
        looker = Looker(teller, host.server)
        looker.start()
        stack.callback(looker.stop)
        for _ in range(nr_readers):
            stack.enter_context(reading(host))
        clocks = [time.pthread_getcpuclockid(thread.ident or 0) for thread in threads()]
        before = sum(map(time.clock_gettime, clocks))
        time.sleep(SECONDS)
        return 100 * (sum(map(time.clock_gettime, clocks)) - before) / SECONDS


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name in ("web", "web-looks")]


@contextlib.contextmanager
def reading(host: Served) -> Iterator[None]:
    """Somebody who reads events, on a thread whose cost is not the daemon's."""
    stream = host.events()
    reader = threading.Thread(target=read, args=(stream,), name="reader", daemon=True)
    reader.start()
    yield


def read(stream: http.client.HTTPResponse) -> None:
    with contextlib.suppress(OSError, http.client.HTTPException):
        while stream.read1(65536):
            pass


def document(registry: VGpuRegistry) -> str:
    teller = Teller(lambda: statistics(registry), registry.glance, {})
    for _ in range(NR_POINTS):
        teller.point()
    before = time.thread_time()
    nr_bytes = len(encoded(teller.document()))
    return f"{nr_bytes / 1e6:.1f} MB, {(time.thread_time() - before) * 1e3:.1f} ms of CPU to tell"


if __name__ == "__main__":
    main()
