"""All moves of one daemon: which are under way, and which may begin."""

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from backend_host.config import Config
from backend_host.device.gpu import Gpu, find
from backend_host.errors import RefusedError
from backend_host.move.by_checkpoint import ByCheckpoint
from backend_host.move.by_replay import ByReplay
from backend_host.move.checkpointing import Checkpointer
from backend_host.move.journey import Journey
from backend_host.move.looking import plan_now
from backend_host.move.mover import Mover
from backend_host.move.moving import Move
from backend_host.move.plan import Plan
from backend_host.move.words import AUTO, CHECKPOINT, REPLAY
from backend_host.relocation import Relocating
from backend_host.vgpu import VGpu


class Moves:
    """Thread-safe. `stop` once, before the vGPUs go."""

    def __init__(
        self,
        table: Relocating,
        gpus: Sequence[Gpu],
        awake: Callable[[VGpu], AbstractContextManager[None]],
        config_of: Callable[[], Config],
        change_of: Callable[[str], Checkpointer] = Checkpointer,
    ) -> None:
        """`awake`: keeps the contexts of a suspended vGPU on its device. `change_of`: as `ByCheckpoint` has it."""
        self._table = table
        self._gpus = gpus
        self._awake = awake
        self._config_of = config_of
        self._change_of = change_of
        self._moves: dict[VGpu, Move] = {}
        """The last one of each vGPU."""
        self._is_stopping = False
        self._lock = threading.Lock()
        table.settle = self.settle

    def plan(self, name: str, to: str, mover: str = AUTO) -> Plan:
        """What it takes to move this vGPU to the Gpu that is called so. RefusedError where it cannot be, with the reasons."""
        return plan_now(self._table, self._gpus, self._config_of(), name, to, mover)

    def start(self, name: str, to: str, mover: str = AUTO) -> Move:
        """Begins. RefusedError as for `plan`, and while the vGPU is on its way. With the best mover it goes on by another where that one comes
        to nothing."""
        self.plan(name, to, mover)  # without the lock: it may wait for a trial
        vgpu, target = self._table.named(name), find(self._gpus, to)
        with self._lock:
            if self._is_stopping:
                raise RefusedError("the daemon is about to end")
            before = self._moves.get(vgpu)
            if before is not None and not before.is_over:
                raise RefusedError(f"{name} is on its way to GPU {before.plan.target} already")
            there = self._table.all()
            self._moves = {vgpu: move for vgpu, move in self._moves.items() if vgpu in there}
            plan = self._admit(vgpu, target, mover)
            move = self._moves[vgpu] = self._move(plan, vgpu, target, mover)
            move.start()
        return move

    def _admit(self, vgpu: VGpu, target: Gpu, mover: str) -> Plan:
        """With the lock held, as no two moves are to count on the same room: by this plan, with a place there from now on. RefusedError."""
        plan = self.plan(vgpu.name, str(target.number), mover)
        self._table.reserve(vgpu, target)
        return plan

    def _move(self, plan: Plan, vgpu: VGpu, target: Gpu, mover: str) -> Move:
        journey = Journey(vgpu, target, self._table)

        def mover_of(name: str) -> Mover:
            return ByReplay(journey) if name == REPLAY else ByCheckpoint(journey, self._change_of)

        def instead() -> Plan:
            self.plan(vgpu.name, str(target.number), CHECKPOINT)
            with self._lock:
                return self._admit(vgpu, target, CHECKPOINT)

        return Move(plan, journey, mover_of, self._awake, instead if (mover, plan.mover) == (AUTO, REPLAY) else None)

    def find(self, name: str) -> Move | None:
        """The one under way, or the last one, of the vGPU that is called so now, or was last."""
        now = self._table.find(name)
        with self._lock:
            moves = [move for vgpu, move in self._moves.items() if vgpu is now or (now is None and vgpu.name == name)]
        return moves[-1] if moves else None

    def settle(self, vgpu: VGpu) -> None:
        """Returns when nothing moves this vGPU any more: what can be aborted is."""
        with self._lock:
            move = self._moves.get(vgpu)
        if move is not None:
            move.give_up()
            move.wait()

    def stop(self) -> None:
        """No more begin; those under way are aborted, or waited for."""
        with self._lock:
            self._is_stopping = True
            moves = list(self._moves.values())
        for move in moves:
            move.give_up()
        for move in moves:
            move.wait()
