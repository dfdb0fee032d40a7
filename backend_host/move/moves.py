"""All moves of one daemon: which are under way, and which may begin."""

import threading
from collections.abc import Callable, Sequence

from backend_host.device.gpu import Gpu, find
from backend_host.errors import RefusedError
from backend_host.move.checkpointing import Checkpointer
from backend_host.move.looking import plan_now
from backend_host.move.moving import Move
from backend_host.move.plan import Plan
from backend_host.relocation import Relocating
from backend_host.vgpu import VGpu


class Moves:
    """Thread-safe. `stop` once, before the vGPUs go."""

    def __init__(
        self,
        table: Relocating,
        gpus: Sequence[Gpu],
        change_of: Callable[[str], Checkpointer] = Checkpointer,
    ) -> None:
        """`change_of`: as `Move` has it."""
        self._table = table
        self._gpus = gpus
        self._change_of = change_of
        self._moves: dict[VGpu, Move] = {}
        """The last one of each vGPU."""
        self._is_stopping = False
        self._lock = threading.Lock()
        table.settle = self.settle

    def plan(self, name: str, to: str, mover: str = "auto") -> Plan:
        """What it takes to move this vGPU to the Gpu that is called so. RefusedError where it cannot be, with the reasons."""
        return plan_now(self._table, self._gpus, name, to, mover)

    def start(self, name: str, to: str, mover: str = "auto") -> Move:
        """Begins. RefusedError as for `plan`, and while the vGPU is on its way."""
        plan = self.plan(name, to, mover)
        vgpu, target = self._table.named(name), find(self._gpus, to)
        with self._lock:
            if self._is_stopping:
                raise RefusedError("the daemon is about to end")
            before = self._moves.get(vgpu)
            if before is not None and not before.is_over:
                raise RefusedError(f"{name} is on its way to GPU {before.plan.target} already")
            there = self._table.all()
            self._moves = {vgpu: move for vgpu, move in self._moves.items() if vgpu in there}
            move = self._moves[vgpu] = Move(plan, vgpu, target, self._table, self._change_of)
            move.start()
        return move

    def find(self, name: str) -> Move | None:
        """The one under way, or the last one, of the vGPU that is called so now."""
        with self._lock:
            return next((move for vgpu, move in self._moves.items() if vgpu.name == name), None)

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
