"""vGPUs apart: for a while each has a grant of its own, and the daemon hands over among them (apart.h).

All workers write the grant that they share, so nobody can tell who wrote into it what no honest worker writes. When somebody has, the daemon
puts them apart. From then on that one hurts nobody: it is alone in its grant with the daemon. If it goes on there it is known for sure, and its
workers are ended. If it waits until they share the grant again, they are apart again two looks later, for twice as long.

Nobody is blamed for what made them go apart, so a wrong alarm costs a hand-over 0.1 ms for a second.

Wrong when: this thread is kept off the processor. Nobody is handed the GPU meanwhile.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence

from backend_host.device.control import MAX_VGPUS, ControlPage
from backend_host.looking import Looking
from backend_host.worker._worker import ffi, lib

FIRST_NS = 1_000_000_000
"""They share the grant for two looks of the auditor, 40 ms, before it is written into again: 4 % of that."""
MOST_NS = 60_000_000_000
"""0.1 % from then on."""
QUIET_NS = 50_000_000
"""Neighbours wait no longer for one that does not give up its turn: as long as two looks of the auditor take."""
_PEACE = 10
"""After so many times the last span without an alarm the next span is the first one again."""
_SERVE_NS = 50_000_000
"""How late this thread hears that it is to stop."""
_AGAIN_S = 0.01
"""After a look that failed: nobody hands over meanwhile."""
WHY = "it wrote into its grant what no worker writes, where nobody else can write"

log = logging.getLogger("fairgv.apart")


class Apart(Looking):
    """One thread over one control page. `end` is called with a vGPU's number and why its workers are to be ended."""

    def __init__(
        self,
        page: ControlPage,
        end: Callable[[int, str], None],
        *,
        first_ns: int = FIRST_NS,
        most_ns: int = MOST_NS,
        quiet_ns: int = QUIET_NS,
    ) -> None:
        super().__init__("apart")
        self._page = page
        self._end = end
        self._blamed: dict[int, int] = {}
        """vGPUs, with their generations."""
        self._apart = ffi.gc(lib.fgw_apart_new(page.page, quiet_ns), lib.fgw_apart_free)
        if self._apart == ffi.NULL:
            raise MemoryError("no memory for grants apart")
        self._unused = ffi.new(f"uint32_t[{MAX_VGPUS}]")
        self._first_ns, self._most_ns = first_ns, most_ns
        self._span_ns = 0
        self._until_ns = 0
        self.nr_times = 0
        """How often they went apart."""
        self._is_begun = False
        self._is_alarmed = threading.Event()

    def stop(self) -> None:
        """Ends the thread; all share the grant again."""
        self._is_stopping.set()
        self._is_alarmed.set()
        super().stop()

    def alarm(self, why: str, nr_unused: Sequence[int]) -> None:
        """Somebody wrote what no worker writes; `nr_unused` is how many grants each vGPU did not use, as far as that is believed."""
        if self._is_alarmed.is_set():
            return
        now_ns = time.monotonic_ns()
        is_again = now_ns < self._until_ns + _PEACE * self._span_ns
        self._span_ns = min(2 * self._span_ns, self._most_ns) if is_again else self._first_ns
        self._until_ns = now_ns + self._span_ns
        self._unused[0:MAX_VGPUS] = list(nr_unused)
        log.warning("a worker wrote into the grant: %s. vGPUs are apart for %.0f s", why, self._span_ns / 1e9)
        self._is_alarmed.set()

    def _run(self) -> None:
        while not self._is_stopping.is_set():
            self._is_alarmed.wait()
            while (goes_on := self._tried(self._look_on, log, "handing over among vGPUs apart failed")) is not False:
                if goes_on is None:
                    self._is_stopping.wait(_AGAIN_S)

    def _look_on(self) -> bool:
        return self.look(time.monotonic_ns() + _SERVE_NS)

    def look(self, until_ns: int) -> bool:
        """What the thread does again and again once there is an alarm: hands over until then. False: all share the grant again."""
        if not self._is_alarmed.is_set() or self._is_stopping.is_set():
            self._share()
            return False
        if not self._is_begun:
            self._is_begun = True
            self.nr_times += 1
            lib.fgw_apart_begin(self._apart, self._unused)
        self._blame(lib.fgw_apart_serve(self._apart, min(until_ns, self._until_ns)))
        if time.monotonic_ns() < self._until_ns:
            return True
        self._share()
        return False

    def _share(self) -> None:
        if self._is_begun:
            self._is_begun = False
            lib.fgw_apart_end(self._apart)
            self._is_alarmed.clear()

    def _blame(self, liars: int) -> None:
        """Each once: it goes on until it is ended."""
        seen = self._page.audit() if liars else None
        for vgpu in range(MAX_VGPUS):
            claim = seen.claim(vgpu) if seen is not None and liars >> vgpu & 1 else None
            if claim is not None and self._blamed.get(vgpu) != claim.generation:
                self._end(vgpu, WHY)
                self._blamed[vgpu] = claim.generation
