"""
Floating-point arithmetic, rounded as the instruction says and never fused unless it says fma.

Directed rounding of f32 sums, products and fmas goes through f64 and an exact error term, so that it vectorises (nvcc's expf is made of
fma.rm.f32). The rest of directed rounding is rare and switches the host's rounding mode around one operation.
"""

from __future__ import annotations

from cuda_api.ptx.syntax import Instruction
from softgpu.compiler.base.scalars import Type
from softgpu.compiler.text.builder import Builder, float_constant
from softgpu.compiler.text.helpers import directed_helper, rounded_helper

_SUFFIX = {
    "float": "f32",
    "double": "f64",
    "half": "f16",
    "bfloat": "bf16",
    "<2 x half>": "v2f16",
    "<2 x bfloat>": "v2bf16",
}
_DIRECTED = ("rz", "rm", "rp")
_ALLOWED = frozenset(("rn", "rz", "rm", "rp", "ftz", "sat", "relu", "approx", "full", "noftz", "NaN"))
_CANONICAL_NAN = {"float": 0x7FFFFFFF, "half": 0x7FFF, "bfloat": 0x7FFF}
_TWO_TO_126 = 0x7E800000
_SMALLEST_NORMAL = {"double": 0x0010000000000000, "float": 0x00800000, "half": 0x0400, "bfloat": 0x0080}


def intrinsic(name: str, kind: Type) -> str:
    return f"llvm.{name}.{_SUFFIX[kind.llvm]}"


def rounding(builder: Builder) -> str:
    """The directed rounding mode the instruction asks for, or ''."""
    return next((mode for mode in _DIRECTED if builder.has(mode)), "")


def zero(kind: Type) -> str:
    return "zeroinitializer" if kind.kind == "x" else "0.0"


def flushed(builder: Builder, kind: Type, value: str) -> str:
    """With .ftz, a subnormal number is a zero of its sign."""
    return flush(builder, kind, value) if builder.has("ftz") else value


def flush(builder: Builder, kind: Type, value: str) -> str:
    magnitude = builder.call(intrinsic("fabs", kind), kind.llvm, value)
    least = float_constant(_SMALLEST_NORMAL[_element(kind)], _element(kind))
    is_small = builder.let(f"fcmp olt {kind.llvm} {magnitude}, {splat(kind, least)}")
    zero_of_sign = builder.call(intrinsic("copysign", kind), kind.llvm, zero(kind), value)
    return choose(builder, kind, is_small, zero_of_sign, value)


def _flush_rounded(builder: Builder, kind: Type, value: str, twice: str) -> str:
    """
    A zero for a product that would be subnormal were it rounded without a least exponent, as GPUs (and x86) decide it.

    `twice` is the same operation with twice the result: half of the least normal number's double has all its bits still. Where it overflows,
    `value` alone tells. A sum, and a quotient to nearest, is never rounded up to the least normal number and needs none of this.
    """
    least = _SMALLEST_NORMAL[_element(kind)]
    boolean = "<2 x i1>" if kind.kind == "x" else "i1"
    is_tiny = []
    for number, bound in ((value, least), (twice, 2 * least)):
        magnitude = builder.call(intrinsic("fabs", kind), kind.llvm, number)
        constant = splat(kind, float_constant(bound, _element(kind)))
        is_tiny.append(builder.let(f"fcmp olt {kind.llvm} {magnitude}, {constant}"))
    zero_of_sign = builder.call(intrinsic("copysign", kind), kind.llvm, zero(kind), value)
    return choose(builder, kind, builder.let(f"or {boolean} {is_tiny[0]}, {is_tiny[1]}"), zero_of_sign, value)


def _doubled(builder: Builder, llvm: str, value: str) -> str:
    return builder.let(f"fadd {llvm} {value}, {value}")


def _element(kind: Type) -> str:
    """The LLVM type of a float, or of a pair's halves."""
    return kind.llvm.split()[-1].rstrip(">")


def splat(kind: Type, constant: str) -> str:
    """A constant of the element's type, in both halves of a pair."""
    return f"<{_element(kind)} {constant}, {_element(kind)} {constant}>" if kind.kind == "x" else constant


def choose(builder: Builder, kind: Type, condition: str, then: str, otherwise: str) -> str:
    """`select`, for each half of a pair by itself."""
    boolean = "<2 x i1>" if kind.kind == "x" else "i1"
    return builder.let(f"select {boolean} {condition}, {kind.llvm} {then}, {kind.llvm} {otherwise}")


def saturated(builder: Builder, kind: Type, value: str) -> str:
    """Clamped to [0, 1]; NaN gives 0."""
    one = splat(kind, "1.0")
    above = builder.let(f"fcmp ogt {kind.llvm} {value}, {zero(kind)}")
    value = choose(builder, kind, above, value, zero(kind))
    beyond = builder.let(f"fcmp ogt {kind.llvm} {value}, {one}")
    return choose(builder, kind, beyond, one, value)


def rectified(builder: Builder, kind: Type, value: str) -> str:
    """.relu: negative numbers become zero, NaN stays."""
    return builder.call(intrinsic("maximum", kind), kind.llvm, value, zero(kind))


def read(builder: Builder, index: int, kind: Type) -> str:
    return flushed(builder, kind, builder.read(builder.instruction.operands[index], kind.llvm))


def finish(builder: Builder, kind: Type, value: str) -> None:
    """Flushes, saturates and writes a result."""
    value = flushed(builder, kind, value)
    if builder.has("sat"):
        value = saturated(builder, kind, value)
    if builder.has("relu"):
        value = rectified(builder, kind, value)
    builder.write(builder.instruction.operands[0], value, kind.llvm)


def _widened(builder: Builder, value: str) -> str:
    return builder.let(f"fpext float {value} to double")


def _directed_f32(builder: Builder, mode: str, product: str, addend: str | None) -> str:
    """product (+ addend), doubles that hold f32 values or an exact product of two, rounded to f32 by `mode`."""
    error = "0.0"
    if addend is not None:
        name = builder.helper("sgp.two_sum.down" if mode == "rm" else "sgp.two_sum")
        both = builder.let(f"call {{ double, double }} @{name}(double {product}, double {addend})")
        product = builder.let(f"extractvalue {{ double, double }} {both}, 0")
        error = builder.let(f"extractvalue {{ double, double }} {both}, 1")
    return directed(builder, mode, "float", product, error)


def directed(builder: Builder, mode: str, target: str, value: str, error: str) -> str:
    """value + error (exact, |error| at most half an ulp of value) rounded to a narrower type by rz, rm or rp."""
    source = "double" if target in ("float", "double") else "float"
    name = builder.helper(directed_helper(mode, target))
    return builder.let(f"call {target} @{name}({source} {value}, {source} {error})")


def _switched(builder: Builder, mode: str, operation: str, kind: Type, *values: str) -> str:
    name = builder.helper(rounded_helper(mode, operation, kind.llvm))
    return builder.let(f"call {kind.llvm} @{name}({', '.join(f'{kind.llvm} {value}' for value in values)})")


def _check_words(builder: Builder) -> None:
    """A second type is that of narrower operands, from sm_100 on."""
    builder.check_modifiers(_ALLOWED)
    if len(builder.types()) > 1:
        raise builder.unsupported("operands of two types")


def lower_sum(builder: Builder, instruction: Instruction, kind: Type) -> None:
    _check_words(builder)
    builder.operands(3)
    left, right = read(builder, 1, kind), read(builder, 2, kind)
    mode = rounding(builder)
    if not mode:
        finish(builder, kind, builder.let(f"f{instruction.opcode} {kind.llvm} {left}, {right}"))
        return
    if instruction.opcode == "sub":
        right = builder.let(f"fneg {kind.llvm} {right}")
    if kind.llvm == "float":
        finish(builder, kind, _directed_f32(builder, mode, _widened(builder, left), _widened(builder, right)))
    else:
        finish(builder, kind, _switched(builder, mode, "fadd", kind, left, right))


def lower_product(builder: Builder, instruction: Instruction, kind: Type) -> None:
    builder.check_modifiers(_ALLOWED)
    builder.operands(3)
    left, right = read(builder, 1, kind), read(builder, 2, kind)
    value = _product(builder, kind, left, right)
    if builder.has("ftz"):
        value = _flush_rounded(builder, kind, value, _product(builder, kind, _doubled(builder, kind.llvm, left), right))
    finish(builder, kind, value)


def _product(builder: Builder, kind: Type, left: str, right: str) -> str:
    mode = rounding(builder)
    if not mode:
        return builder.let(f"fmul {kind.llvm} {left}, {right}")
    if kind.llvm == "float":
        product = builder.let(f"fmul double {_widened(builder, left)}, {_widened(builder, right)}")
        return _directed_f32(builder, mode, product, None)
    return _switched(builder, mode, "fmul", kind, left, right)


def lower_fma(builder: Builder, instruction: Instruction) -> None:
    kind = builder.type()
    _check_words(builder)
    builder.operands(4)
    first, second, third = (read(builder, index, kind) for index in (1, 2, 3))
    value = _fma(builder, kind, first, second, third)
    if builder.has("ftz"):
        doubled = (_doubled(builder, kind.llvm, first), second, _doubled(builder, kind.llvm, third))
        value = _flush_rounded(builder, kind, value, _fma(builder, kind, *doubled))
    finish(builder, kind, value)


def _fma(builder: Builder, kind: Type, first: str, second: str, third: str) -> str:
    mode = rounding(builder)
    if kind.bits == 16 or kind.kind == "x":
        return _narrow_fma(builder, kind, first, second, third)
    if not mode:
        return builder.call(intrinsic("fma", kind), kind.llvm, first, second, third)
    if kind.llvm == "float":
        product = builder.let(f"fmul double {_widened(builder, first)}, {_widened(builder, second)}")
        return _directed_f32(builder, mode, product, _widened(builder, third))
    return _switched(builder, mode, "fma", kind, first, second, third)


def _narrow_fma(builder: Builder, kind: Type, *values: str) -> str:
    """f16 and bf16: exact product in f64, the sum rounded to odd on the way down, so that it is rounded once."""
    element = _element(kind)
    name = builder.helper(f"sgp.fma.{element}")
    if kind.kind != "x":
        return builder.let(f"call {element} @{name}({', '.join(f'{element} {value}' for value in values)})")
    result = "poison"
    for index in range(2):
        parts = [builder.let(f"extractelement {kind.llvm} {value}, i32 {index}") for value in values]
        part = builder.let(f"call {element} @{name}({', '.join(f'{element} {item}' for item in parts)})")
        result = builder.let(f"insertelement {kind.llvm} {result}, {element} {part}, i32 {index}")
    return result


def lower_quotient(builder: Builder, instruction: Instruction, kind: Type) -> None:
    builder.check_modifiers(_ALLOWED)
    builder.operands(3)
    left, right = read(builder, 1, kind), read(builder, 2, kind)
    if rounding(builder):
        finish(builder, kind, _directed_quotient(builder, kind, left, right))
    else:
        finish(builder, kind, _quotient(builder, kind, left, right))


def _directed_quotient(builder: Builder, kind: Type, left: str, right: str) -> str:
    mode = rounding(builder)
    value = _switched(builder, mode, "fdiv", kind, left, right)
    if not builder.has("ftz"):
        return value
    twice = _switched(builder, mode, "fdiv", kind, _doubled(builder, kind.llvm, left), right)
    return _flush_rounded(builder, kind, value, twice)


def _quotient(builder: Builder, kind: Type, left: str, right: str) -> str:
    """To nearest; but .approx takes the reciprocal of a divisor above 2^126 for zero, as the manual says."""
    value = builder.let(f"fdiv {kind.llvm} {left}, {right}")
    if not builder.has("approx"):
        return value
    magnitude = builder.call(intrinsic("fabs", kind), kind.llvm, right)
    is_large = builder.let(f"fcmp ogt {kind.llvm} {magnitude}, {float_constant(_TWO_TO_126, kind.llvm)}")
    reciprocal = builder.call(intrinsic("copysign", kind), kind.llvm, "0.0", right)
    return builder.select(is_large, kind.llvm, builder.let(f"fmul {kind.llvm} {left}, {reciprocal}"), value)


def lower_extreme(builder: Builder, instruction: Instruction, kind: Type) -> None:
    """min, max: a NaN loses against a number, unless .NaN; -0 is less than +0. A result of NaN is the canonical one."""
    operands = builder.operands(3, 4)
    builder.check_modifiers(_ALLOWED | {"xorsign"})
    if builder.has("xorsign") or builder.has("abs"):
        raise builder.unsupported("'.xorsign.abs'")
    name = ("minimum" if instruction.opcode == "min" else "maximum") + ("" if builder.has("NaN") else "num")
    value = read(builder, 1, kind)
    for index in range(2, len(operands)):
        value = builder.call(intrinsic(name, kind), kind.llvm, value, read(builder, index, kind))
    if kind.llvm != "double":
        is_nan = builder.let(f"fcmp uno {kind.llvm} {value}, {value}")
        canonical = splat(kind, float_constant(_CANONICAL_NAN[_element(kind)], _element(kind)))
        value = choose(builder, kind, is_nan, canonical, value)
    finish(builder, kind, value)


def lower_sign(builder: Builder, instruction: Instruction, kind: Type) -> None:
    """neg and abs touch the sign bit alone, of NaNs too."""
    builder.operands(2)
    value = read(builder, 1, kind)
    if instruction.opcode == "neg":
        finish(builder, kind, builder.let(f"fneg {kind.llvm} {value}"))
    else:
        finish(builder, kind, builder.call(intrinsic("fabs", kind), kind.llvm, value))


def lower_copysign(builder: Builder, instruction: Instruction) -> None:
    kind = builder.type()
    builder.operands(3)
    sign, magnitude = read(builder, 1, kind), read(builder, 2, kind)
    finish(builder, kind, builder.call(intrinsic("copysign", kind), kind.llvm, magnitude, sign))


def lower_reciprocal(builder: Builder, instruction: Instruction) -> None:
    kind = builder.type()
    builder.operands(2)
    value = read(builder, 1, kind)
    if rounding(builder):
        finish(builder, kind, _directed_quotient(builder, kind, "1.0", value))
        return
    value = _upper_word(builder, kind, value)
    finish(builder, kind, _upper_word(builder, kind, builder.let(f"fdiv {kind.llvm} 1.0, {value}")))


def _upper_word(builder: Builder, kind: Type, value: str) -> str:
    """Of operand and result of .approx.ftz.f64 the lower 32 bits count for nothing, as the manual says."""
    if kind.llvm != "double" or not builder.has("ftz"):
        return value
    bits = builder.convert_bits(value, "double", "i64")
    return builder.convert_bits(builder.let(f"and i64 {bits}, {-(1 << 32)}"), "i64", "double")


def lower_root(builder: Builder, instruction: Instruction) -> None:
    kind = builder.type()
    builder.operands(2)
    value = read(builder, 1, kind)
    mode = rounding(builder)
    if mode:
        finish(builder, kind, _switched(builder, mode, "sqrt", kind, value))
        return
    if instruction.opcode == "rsqrt":
        value = _upper_word(builder, kind, value)
    root = builder.call(intrinsic("sqrt", kind), kind.llvm, value)
    if instruction.opcode == "rsqrt":
        root = _upper_word(builder, kind, builder.let(f"fdiv {kind.llvm} 1.0, {root}"))
    finish(builder, kind, root)
