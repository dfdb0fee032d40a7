"""Roots, reciprocals, and the approximations ex2, lg2, sin, cos, tanh: closer than the manual's bounds, and vectorisable."""

from __future__ import annotations

from cuda_api.ptx.syntax import Instruction
from softgpu.compiler.lower import floating
from softgpu.compiler.text.builder import Builder
from softgpu.compiler.text.registry import lowers

_FUNCTIONS = {"ex2": "sgp.ex2", "lg2": "sgp.lg2", "sin": "sgp.sin", "cos": "sgp.cos", "tanh": "sgp.tanh"}

lowers("fma")(floating.lower_fma)
lowers("copysign")(floating.lower_copysign)
lowers("rcp")(floating.lower_reciprocal)
lowers("sqrt", "rsqrt")(floating.lower_root)


@lowers("ex2", "lg2", "sin", "cos", "tanh")
def lower_approximation(builder: Builder, instruction: Instruction) -> None:
    kind = builder.type()
    if kind.bits > 32:
        raise builder.unsupported()
    builder.operands(2)
    value = floating.read(builder, 1, kind)
    if kind.kind != "x":
        floating.finish(builder, kind, _approximation(builder, kind.llvm, value))
        return
    element = kind.llvm.split()[-1].rstrip(">")
    pair = "poison"
    for index in range(2):
        part = _approximation(builder, element, builder.let(f"extractelement {kind.llvm} {value}, i32 {index}"))
        pair = builder.let(f"insertelement {kind.llvm} {pair}, {element} {part}, i32 {index}")
    floating.finish(builder, kind, pair)


def _approximation(builder: Builder, llvm: str, value: str) -> str:
    name = builder.helper(_FUNCTIONS[builder.instruction.opcode])
    if llvm == "float":
        return builder.let(f"call float @{name}(float {value})")
    value = builder.let(f"fpext {llvm} {value} to float")
    return builder.let(f"fptrunc float {builder.let(f'call float @{name}(float {value})')} to {llvm}")
