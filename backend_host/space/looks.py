"""What is looked at of spaces ten times a second: who may go before others, which split is asked for, and whose context is dead."""

from collections.abc import Sequence

from backend_host.device.control import ControlPage
from backend_host.device.readings import WantReading
from backend_host.space.search import Searches
from backend_host.space.space import STICKY
from backend_host.space.spaces import Spaces
from backend_host.space.urgent import Urgent


class Looks:
    """Of one Gpu, by looks of whoever calls."""

    def __init__(self, page: ControlPage, spaces: Spaces) -> None:
        self._spaces = spaces
        self.urgent = Urgent(page, spaces.criticals)
        self.searches = Searches(page, spaces)
        self._seen: set[tuple[int, int]] = set()
        """Workers, by slot and process, whose error has been acted on."""

    def look(self, readings: Sequence[WantReading]) -> None:
        """What all workers that serve a program say now."""
        dead = {(each.slot, each.pid): each.vgpu for each in readings if each.last_error in STICKY}
        for vgpu in {dead[worker] for worker in dead.keys() - self._seen}:
            self._spaces.look_at(vgpu)
        self._seen = set(dead)
        self.urgent.look()
        self.searches.look(readings)
