"""What commands need of moves: a plan, one that goes on, and its end."""

from typing import Protocol

from backend_host.move.plan import Plan
from backend_host.move.words import AUTO


class Move(Protocol):
    """One vGPU on its way. Thread-safe."""

    @property
    def plan(self) -> Plan:
        """By which it goes."""

    @property
    def stage(self) -> str:
        """`preparing`: the host's memory is made ready; `leaving`: memory leaves the device; `changing`: contexts do; `returning`: memory comes
        onto the other one. In the end `done`; `aborted`: it is where it was; `failed`: a program has ended."""

    @property
    def moved_bytes(self) -> int:
        """Of linear memory, in this stage."""

    @property
    def pause_s(self) -> float | None:
        """How long its programs stood still; None: they do, or did not yet."""

    @property
    def reason(self) -> str:
        """Why it was aborted, or failed."""

    @property
    def has_changed(self) -> bool:
        """It is too late to abort."""

    def abort(self) -> None:
        """It comes back to where it was. RefusedError once it has changed, and after its end."""

    def wait(self, timeout_s: float | None = None) -> bool:
        """Whether it is over within the time."""


class Moves(Protocol):
    """Those of one daemon. Thread-safe."""

    def plan(self, name: str, to: str, mover: str = AUTO) -> Plan:
        """How a vGPU would move. RefusedError says why it cannot."""

    def start(self, name: str, to: str, mover: str = AUTO) -> Move:
        """Begins to move it. RefusedError says why not."""

    def find(self, name: str) -> Move | None:
        """The one of this vGPU that is under way, or the last one."""
