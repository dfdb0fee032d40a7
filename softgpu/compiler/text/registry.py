"""Which function lowers which opcode. Each family module registers its own; `module.function` imports them all."""

from __future__ import annotations

from collections.abc import Callable

from cuda_api.ptx.syntax import Instruction
from softgpu.compiler.text.builder import Builder

Lowering = Callable[[Builder, Instruction], None]
LOWERINGS: dict[str, Lowering] = {}


def lowers(*opcodes: str) -> Callable[[Lowering], Lowering]:
    """Decorator: this function emits the code of these opcodes, guard aside."""

    def register(lowering: Lowering) -> Lowering:
        for opcode in opcodes:
            LOWERINGS[opcode] = lowering
        return lowering

    return register
