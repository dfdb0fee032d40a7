"""Which function lowers which opcode. Each family module registers its own; `function` imports them all."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cuda_api.ptx.syntax import Instruction
    from softgpu.compiler.builder import Builder

    Lowering = Callable[[Builder, Instruction], None]

LOWERINGS: dict[str, Lowering] = {}


def lowers(*opcodes: str) -> Callable[[Lowering], Lowering]:
    """Decorator: this function emits the code of these opcodes, guard aside."""

    def register(lowering: Lowering) -> Lowering:
        for opcode in opcodes:
            LOWERINGS[opcode] = lowering
        return lowering

    return register
