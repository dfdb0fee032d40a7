"""
Calls: device functions, functions by address, and the four functions that the device offers itself.

Results and arguments travel through memory that the caller owns, one pointer each; LLVM dissolves it where it inlines. A function's address is
a token that the table of the module's functions turns into a pointer; a wild one traps.
"""

from __future__ import annotations

from cuda_api.ptx.syntax import Arguments, Float, Instruction, Integer, Name, Operand, Variable
from softgpu.compiler.base.layout import FUNCTION_TOKEN_STEP
from softgpu.compiler.base.scalars import TYPES
from softgpu.compiler.lower.control import trap
from softgpu.compiler.text.builder import Builder
from softgpu.compiler.text.registry import lowers

_CONTEXT = "ptr %block, ptr %self, ptr %shared, ptr %globals, i32 %dynamic, i32 %tx, i32 %ty, i32 %tz, ptr %bad_bits"


def load_register_parameters(builder: Builder) -> None:
    """Parameters declared in the register space start with what the caller left for them."""
    for index, parameter in enumerate(builder.frame.flat.function.parameters):
        if parameter.space == "reg":
            llvm = TYPES[parameter.type].integer
            builder.write(Name(parameter.name), builder.let(f"load {llvm}, ptr %arg{index}"), llvm)


def _split(builder: Builder, instruction: Instruction) -> tuple[tuple[Operand, ...], Name, tuple[Operand, ...]]:
    """(results), callee, (arguments)[, prototype]"""
    operands = list(instruction.operands)
    results: tuple[Operand, ...] = ()
    arguments: tuple[Operand, ...] = ()
    if operands and isinstance(operands[0], Arguments):
        results = operands[0].elements
        del operands[0]
    if not operands or not isinstance(operands[0], Name):
        raise builder.invalid("expected what is called")
    target = operands[0]
    if len(operands) > 1 and isinstance(operands[1], Arguments):
        arguments = operands[1].elements
    return results, target, arguments


def _place(builder: Builder, operand: Operand, parameter: Variable | None) -> str:
    """Where an argument lies, or where a result shall go."""
    frame = builder.frame
    if isinstance(operand, Name):
        variable = frame.flat.variables.get(operand.text)
        if variable is not None and variable.space == "param":
            pointer = frame.parameter_pointer(builder, operand.text)
            if pointer is not None:
                return pointer
        if frame.is_register(operand.text):
            slot, held = builder.slot(operand.text)
            copy = builder.allocate("i128")
            builder.emit(f"store {held} {builder.let(f'load {held}, ptr {slot}')}, ptr {copy}")
            return copy
    if isinstance(operand, Integer | Float) and parameter is not None:
        llvm = TYPES[parameter.type].integer
        copy = builder.allocate("i128")
        builder.emit(f"store {llvm} {builder.read(operand, llvm)}, ptr {copy}")
        return copy
    raise builder.invalid("an argument is neither a parameter nor a register")


@lowers("call")
def lower_call(builder: Builder, instruction: Instruction) -> None:
    results, target, arguments = _split(builder, instruction)
    builtin = BUILTINS.get(target.text)
    flat = builder.frame.unit.flats.get(target.text)
    if flat is None and builtin is not None:
        pointers = [_place(builder, operand, None) for operand in (*results, *arguments)]
        builtin(builder, pointers)
        return
    declared: tuple[Variable, ...] = ()
    if flat is not None:
        declared = (*flat.function.returns, *flat.function.parameters)
        if len(declared) != len(results) + len(arguments):
            raise builder.invalid(f"'{target.text}' takes {len(flat.function.parameters)} arguments")
        callee = f'@"f.{flat.function.name}"'
    elif builder.frame.is_register(target.text):
        callee = _by_address(builder, target)
    else:
        raise builder.unsupported(f"function '{target.text}' is defined nowhere")
    operands = (*results, *arguments)
    parameters = declared or (None,) * len(operands)
    pointers = [_place(builder, operand, parameter) for operand, parameter in zip(operands, parameters, strict=True)]
    exited = _exit_flag(builder)
    builder.emit(f"call void {callee}({', '.join([_CONTEXT, f'ptr {exited}', *(f'ptr {p}' for p in pointers)])})")
    for operand, pointer in zip(results, pointers, strict=False):
        if isinstance(operand, Name) and builder.frame.is_register(operand.text):
            slot, held = builder.slot(operand.text)
            builder.emit(f"store {held} {builder.let(f'load {held}, ptr {pointer}')}, ptr {slot}")
    if builder.frame.traits.exits:
        _leave_if_exited(builder, exited)


def _exit_flag(builder: Builder) -> str:
    return "%exited" if builder.frame.traits.exits or not builder.frame.is_entry else "null"


def _leave_if_exited(builder: Builder, exited: str) -> None:
    flag = builder.let(f"load i8, ptr {exited}")
    gone, here = builder.fresh("gone"), builder.fresh("here")
    builder.branch_if(builder.let(f"icmp ne i8 {flag}, 0"), gone, here)
    builder.start(gone)
    builder.end_function()
    builder.start(here)


def _by_address(builder: Builder, target: Name) -> str:
    unit = builder.frame.unit
    unit.uses_function_table = True
    count = len({flat.function.name for flat in unit.flats.values() if not flat.function.is_entry})
    token = builder.read(target, "i64")
    index = builder.let(f"sub i64 {builder.let(f'udiv i64 {token}, {FUNCTION_TOKEN_STEP}')}, 1")
    known = builder.let(f"icmp ult i64 {index}, {count}")
    good, wild = builder.fresh("good"), builder.fresh("wild")
    builder.branch_if(known, good, wild)
    builder.start(wild)
    trap(builder)
    builder.start(good)
    slot = builder.let(f"getelementptr ptr, ptr @functions, i64 {index}")
    return builder.let(f"load ptr, ptr {slot}")


def _pointer(builder: Builder, place: str) -> str:
    return f"ptr {builder.let(f'load ptr, ptr {place}')}"


def _vprintf(builder: Builder, places: list[str]) -> None:
    result, text, arguments = places
    count = builder.runtime("vprintf", "i32", "ptr %self", _pointer(builder, text), _pointer(builder, arguments))
    builder.emit(f"store i32 {count}, ptr {result}")


def _assert_fail(builder: Builder, places: list[str]) -> None:
    message, file, line, function = (_pointer(builder, p) if i != 2 else p for i, p in enumerate(places[:4]))
    number = builder.let(f"load i32, ptr {line}")
    thread = ("i32 %tx", "i32 %ty", "i32 %tz")
    builder.runtime("assert_fail", "void", "ptr %self", message, file, f"i32 {number}", function, *thread)
    builder.terminate("unreachable")


def _malloc(builder: Builder, places: list[str]) -> None:
    result, size = places
    size_bytes = builder.let(f"load i64, ptr {size}")
    memory = builder.runtime("device_malloc", "ptr", "ptr %self", f"i64 {size_bytes}")
    builder.emit(f"store ptr {memory}, ptr {result}")


def _free(builder: Builder, places: list[str]) -> None:
    builder.runtime("device_free", "void", "ptr %self", _pointer(builder, places[-1]))


def _set_conditional(builder: Builder, places: list[str]) -> None:
    """A conditional handle is the address of the word that the node looks at (driver/graphs/condition.h)."""
    handle, value = places
    pointer = builder.let(f"inttoptr i64 {builder.let(f'load i64, ptr {handle}')} to ptr")
    builder.check_address(pointer, 4)
    builder.emit(f"store i32 {builder.let(f'load i32, ptr {value}')}, ptr {pointer}, align 1")


def _graph_launch(builder: Builder, places: list[str]) -> None:
    result, graph, stream = places
    arguments = [f"i64 {builder.let(f'load i64, ptr {place}')}" for place in (graph, stream)]
    error = builder.runtime("graph_launch", "i32", "ptr %self", *arguments)
    builder.emit(f"store i32 {error}, ptr {result}")


BUILTINS = {
    "vprintf": _vprintf,
    "__assertfail": _assert_fail,
    "malloc": _malloc,
    "free": _free,
    "cudaGraphSetConditional": _set_conditional,
    "cudaGraphLaunch": _graph_launch,
}
