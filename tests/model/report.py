"""What was found, for people: a table of the steps that lead to a fault."""

from __future__ import annotations

from tests.model.engine import NO_CHOICE, CProcess, CState, CSuccessor, Found, Model

_HEAD = ("step", "who", "does", "grant", "users", "waiting")


def described(model: Model, found: Found) -> str:
    """One line, and behind it, for a fault, the way to it."""
    seen = f"{found.nr_states:,} states, {found.nr_steps:,} steps" + ("" if found.is_whole else ", not all")
    if not found.fault:
        return f"no fault in {seen}"
    return f"{found.fault} ({seen})\n{table(model, found)}"


def table(model: Model, found: Found) -> str:
    """A row for each step, with the page as it is then; a last one says where each process is at the end."""
    rows = [_HEAD, *(_row(model, number, step) for number, step in enumerate(found.trace, 1))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    last = found.trace[-1].state if found.trace else model.first()
    return "\n".join([*lines, "", *_places(model, last)])


def _row(model: Model, number: int, step: CSuccessor) -> tuple[str, ...]:
    state = step.state
    holder = f"vGPU {state.holder - 1}" if state.holder else "free"
    grant = f"{holder}, closed" if state.is_closed else holder
    users, waiting = (_members(model, bits) for bits in state.sets[:2])
    return str(number), name(model, step.process), _deed(model, step), grant, users, waiting


def name(model: Model, process: int) -> str:
    """A worker with its vGPU, or the daemon."""
    vgpu_of = model.setting.vgpu_of
    return f"worker {process} of vGPU {vgpu_of[process]}" if process < len(vgpu_of) else "the daemon"


def _deed(model: Model, step: CSuccessor) -> str:
    if step.is_death:
        return "dies"
    instruction = model.program.instructions[step.pc]
    doing = instruction.doing
    subject = f" ({doing.set})" if doing.op in ("add", "remove") else ""
    slot = f", of worker {step.state.processes[step.process].slot - 1}" if doing.who == "slot" else ""
    why = (
        "" if step.choice == NO_CHOICE or step.kind == 0 else " (need not happen)" if step.kind == 2 else " (with time)"
    )
    return f"{instruction.function}: {doing.op}{subject}{slot}{why}"


def _members(model: Model, bits: int) -> str:
    return " ".join(str(worker) for worker in range(len(model.setting.vgpu_of)) if bits >> worker & 1) or "-"


def _places(model: Model, state: CState) -> list[str]:
    processes: list[CProcess] = list(state.processes[: len(model.setting.vgpu_of) + 1])
    lines = []
    for number, process in enumerate(processes):
        instruction = model.program.instructions[process.pc]
        lines.append(f"{name(model, number)} is at {instruction.function}: {instruction.label}")
    return lines
