"""The tables of a document that `python -m benchmarks.preemption` wrote."""

import statistics
from collections.abc import Sequence

from benchmarks.document import Document, Record, records
from benchmarks.grid import Grid


def preemption_grids(document: Document) -> list[Grid]:
    """What the driver answered, what a neighbour saw, and what became of the kernel."""
    answers = tuple(_answers(record) for record in records(document, "control"))
    waits = tuple(_waits(record) for record in records(document, "wait"))
    verdicts = tuple((record["what"], record["verdict"]) for record in records(document, "verdict"))
    return [
        Grid("What the driver answered", ("control", "calls", "refused", "us, median", "most"), answers),
        Grid("A neighbour's small kernel, from launch to the end of its synchronisation", _WAITS, waits),
        Grid("What became of it", ("", "verdict"), verdicts),
    ]


_WAITS = ("the other", "kernels", "us, median", "90 %", "99 %")


def _answers(record: Record) -> tuple[str, ...]:
    us = [answer["us"] for answer in record["answers"]]
    refused = [answer for answer in record["answers"] if answer["errno"] or answer["status"]]
    told = ", ".join(sorted({_refusal(answer) for answer in refused})) or "no"
    return record["what"], str(len(us)), told, f"{statistics.median(us):.0f}", f"{max(us):.0f}"


def _refusal(answer: Record) -> str:
    return f"errno {answer['errno']}" if answer["errno"] else f"status {answer['status']:#x}"


def _waits(record: Record) -> tuple[str, ...]:
    us = sorted(record["us"])
    return record["what"], str(len(us)), *(f"{_percentile(us, percent):.0f}" for percent in (50, 90, 99))


def _percentile(ordered: Sequence[float], percent: int) -> float:
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]
