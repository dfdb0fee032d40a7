"""Instructions that compute a result from their operands alone, and which of them give every thread of a block the same."""

from __future__ import annotations

from cuda_api.ptx.syntax import Address, Instruction, Name
from softgpu.compiler.flow.effects import Effects, effects, names_of

CARRY = "%cc"
"""Stands for the carry flag where registers are named."""

# fmt: off
_PURE = frozenset((
    "abs", "add", "addc", "and", "bfe", "bfi", "bfind", "brev", "clz", "cnot", "copysign", "cos", "cvt", "cvta",
    "div", "dp2a", "dp4a", "ex2", "fma", "fns", "lg2", "lop3", "mad", "mad24", "madc", "max", "min", "mov", "mul",
    "mul24", "neg", "not", "or", "popc", "prmt", "rcp", "rem", "rsqrt", "sad", "selp", "set", "setp", "shf", "shl",
    "shr", "sin", "slct", "sqrt", "sub", "subc", "szext", "tanh", "testp", "xor",
))
# fmt: on
_DESTINATION_FIRST = _PURE | {"ld", "ldu", "atom"}
_CARRY_IN = frozenset(("addc", "subc", "madc"))
_STABLE = (
    "%tid",
    "%ntid",
    "%ctaid",
    "%nctaid",
    "%laneid",
    "%warpid",
    "%nwarpid",
    "%lanemask_",
    "WARP_SZ",
    "%dynamic_smem_size",
)
_OF_THE_THREAD = ("%tid", "%laneid", "%warpid", "%lanemask_")


def register_effects(instruction: Instruction) -> Effects:
    """As `effects`, with the carry flag; what is not known to put its result first also reads it and may leave it as it was."""
    found = effects(instruction)
    found.reads |= names_of(instruction.operands[:1]) if instruction.opcode == "st" else set()
    if instruction.opcode not in _DESTINATION_FIRST:
        found.is_guarded = True
        found.reads |= found.writes
    if "cc" in instruction.modifiers:
        found.writes.add(CARRY)
    if instruction.opcode in _CARRY_IN:
        found.reads.add(CARRY)
    return found


def is_pure(instruction: Instruction, parameters: set[str]) -> bool:
    """Whether the same operands give the same result at any time, and nothing else happens. `parameters` are the kernel's own."""
    if instruction.opcode == "ld":
        address = instruction.operands[1] if len(instruction.operands) == 2 else None
        return (
            "param" in instruction.modifiers
            and isinstance(address, Address)
            and isinstance(address.base, Name)
            and address.base.text in parameters
        )
    return instruction.opcode in _PURE


def is_stable(name: str) -> bool:
    """Whether this special register keeps its value as long as the thread lives."""
    return name.startswith(_STABLE)


def is_of_the_block(name: str) -> bool:
    """Whether it has one value for all threads of a block."""
    return is_stable(name) and not name.startswith(_OF_THE_THREAD)
