"""All spaces of one Gpu: which vGPUs are in which, and by which class.

A space is there from its first vGPU to its last. Where vGPUs cannot be together on this device, that is said once, and each takes turns with
all others: to the control page they are in no space then.
"""

import logging
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace

from backend_host.device.control import MAX_VGPUS, ControlPage
from backend_host.entitlement import BEST_EFFORT, CLASSES, CRITICAL, Entitlement
from backend_host.errors import FairGVError, RefusedError
from backend_host.restart.records import SpaceRecord
from backend_host.restart.store import Store
from backend_host.space.gated import Gated, GatedBySpace
from backend_host.space.setting import OFF, SpaceSettings
from backend_host.space.space import Space
from backend_host.walls.tenants import name_of_space
from backend_host.worker_start import WorkerStart
from backend_host.workers import Workers

TURNS = "turns"
"""How vGPUs of a space share where they cannot be together."""

log = logging.getLogger("fairgv.space")


class Spaces:
    """Thread-safe."""

    def __init__(
        self, gpu: int, page: ControlPage, workers: Workers, start: WorkerStart, settings: SpaceSettings, store: Store
    ) -> None:
        """`gpu`: its number, and `start` how its workers begin."""
        self._gpu, self._page, self._workers, self._start, self._store = gpu, page, workers, start, store
        self.settings = settings
        self._members: dict[int, Entitlement] = {}
        self._spaces: dict[str, Space] = {}
        self._recalled: dict[str, int] = {}
        """Pages that workers of an earlier daemon have, by the names of their spaces."""
        self._ending: dict[str, Space] = {}
        """Those without members, by their names, until they have ended."""
        self._gated = GatedBySpace()
        self._lock = threading.RLock()

    def check(self, entitlement: Entitlement, others: Mapping[str, Entitlement]) -> None:
        """RefusedError where a vGPU cannot be so on this Gpu, beside these others, by name."""
        if not entitlement.space:
            return
        if self.settings.setting == OFF:
            raise RefusedError(
                "--space: this daemon has each vGPU take turns; one that has some share in space is started by fairgv-host start --space mps, "
                'or with space = "mps" in its configuration'
            )
        if entitlement.vgpu_class != CRITICAL:
            return
        for name, other in others.items():
            if (other.space, other.vgpu_class) == (entitlement.space, CRITICAL):
                raise RefusedError(
                    f"--class critical: {name} is the critical vGPU of the space {entitlement.space} on GPU {self._gpu}, and a space has one: "
                    f"give another --space, or have {name} be another class: fairgv-host set {name} --class fair"
                )

    def holds(self, space: str) -> bool:
        """Whether a vGPU here is in it."""
        with self._lock:
            return any(each.space == space for each in self._members.values())

    def recall(self, name: str, page: int) -> None:
        """The space of this name had this page, whose descriptor is taken over, and has it again if it gets members."""
        with self._lock:
            self._recalled[name] = page

    def forget(self) -> None:
        """Nobody comes any more who was there at an earlier daemon."""
        with self._lock:
            for name, page in self._recalled.items():
                os.close(page)
                self._store.drop(self._item(name))
            self._recalled = {}
            kept = frozenset(self._spaces)
        self.settings.quit_left(kept)

    def join(self, vgpu: int, entitlement: Entitlement) -> None:
        """A vGPU of this number is on this Gpu, and so from now on."""
        with self._lock:
            self._members[vgpu] = entitlement
            self._seat(vgpu)

    def change(self, vgpu: int, entitlement: Entitlement) -> None:
        """One is otherwise from now on: it has no workers where its class changes."""
        with self._lock:
            self._members[vgpu] = entitlement
            self._seat(vgpu)

    def leave(self, vgpu: int) -> None:
        """The counterpart of `join`: its workers have ended. A space without members ends later, so that nobody waits for that."""
        with self._lock:
            left = self._members.pop(vgpu, None)
            if left is not None:
                self._gated.leave(left.space, vgpu)
                if not self.holds(left.space):
                    self._gated.end(left.space)
                    self._let_go(left.space)
            self._workers.set_pool(vgpu, None)

    def _let_go(self, name: str) -> None:
        """With the lock held: the space of this name, if there is one, has no members any more."""
        space = self._spaces.pop(name, None)
        if space is not None:
            self._ending[name] = space
            space.let_go()

    def stop(self) -> None:
        """Ends what is left, and waits for all that ends."""
        with self._lock:
            for name in list(self._spaces):
                self._let_go(name)
            for vgpu in self._members:
                self._workers.set_pool(vgpu, None)
            spaces = list(self._ending.values())
        for space in spaces:
            space.stop()

    def all(self) -> Sequence[tuple[str, Space | None, Mapping[int, Entitlement]]]:
        """Each space by its name, with its members by their numbers. Where they take turns there is none."""
        with self._lock:
            names = sorted({each.space for each in self._members.values() if each.space})
            return [
                (name, self._spaces.get(name), {vgpu: e for vgpu, e in self._members.items() if e.space == name})
                for name in names
            ]

    def gated(self, name: str, now: Mapping[int, Gated]) -> Gated:
        """What waited at the gate of this space. `now`: what did of vGPUs of this Gpu, by their numbers."""
        with self._lock:
            members = {vgpu for vgpu, each in self._members.items() if each.space == name}
            return self._gated.look(name, {vgpu: each for vgpu, each in now.items() if vgpu in members})

    def criticals(self) -> Mapping[int, Entitlement]:
        """The critical vGPUs, by their numbers, in a space or not."""
        with self._lock:
            return {vgpu: each for vgpu, each in self._members.items() if each.vgpu_class == CRITICAL}

    def look_at(self, vgpu: int) -> None:
        """A worker of this vGPU says what may be the end of its space. Where that goes on, the worker has no context that gives back the room
        it asked for."""
        with self._lock:
            entitlement = self._members.get(vgpu)
            space = None if entitlement is None else self._spaces.get(entitlement.space)
        if space is not None:
            space.look()
            if self._asks(vgpu):
                space.give_room_back()

    def why_turns(self, name: str) -> str:
        """Why the vGPUs of this space take turns; empty: they do not."""
        with self._lock:
            space = self._spaces.get(name)
            return self.settings.why_not if space is None else space.why_not

    def _seat(self, vgpu: int) -> None:
        """With the lock held: where its workers come from, and what they and all others read of it."""
        entitlement = self._members[vgpu]
        space = self._space(entitlement.space) if entitlement.space and not self.settings.why_not else None
        pool = None if space is None else space.pools[entitlement.vgpu_class == BEST_EFFORT]
        self._workers.set_pool(vgpu, pool)
        number = 0 if space is None or space.why_not else space.number
        self._page.set_class(vgpu, CLASSES.index(entitlement.vgpu_class), number)

    def _space(self, name: str) -> Space | None:
        """That of this name, made if it is new. None: it cannot be."""
        if (space := self._spaces.get(name)) is not None:
            return space
        taken = {each.number for each in self._spaces.values()}
        number = next((number for number in range(1, MAX_VGPUS) if number not in taken), 0)
        tenant = name_of_space(self._gpu, name)
        try:
            uid = self._start.tenants.take(tenant).uid if self._start.tenants is not None else 0
            space = Space(
                *(name, number, self.settings.make(name, uid), replace(self._start, tenant=tenant), self._workers),
                *(self.settings.nr_warm, lambda page: self._keep(name, page), lambda: self._unseat(name)),
                page=self._recalled.pop(name, -1),
                after=before.is_over if (before := self._ending.get(name)) is not None else None,
                ended=self._has_ended,
                asks=self._asks,
                cleared=lambda: self._has_cleared(name),
            )
        except (FairGVError, OSError) as error:
            log.error("the vGPUs of the space %s take turns: %s", name, error)
            return None
        self._spaces[name] = space
        space.start()
        return space

    def _keep(self, name: str, page: int) -> None:
        self._store.put(self._item(name), SpaceRecord(self._gpu, name).written(), [page])

    def _has_ended(self, space: Space) -> None:
        """From its thread: it has ended."""
        self._store.drop(self._item(space.name))
        with self._lock:
            if self._ending.get(space.name) is space:
                del self._ending[space.name]

    def _asks(self, vgpu: int) -> bool:
        """From any thread: whether one asks best effort for room, or did, as far as is known of one that has left."""
        with self._lock:
            entitlement = self._members.get(vgpu)
            return entitlement is None or entitlement.vgpu_class == CRITICAL

    def _has_cleared(self, name: str) -> None:
        """From its thread: no room is asked for in this space, though programs of its critical vGPU may be there."""
        with self._lock:
            for vgpu, entitlement in self._members.items():
                if (entitlement.space, entitlement.vgpu_class) == (name, CRITICAL):
                    self._page.take_split_back(vgpu)

    def _unseat(self, name: str) -> None:
        """From a space's thread: its members take turns from now on."""
        with self._lock:
            for vgpu, entitlement in self._members.items():
                if entitlement.space == name:
                    self._page.set_class(vgpu, CLASSES.index(entitlement.vgpu_class), 0)

    def _item(self, name: str) -> str:
        return f"space/{self._gpu}/{name}"
