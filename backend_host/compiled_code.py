"""Bounds the compiled code of all tenants while their workers live: of each, of all together, and by the room that the file system keeps free.

One thread. It asks the file system for its room four times a second, which costs nothing, and looks at all folders where that has changed by
much, room is short, or a minute is over. What was used longest ago goes (walls/eviction.py). A folder with more in it than compiled code is
done away with.

Only a worker that was taken over has more room than that: by files that it writes as fast as they go, or that it removed and keeps open. While
room is short, whoever has twice as much as a tenant may loses its workers, and with them the files.

Daemons that share the folder look each for itself: a file that is gone already is nobody's loss.

Wrong when: something else fills the file system. Then all compiled code goes, and is made anew again and again.
"""

import logging
import os
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from backend_host.guest_log import GuestLog
from backend_host.looking import Looking
from backend_host.sizes import format_size
from backend_host.statistics import CodeStatistics
from backend_host.walls import folders
from backend_host.walls.eviction import Bounds, excess
from backend_host.walls.folders import Contents, NoCodeError
from backend_host.walls.held import held_bytes
from backend_host.walls.settings import WallSettings
from backend_host.walls.tenants import Tenants

LOOK_S = 0.25
_ALL_AFTER_S = 60.0
_GROWN_DIVISOR = 8
"""Of what a tenant may have: folders are looked at once the file system has so much less room."""
_PAUSE_FACTOR, _SHORT_FACTOR = 20, 2
"""To look through 10,000 files takes 0.1 s: not more than a 20th of a core, or a third while room is short."""
_FREE_DIVISOR = 10
"""No more of the file system than this part of it is kept free."""
_BLAMED_FACTOR = 2

log = logging.getLogger("fairgv.walls")


class CompiledCode(Looking):
    """Of one daemon. `at_work` says whose workers there are: their pids, by tenant; `end` ends those of a tenant, with the reason."""

    def __init__(
        self,
        settings: WallSettings,
        tenants: Tenants,
        at_work: Callable[[], Mapping[str, Collection[int]]],
        end: Callable[[str, str], None],
    ) -> None:
        super().__init__("compiled-code")
        self._settings, self._tenants, self._at_work, self._end = settings, tenants, at_work, end
        self._folder = tenants.folder
        self._used_bytes = 0
        self._next_s = self._all_s = 0.0
        self._log = GuestLog(log, "compiled code")
        self._told = CodeStatistics()

    def statistics(self) -> CodeStatistics:
        """As of the last look."""
        return self._told

    def _run(self) -> None:
        while not self._is_stopping.wait(LOOK_S):
            try:
                self.look(time.monotonic())
            except OSError as error:  # for want of descriptors or memory, or the folder is gone
                self._log.say(logging.WARNING, "it cannot be looked at: %s", error.strerror)

    def look(self, now_s: float) -> None:
        """One look, which is what the thread does again and again."""
        room = self._room()
        has_grown = room.used_bytes - self._used_bytes > self._settings.cache_bytes // _GROWN_DIVISOR
        if now_s < self._next_s or not (has_grown or room.lacking_bytes or now_s >= self._all_s):
            return
        began_s = time.monotonic()
        self._look_at_all(room)
        pause_s = (time.monotonic() - began_s) * (_SHORT_FACTOR if room.lacking_bytes else _PAUSE_FACTOR)
        self._next_s, self._all_s = now_s + pause_s, now_s + _ALL_AFTER_S

    def _look_at_all(self, room: "_Room") -> None:
        folders.sweep(self._folder)
        tenants = self._contents()
        if self._is_stopping.is_set():
            return
        total = sum(each.nr_bytes for each in tenants.values())
        most = max(0, min(self._settings.cache_sum_bytes, total - room.lacking_bytes))
        gone = 0
        for name, file in excess(tenants, Bounds(self._settings.cache_bytes, most), time.time_ns()):
            if folders.remove(self._folder / name, file):
                gone += file.nr_bytes
        if gone:
            self._log.say(logging.INFO, "%s that were used longest ago are removed to make room", format_size(gone))
        room = self._room()
        if room.lacking_bytes:
            self._find_who_fills_it({name: each.nr_bytes for name, each in tenants.items()})
        self._used_bytes = room.used_bytes
        self._told = CodeStatistics(total - gone, room.free_bytes, self._told.removed_bytes + gone, self._told.nr_ended)

    def _contents(self) -> Mapping[str, Contents]:
        """Of all tenants, or of some once it is to stop. Those whose folder has more in it than compiled code have nothing."""
        found = {}
        for folder in self._tenants.folders():
            if self._is_stopping.is_set():
                break
            try:
                found[folder.name] = folders.contents(folder)
            except NoCodeError:
                self._blame(folder.name, "what it put where compiled code lies is none")
                self._tenants.begin_anew(folder.name)
        return found

    def _find_who_fills_it(self, had: Mapping[str, int]) -> None:
        device = self._folder.stat().st_dev
        most = self._settings.cache_bytes * _BLAMED_FACTOR
        for tenant, pids in self._at_work().items():
            taken = max(had.get(tenant, 0), held_bytes(pids, device))
            if taken > most:
                self._blame(
                    tenant,
                    f"it has {format_size(taken)} where compiled code lies and {format_size(self._settings.cache_bytes)} "
                    "are what it may have, and the file system has no room left",
                )

    def _blame(self, tenant: str, why: str) -> None:
        if tenant in self._at_work():
            self._told = replace(self._told, nr_ended=self._told.nr_ended + 1)
            self._end(tenant, why)

    def _room(self) -> "_Room":
        status = os.statvfs(self._folder)
        unit = status.f_frsize
        free_bytes = status.f_bavail * unit
        wanted_bytes = min(self._settings.cache_free_bytes, status.f_blocks * unit // _FREE_DIVISOR)
        return _Room((status.f_blocks - status.f_bfree) * unit, free_bytes, max(0, wanted_bytes - free_bytes))


@dataclass(frozen=True)
class _Room:
    """Of the file system; `lacking_bytes` of what is to be free."""

    used_bytes: int
    free_bytes: int
    lacking_bytes: int
