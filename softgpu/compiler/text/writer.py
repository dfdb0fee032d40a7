"""
The text of one LLVM function while it grows, line by line: names of values, what the entry computes once, calls of the runtime.

It knows neither blocks nor registers: a `Builder`, which is one, does.
"""

from __future__ import annotations

from cuda_api.ptx.syntax import Instruction
from softgpu.compiler.base.errors import InvalidPtxError, UnsupportedInstruction

RUNTIME_OFFSETS_BYTES = {
    "barrier": 8,
    "barrier_reduce": 16,
    "warp_exchange": 24,
    "vprintf": 32,
    "assert_fail": 40,
    "trap": 48,
    "device_malloc": 56,
    "device_free": 64,
    "clock64": 72,
    "global_timer_ns": 80,
    "barrier_arrive": 88,
    "yield": 96,
    "active_mask": 104,
    "bad_address": 112,
    "texture_fetch": 120,
    "surface_address": 128,
    "texture_query": 136,
    "matrix_multiply": 144,
    "matrix_move": 152,
    "nap": 160,
    "current_graph": 168,
    "graph_launch": 176,
}

PARALLEL = ", !llvm.access.group !1"
"""On accesses that PTX leaves unordered between threads: the loop over a block's threads may then be vectorised."""
INVARIANT = ", !invariant.load !0, !llvm.access.group !1"
SPACE_SCOPES = {"shared": ", !alias.scope !8, !noalias !9", "global": ", !alias.scope !9, !noalias !8"}
"""What an access that names its space says of itself: shared and global memory never overlap."""


class Writer:
    """`function` and `instruction` are what errors name."""

    def __init__(self, function: str) -> None:
        self.lines: list[str] = []
        self.entry: list[str] = []
        self.detours: list[str] = []
        self.instruction = Instruction("", (), ())
        self._function = function
        self._nr_names = 0
        self._cached: dict[str, str] = {}

    def fresh(self, stem: str = "v") -> str:
        self._nr_names += 1
        return f"{stem}{self._nr_names}"

    def emit(self, text: str) -> None:
        self.lines.append("  " + text)

    def let(self, expression: str) -> str:
        name = f"%{self.fresh()}"
        self.lines.append(f"  {name} = {expression}")
        return name

    def allocate(self, llvm: str, alignment: int = 0) -> str:
        name = f"%{self.fresh('a')}"
        self.entry.append(f"  {name} = alloca {llvm}" + (f", align {alignment}" if alignment else ""))
        return name

    def once(self, key: str, *expressions: str) -> str:
        """A value of the function's entry, computed when first asked for; `{}` stands for the expression before."""
        if key not in self._cached:
            name = ""
            for expression in expressions:
                previous, name = name, f"%{self.fresh('e')}"
                self.entry.append(f"  {name} = {expression.replace('{}', previous)}")
            self._cached[key] = name
        return self._cached[key]

    def unsupported(self, reason: str = "") -> UnsupportedInstruction:
        return UnsupportedInstruction(self.instruction.spelling, self._function, self.instruction.line, reason)

    def invalid(self, message: str) -> InvalidPtxError:
        where = f"{self._function}: line {self.instruction.line}: '{self.instruction.spelling}'"
        return InvalidPtxError(f"{where}: {message}")

    def runtime(self, function: str, result: str, *arguments: str, attributes: str = "") -> str:
        """A call through struct sgp_runtime; arguments are 'type value', attributes those of the call."""
        offset = RUNTIME_OFFSETS_BYTES[function]
        table = self.once("runtime", "load ptr, ptr %block" + INVARIANT)
        slot = self.let(f"getelementptr i8, ptr {table}, i64 {offset}")
        target = self.let(f"load ptr, ptr {slot}{INVARIANT}")
        text = f"call {result} {target}({', '.join(arguments)}){attributes}"
        if result == "void":
            self.emit(text)
            return ""
        return self.let(text)
