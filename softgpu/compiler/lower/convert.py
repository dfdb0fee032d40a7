"""
cvt: between all scalar types, with every rounding and saturation.

A float that becomes an integer saturates; NaN gives 0, or the number with only its top bit set where source or destination has 64 bits, as the
PTX manual says.
"""

from __future__ import annotations

from cuda_api.ptx.syntax import Instruction
from softgpu.compiler.base.scalars import TYPES, Type
from softgpu.compiler.lower.eights import is_of_eights, lower_eights
from softgpu.compiler.lower.floating import directed, flush, intrinsic, rectified, saturated
from softgpu.compiler.text.builder import Builder
from softgpu.compiler.text.registry import lowers

_ALLOWED = frozenset(("rn", "rna", "rz", "rm", "rp", "rni", "rzi", "rmi", "rpi", "ftz", "sat", "relu"))
_INTEGER_ROUNDING = {"rni": "roundeven", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}
_DIRECTED = ("rz", "rm", "rp")
_TF32_NAN = 0x7FFFE000
_PACKED_BITS = {f"{sign}{bits}": bits for sign in "us" for bits in (2, 4, 8, 16)}


@lowers("cvt")
def lower_cvt(builder: Builder, instruction: Instruction) -> None:
    if builder.has("pack"):
        _pack(builder, instruction.modifiers)
        return
    if is_of_eights(instruction):
        lower_eights(builder, instruction)
        return
    builder.check_modifiers(_ALLOWED)
    types = builder.types()
    if len(types) != 2:
        raise builder.unsupported()
    target, source = types
    destination, *operands = builder.operands(2, 3)
    if target.kind == "x" or source.kind == "x":
        _pair(builder, target, source)
        return
    if target.name == "tf32":
        builder.write(destination, _to_tf32(builder, builder.read(operands[0], "float")), "i32")
        return
    value = builder.read(operands[0], source.llvm if source.is_float else source.integer)
    value, llvm = _converted(builder, target, source, value)
    builder.write(destination, value, llvm, signed=target.is_signed)


def _converted(builder: Builder, target: Type, source: Type, value: str) -> tuple[str, str]:
    if source.llvm == "float" and builder.has("ftz") and not (target.is_float and target.bits == 16):
        value = flush(builder, source, value)  # on its way to f16 an H200 rounds a subnormal number, .ftz or not
    if source.is_float:
        if target.is_float:
            result = _float_to_float(builder, target, source, value)
            return _finished(builder, target, result), target.llvm
        return _float_to_integer(builder, target, source, value), target.integer
    if target.is_float:
        return _finished(builder, target, _integer_to_float(builder, target, source, value)), target.llvm
    return _integer_to_integer(builder, target, source, value), target.integer


def _finished(builder: Builder, target: Type, value: str) -> str:
    if target.llvm == "float" and builder.has("ftz"):
        value = flush(builder, target, value)
    if builder.has("sat"):
        value = saturated(builder, target, value)
    if builder.has("relu"):
        value = rectified(builder, target, value)
    return value


def _mode(builder: Builder) -> str:
    return next((mode for mode in _DIRECTED if builder.has(mode)), "")


def _float_to_float(builder: Builder, target: Type, source: Type, value: str) -> str:
    whole = next((name for word, name in _INTEGER_ROUNDING.items() if builder.has(word)), "")
    if whole:
        value = builder.call(intrinsic(whole, source), source.llvm, value)
    if target.llvm == source.llvm:
        return value
    if target.bits > source.bits:
        return widened(builder, target.llvm, source.llvm, value)
    return narrowed(builder, target.llvm, source.llvm, value, _mode(builder))


def widened(builder: Builder, target: str, source: str, value: str) -> str:
    """Exact. From 16 bits by way of f32, which every host converts by itself."""
    if source in ("half", "bfloat") and target == "double":
        value, source = builder.let(f"fpext {source} {value} to float"), "float"
    return builder.let(f"fpext {source} {value} to {target}")


def narrowed(builder: Builder, target: str, source: str, value: str, mode: str) -> str:
    """Rounded once, by `mode` or to nearest even."""
    if target in ("half", "bfloat"):
        if source in ("half", "bfloat"):
            value, source = builder.let(f"fpext {source} {value} to float"), "float"
        if source == "double":
            value, source = builder.let(f"call float @{builder.helper('sgp.odd')}(double {value}, double 0.0)"), "float"
    if mode:
        return directed(builder, mode, target, value, "0.0")
    return builder.let(f"fptrunc {source} {value} to {target}")


def _integer_to_float(builder: Builder, target: Type, source: Type, value: str) -> str:
    convert = "sitofp" if source.is_signed else "uitofp"
    mode = _mode(builder)
    if target.bits == 16:
        return _integer_to_narrow(builder, target, source, value, mode)
    if not mode or source.bits < 32 or (source.bits == 32 and target.bits == 64):
        return builder.let(f"{convert} {source.integer} {value} to {target.llvm}")
    if source.bits == 32:
        wide = builder.let(f"{convert} i32 {value} to double")
        return directed(builder, mode, "float", wide, "0.0")
    high, low = _halves(builder, source, value)
    both = builder.let(f"call {{ double, double }} @{builder.helper('sgp.two_sum')}(double {high}, double {low})")
    total = builder.let(f"extractvalue {{ double, double }} {both}, 0")
    error = builder.let(f"extractvalue {{ double, double }} {both}, 1")
    return directed(builder, mode, target.llvm, total, error)


def _halves(builder: Builder, source: Type, value: str) -> tuple[str, str]:
    """A 64-bit integer as the sum of two doubles, both exact."""
    upper = builder.let(f"{'ashr' if source.is_signed else 'lshr'} i64 {value}, 32")
    high = builder.let(f"{'sitofp' if source.is_signed else 'uitofp'} i64 {upper} to double")
    high = builder.let(f"fmul double {high}, 0x41F0000000000000")
    low = builder.let(f"uitofp i32 {builder.let(f'trunc i64 {value} to i32')} to double")
    return high, low


def _integer_to_narrow(builder: Builder, target: Type, source: Type, value: str, mode: str) -> str:
    """To f16 or bf16: by way of f32 rounded to odd."""
    if source.bits < 64:
        total = builder.let(f"{'sitofp' if source.is_signed else 'uitofp'} {source.integer} {value} to double")
        error = "0.0"
    else:
        high, low = _halves(builder, source, value)
        both = builder.let(f"call {{ double, double }} @{builder.helper('sgp.two_sum')}(double {high}, double {low})")
        total = builder.let(f"extractvalue {{ double, double }} {both}, 0")
        error = builder.let(f"extractvalue {{ double, double }} {both}, 1")
    odd = builder.let(f"call float @{builder.helper('sgp.odd')}(double {total}, double {error})")
    return narrowed(builder, target.llvm, "float", odd, mode)


def _float_to_integer(builder: Builder, target: Type, source: Type, value: str) -> str:
    llvm = source.llvm
    if source.bits == 16:
        value, llvm = builder.let(f"fpext {llvm} {value} to float"), "float"
    suffix = "f64" if llvm == "double" else "f32"
    whole = next((name for word, name in _INTEGER_ROUNDING.items() if builder.has(word)), "")
    if not whole:
        raise builder.invalid("a conversion to an integer needs a rounding")
    if whole != "trunc":
        value = builder.call(f"llvm.{whole}.{suffix}", llvm, value)
    name = f"llvm.fpto{'s' if target.is_signed else 'u'}i.sat.{target.integer}.{suffix}"
    builder.frame.unit.declare(name, target.integer, (llvm,))
    result = builder.let(f"call {target.integer} @{name}({llvm} {value})")
    if source.bits == 64 or target.bits == 64:
        is_nan = builder.let(f"fcmp uno {llvm} {value}, 0.0")
        result = builder.select(is_nan, target.integer, str(-(1 << (target.bits - 1))), result)
    return result


def _integer_to_integer(builder: Builder, target: Type, source: Type, value: str) -> str:
    if builder.has("sat"):
        value = _clamped(builder, target, source, value)
    if target.bits <= source.bits:
        return builder.convert_bits(value, source.integer, target.integer)
    return builder.convert_bits(value, source.integer, target.integer, signed=source.is_signed)


def _clamped(builder: Builder, target: Type, source: Type, value: str) -> str:
    """Into the target's range, still in the source's type."""
    llvm = source.integer
    most = (1 << (target.bits - target.is_signed)) - 1
    least = -(1 << (target.bits - 1)) if target.is_signed else 0
    if source.is_signed:
        if most < (1 << (source.bits - 1)) - 1:
            value = builder.call(f"llvm.smin.{llvm}", llvm, value, str(most))
        if least > -(1 << (source.bits - 1)):
            value = builder.call(f"llvm.smax.{llvm}", llvm, value, str(least))
    elif most < (1 << source.bits) - 1:
        value = builder.call(f"llvm.umin.{llvm}", llvm, value, str(most))
    return value


def _pair(builder: Builder, target: Type, source: Type) -> None:
    """Two floats to a packed pair: the first operand goes to the upper half."""
    destination, *operands = builder.operands(3)
    if target.kind != "x" or source.llvm != "float":
        raise builder.unsupported()
    element = TYPES[target.name.removesuffix("x2")]
    halves = [_converted(builder, element, source, builder.read(operand, "float"))[0] for operand in operands]
    vector = builder.let(f"insertelement {target.llvm} poison, {element.llvm} {halves[1]}, i32 0")
    vector = builder.let(f"insertelement {target.llvm} {vector}, {element.llvm} {halves[0]}, i32 1")
    builder.write(destination, vector, target.llvm)


def _pack(builder: Builder, modifiers: tuple[str, ...]) -> None:
    """Two saturated integers, the first above the second; of narrow ones the third operand's lower bits above both."""
    kind = modifiers[2] if len(modifiers) > 2 else ""
    bits = _PACKED_BITS.get(kind, 0)
    is_narrow = bits < 16
    if modifiers != ("pack", "sat", kind, "s32", *(("b32",) if is_narrow else ())) or not bits:
        raise builder.unsupported()
    destination, upper, lower, *rest = builder.operands(3 + is_narrow)
    least = -(1 << (bits - 1)) if kind[0] == "s" else 0
    result = builder.let(f"shl i32 {builder.read(rest[0], 'i32')}, {2 * bits}") if rest else "0"
    for operand, place in ((lower, 0), (upper, bits)):
        value = builder.call("llvm.smax.i32", "i32", builder.read(operand, "i32"), str(least))
        value = builder.call("llvm.smin.i32", "i32", value, str(least + (1 << bits) - 1))
        value = builder.let(f"and i32 {value}, {(1 << bits) - 1}")
        result = builder.let(f"or i32 {result}, {builder.let(f'shl i32 {value}, {place}')}")
    builder.write(destination, result, "i32")


def _to_tf32(builder: Builder, value: str) -> str:
    """
    The upper 19 bits, rounded to nearest: ties away from zero (.rna) or to even (.rn), or cut off (.rz).

    A NaN is the canonical one, but .rna cuts it off, even to an infinity, as on an H200.
    """
    bits = builder.let(f"bitcast float {value} to i32")
    if builder.has("rz"):
        rounded = bits
    else:
        half = "4096"
        if builder.has("rn"):
            last = builder.let(f"and i32 {builder.let(f'lshr i32 {bits}, 13')}, 1")
            half = builder.let(f"add i32 {last}, 4095")
        rounded = builder.let(f"add i32 {bits}, {half}")
    is_nan = builder.let(f"fcmp uno float {value}, 0.0")
    special = builder.let(f"and i32 {bits}, -8192") if builder.has("rna") else str(_TF32_NAN)
    return builder.select(is_nan, "i32", special, builder.let(f"and i32 {rounded}, -8192"))
