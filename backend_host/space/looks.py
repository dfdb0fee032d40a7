"""What is looked at of spaces. Ten times a second: who may go before others, and whose context is dead. As often, and a hundred times a second
while one is searched for, on a thread of its own: which split is asked for.

A split that is over the target is known by two rounds, and costs all until the next look. Where rounds take a millisecond, that is ten at a
hundred looks a second, and a hundred at ten.
"""

import logging
import threading
from collections.abc import Sequence

from backend_host.device.control import ControlPage
from backend_host.device.readings import WantReading
from backend_host.space.search import Searches
from backend_host.space.space import STICKY
from backend_host.space.spaces import Spaces
from backend_host.space.urgent import Urgent

log = logging.getLogger("fairgv.space")

LOOK_S, HASTY_S, QUIET_S = 0.1, 0.01, 1.0
"""Between looks at searches, while one is under way, and while there is no critical vGPU."""


class Looks:
    """Of one Gpu; `look` is called by whoever reads what workers say. `start` once, `stop` once."""

    def __init__(self, page: ControlPage, spaces: Spaces) -> None:
        self._page, self._spaces = page, spaces
        self.urgent = Urgent(page, spaces.criticals)
        self.searches = Searches(page, spaces)
        self._seen: set[tuple[int, int]] = set()
        """Workers, by slot and process, whose error has been acted on."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="space-searches", daemon=True)

    def start(self) -> None:
        """Begins to look at searches."""
        self._thread.start()

    def stop(self) -> None:
        """The counterpart."""
        self._stop.set()
        self._thread.join()

    def look(self, readings: Sequence[WantReading]) -> None:
        """What all workers that serve a program say now."""
        dead = {(each.slot, each.pid): each.vgpu for each in readings if each.last_error in STICKY}
        for vgpu in {dead[worker] for worker in dead.keys() - self._seen}:
            self._spaces.look_at(vgpu)
        self._seen = set(dead)
        self.urgent.look()

    def _run(self) -> None:
        period_s = LOOK_S
        while not self._stop.wait(period_s):
            try:
                has_critical = bool(self._spaces.criticals())
                self.searches.look(self._page.wants() if has_critical else ())
                period_s = HASTY_S if self.searches.are_under_way else LOOK_S if has_critical else QUIET_S
            except Exception:
                log.exception("a look at the searches of spaces failed; the next one comes")
                self._stop.wait(1.0)
