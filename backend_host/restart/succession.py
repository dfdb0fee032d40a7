"""One daemon after another: the store, what the daemon before left there, and what this one leaves."""

import functools
import os
import secrets
import socket
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from backend_host.debts import DebtsRecord
from backend_host.device.gpu import Gpu, GpuLeft
from backend_host.devices import Device
from backend_host.ipc import Server, Session, session_of
from backend_host.restart.adopting import adopt
from backend_host.restart.keeping import Item
from backend_host.restart.left import Left
from backend_host.restart.records import SessionRecord
from backend_host.restart.store import Store
from backend_host.service.events import Events
from backend_host.sizes import format_count, format_programs
from backend_host.vgpus import VGpuRegistry
from backend_host.vm.doorbell import Doorbells

RESTART_STATUS = 75
"""Our exit status that asks a manager of services to start the next daemon (EX_TEMPFAIL of sysexits.h)."""
_MOST_GPUS = 10_000
"""Names have four digits at most."""


class Succession:
    """Of one daemon. `foreign`: what daemons of other releases left."""

    def __init__(self, store: Store, left: Left, foreign: Sequence[Item]) -> None:
        self.store = store
        self.foreign = foreign
        self._left = left
        self.has_heirs = bool(left.items) or bool(foreign)
        """Whether somebody else left programs, which are not ours to end before we serve them."""
        self.devices = dict(_numbers([*left.items.values(), *foreign]))
        """Numbers of the devices of what is left, by their names."""

    @classmethod
    def none(cls) -> Self:
        """Of a private daemon, which has no next one."""
        return cls(Store(), Left(), ())

    @classmethod
    def of(cls, state_dir: Path) -> Self:
        """Of the daemons of this state directory. Raises FairGVError."""
        store, items, foreign = Store.opened(state_dir)
        return cls(store, Left.read(items), foreign)

    def end(self) -> None:
        """Nothing is left for anybody."""
        self.store.end()

    def gpu(self, device: Device) -> GpuLeft | None:
        """What is left of this device's Gpu."""
        return self._left.gpu(device)

    def adopt(self, gpus: Sequence[Gpu], vgpus: VGpuRegistry, doorbells: Doorbells, events: Events) -> None:
        """Takes over vGPUs and programs, as far as that goes, and says so."""
        for _, debts in self._left.of(DebtsRecord):
            vgpus.debts.recall(debts)
        same = [gpu for gpu in gpus if gpu.is_adopted]
        adopted = adopt(self._left, same, vgpus, doorbells.inherit)
        for gpu in same:
            self.store.put(gpu.item, gpu.record().written())
        for name, why in adopted.lost.items():
            events.tell(
                "lost",
                os.geteuid(),
                f"programs of {name} are ended, as its vGPU could not be taken over: {why}",
                vgpu=name,
            )
        if adopted.vgpus:
            names = ", ".join(adopted.vgpus)
            nr = f"{format_programs(adopted.nr_programs)} of {format_count(len(adopted.vgpus), 'vGPU')}"
            text = f"taken over from the daemon before: {nr} ({names})"
            events.tell("adopt", os.geteuid(), text)

    def adopt_sessions(self, vgpus: VGpuRegistry, server: Server, answer: dict[str, Any]) -> None:
        """Takes over the connections of commands that opened vGPUs, and ends what nobody has taken over. `answer`: for those that were not
        told so yet, but for the name."""
        for name, record in self._left.of(SessionRecord):
            connection = socket.socket(fileno=self._left.take(name)[0])
            try:
                session = session_of(connection)
                vgpu = vgpus.join_session(record.vgpu, session.uid)
                if vgpu is None:
                    raise ConnectionError("what it opened is gone")
                session.opened.add(vgpu)
                session.at_end(functools.partial(vgpus.close_session, vgpu))
                session.at_end(functools.partial(self.store.drop, name))
                session.send_fd = vgpu.region.fileno()
                server.adopt(connection, session, None if record.is_answered else {"name": vgpu.name, **answer})
            except OSError:
                self.store.drop(name)
                connection.close()
        self.store.drop(*self._left.give_up())
        vgpus.close_unused()

    def settle(self) -> None:
        """We serve: what is here is ours from now on."""
        self.has_heirs = False

    def forget_foreign(self) -> None:
        """What daemons of other releases left is of no use any more."""
        self.store.drop_items([item.name for item in self.foreign])

    def keep_session(self, session: Session, vgpu: str) -> None:
        """A command has opened this vGPU, which is there as long as its connection. It is told so behind this."""
        if session.connection is None:
            return
        name = f"session/{secrets.token_hex(8)}"
        record = SessionRecord(vgpu, is_answered=False).written()
        self.store.put(name, record, [session.connection.fileno()], has_life=True)
        session.at_end(lambda: self.store.drop(name))

        def answered() -> None:
            self.store.put(name, {**record, "is_answered": True}, has_life=True)

        session.after_answer = answered


def _numbers(items: Iterable[Item]) -> Iterator[tuple[str, int]]:
    """Of the devices of Gpus. What another release wrote of them may be anything."""
    for item in items:
        name, number = item.record.get("device"), item.record.get("number")
        if isinstance(name, str) and isinstance(number, int) and 0 <= number < _MOST_GPUS:
            yield name, number
