"""What a daemon answers to commands that drain Gpus and move vGPUs. Times in ns."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from backend_host.device.gpu import Gpu, find
from backend_host.errors import RefusedError
from backend_host.ipc import Message, Session
from backend_host.move.balancing import Balancing
from backend_host.move.drains import Drains
from backend_host.move.interface import Move, Moves
from backend_host.move.leaving import leaving
from backend_host.move.plan import Plan
from backend_host.move.words import AUTO, UNDER_WAY
from backend_host.service.events import UNCHANGED, printable
from backend_host.vgpu_table import VGpuTable
from scheduler.balance import MODES, OFF


class Moving(Protocol):
    """What of a daemon has to do with moves."""

    @property
    def gpus(self) -> Sequence[Gpu]:
        """All."""

    @property
    def vgpus(self) -> VGpuTable:
        """On all of them."""

    @property
    def drains(self) -> Drains:
        """Which are drained."""

    @property
    def moves(self) -> Moves:
        """Of its vGPUs."""

    @property
    def balancing(self) -> Balancing:
        """What moves them unasked."""

    def try_again(self) -> None:
        """There may be room for a vGPU that found none."""


class MoveAnswers:
    """Of one daemon. Thread-safe."""

    def __init__(self, daemon: Moving) -> None:
        self._daemon = daemon

    def operations(self) -> Mapping[str, Callable[[Session, Message], Message]]:
        """By the names of requests."""
        return {
            "plan": self._plan,
            "migrate": self._migrate,
            "migration": self._migration,
            "abort": self._abort,
            "drain": self._drain,
            "undrain": self._undrain,
            "leaving": self._leaving,
            "balance": self._balance,
            "balancing": self._tell_balancing,
        }

    def _balance(self, session: Session, request: Message) -> Message:
        mode = str(request["mode"])
        if mode not in MODES:
            raise RefusedError(f"no mode of balancing is called {mode!r}; there are {', '.join(MODES)}")
        if mode != OFF and len(self._daemon.gpus) < 2:
            raise RefusedError("this host has one Gpu: there is nothing to balance")
        before = self._daemon.balancing.mode
        self._daemon.balancing.set_mode(mode)
        now = self._daemon.balancing.mode
        return {"text": f"Gpus are balanced so: {now}", "mode": now, UNCHANGED: now == before}

    def _tell_balancing(self, session: Session, request: Message) -> Message:
        return {"mode": self._daemon.balancing.mode}

    def _plan(self, session: Session, request: Message) -> Message:
        return {"plan": plan_told(self._daemon.moves.plan(*_said(request)))}

    def _migrate(self, session: Session, request: Message) -> Message:
        move = self._daemon.moves.start(*_said(request))
        plan = move.plan
        return {"text": f"{plan.name} moves from GPU {plan.origin} to GPU {plan.target}", "plan": plan_told(plan)}

    def _migration(self, session: Session, request: Message) -> Message:
        return {"migration": migration_told(self._move(str(request["name"])))}

    def _abort(self, session: Session, request: Message) -> Message:
        name = str(request["name"])
        move = self._move(name)
        if move.stage not in UNDER_WAY:
            raise RefusedError(f"{name} is not on its way to another Gpu")
        move.abort()
        return {"text": f"{name} comes back to GPU {move.plan.origin}"}

    def _move(self, name: str) -> Move:
        move = self._daemon.moves.find(name)
        if move is None:
            raise RefusedError(f"no vGPU called {name} has moved")
        return move

    def _drain(self, session: Session, request: Message) -> Message:
        gpu = find(self._daemon.gpus, str(request["gpu"]))
        was_drained = gpu.is_drained
        already = " already" if was_drained else ""
        self._daemon.drains.set(gpu, is_drained=True)
        return {
            UNCHANGED: was_drained,
            "text": f"GPU {gpu.number} is drained{already}: no vGPU comes to it until fairgv-host undrain {gpu.number}",
            "number": gpu.number,
        }

    def _undrain(self, session: Session, request: Message) -> Message:
        gpu = find(self._daemon.gpus, str(request["gpu"]))
        if not gpu.is_drained:
            return {"text": f"GPU {gpu.number} is not drained", UNCHANGED: True}
        self._daemon.drains.set(gpu, is_drained=False)
        self._daemon.try_again()
        return {"text": f"GPU {gpu.number} takes vGPUs again"}

    def _leaving(self, session: Session, request: Message) -> Message:
        found = leaving(
            find(self._daemon.gpus, str(request["gpu"])), self._daemon.gpus, self._daemon.vgpus, self._daemon.moves
        )
        return {
            "plans": [plan_told(plan) for plan in found.plans],
            "stay": [{"name": name, "why": why} for name, why in found.stay.items()],
            "coming": list(found.coming),
        }


def plan_told(plan: Plan) -> dict[str, Any]:
    """For programs."""
    return {
        "name": plan.name,
        "from": plan.origin,
        "to": plan.target,
        "mover": plan.mover,
        "nr_programs": plan.nr_programs,
        "memory_bytes": plan.memory_bytes,
        "duration_ns": round(plan.seconds * 1e9),
        "pause_ns": round(plan.pause_s * 1e9),
        "no_replay": list(plan.no_replay),
    }


def migration_told(move: Move) -> dict[str, Any]:
    """For programs. A reason may have words of a guest's in it."""
    return {
        "plan": plan_told(move.plan),
        "stage": move.stage,
        "moved_bytes": move.moved_bytes,
        "pause_ns": None if move.pause_s is None else round(move.pause_s * 1e9),
        "has_changed": move.has_changed,
        "reason": printable(move.reason),
    }


def _said(request: Message) -> tuple[str, str, str]:
    return str(request["name"]), str(request["to"]), str(request.get("mover") or AUTO)
