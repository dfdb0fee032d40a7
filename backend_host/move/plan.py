"""What a move will take, before it begins."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Plan:
    """Of the vGPU with this name, from one Gpu to another, by their numbers. `memory_bytes`: linear memory of its programs."""

    name: str
    origin: int
    target: int
    mover: str
    nr_programs: int
    memory_bytes: int
    seconds: float
    pause_s: float
