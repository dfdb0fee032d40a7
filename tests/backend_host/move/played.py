"""Moves whose steps the test takes by hand."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from backend_host.config import Config
from backend_host.device.gpu import Gpu
from backend_host.errors import RefusedError
from backend_host.move.looking import plan_now
from backend_host.move.plan import Plan
from backend_host.move.words import AUTO
from backend_host.vgpus import VGpuRegistry


@dataclass
class PlayedMove:
    """It goes no further than it is told to."""

    plan: Plan
    stage: str = "preparing"
    moved_bytes: int = 0
    pause_s: float | None = None
    reason: str = ""
    has_changed: bool = False

    def change(self) -> None:
        """The moment of change."""
        self.stage, self.has_changed = "changing", True

    def end(self, pause_s: float = 1.0) -> None:
        """It is there."""
        self.stage, self.pause_s, self.has_changed = "done", pause_s, True

    def abort(self) -> None:
        """See `Move`."""
        if self.has_changed:
            raise RefusedError(f"{self.plan.name} is changing its Gpu")
        self.stage, self.reason = "aborted", "it was aborted"

    def wait(self, timeout_s: float | None = None) -> bool:
        """See `Move`."""
        return self.stage in ("done", "aborted", "failed")


class PlayedMoves:
    """Plans are real, of these vGPUs. `began` is called with each move that begins."""

    def __init__(self, gpus: Sequence[Gpu], vgpus: VGpuRegistry) -> None:
        self._gpus, self._vgpus = gpus, vgpus
        self.all: dict[str, PlayedMove] = {}
        self.began: Callable[[PlayedMove], None] = lambda move: None

    def plan(self, name: str, to: str, mover: str = AUTO) -> Plan:
        """See `Moves`."""
        return plan_now(self._vgpus, self._gpus, Config(), name, to, mover)

    def start(self, name: str, to: str, mover: str = AUTO) -> PlayedMove:
        """See `Moves`."""
        move = self.all[name] = PlayedMove(self.plan(name, to, mover))
        self.began(move)
        return move

    def find(self, name: str) -> PlayedMove | None:
        """See `Moves`."""
        return self.all.get(name)
