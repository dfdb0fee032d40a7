"""
LLVM text of what no single LLVM operation does: directed rounding, the approximations, odd rounding for the narrow types.

Helpers are added to a module when something uses them, and inlined. Constants are written as bits.
"""

from __future__ import annotations

import math
import struct

from cuda_api.record import record

_ATTRIBUTES = "alwaysinline nounwind memory(none)"


@record
class Helper:
    text: str
    declarations: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()


HELPERS: dict[str, Helper] = {}

_ROUNDING_NUMBER = {"rz": 0, "rp": 2, "rm": 3}
_SUFFIX = {"float": "f32", "double": "f64"}
_BITS = {"half": 16, "bfloat": 16, "float": 32, "double": 64}


def _double(value: float) -> str:
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def _float(value: float) -> str:
    """A double's bits that a float holds exactly, as LLVM wants its floats."""
    return _double(struct.unpack("<f", struct.pack("<f", value))[0])


def directed_helper(mode: str, target: str) -> str:
    """The name of the helper that rounds value + error to `target` by rz, rm or rp; made when first asked for."""
    name = f"sgp.directed.{mode}.{target}"
    if name not in HELPERS:
        HELPERS[name] = Helper(_directed_text(name, mode, target))
    return name


def _directed_text(name: str, mode: str, target: str) -> str:
    source = "double" if target in ("float", "double") else "float"
    bits = f"i{_BITS[target]}"
    least = {"rm": -(1 << (_BITS[target] - 1)) + 1, "rp": 1}
    same = source == target
    lines = [f"define internal {target} @{name}({source} %s, {source} %e) {_ATTRIBUTES} {{"]
    lines.append(f"  %r = {f'fadd {source} %s, -0.0' if same else f'fptrunc {source} %s to {target}'}")
    lines.append(f"  %w = {f'fadd {source} %s, -0.0' if same else f'fpext {target} %r to {source}'}")
    lines.append(f"  %same = fcmp oeq {source} %w, %s")
    lines.append(f"  %above = fcmp ogt {source} %w, %s")
    lines.append(f"  %below = fcmp olt {source} %w, %s")
    lines.append(f"  %e.neg = fcmp olt {source} %e, 0.0")
    lines.append(f"  %e.pos = fcmp ogt {source} %e, 0.0")
    lines.append("  %above.e = and i1 %same, %e.neg")
    lines.append("  %below.e = and i1 %same, %e.pos")
    lines.append("  %too.high = or i1 %above, %above.e")
    lines.append("  %too.low = or i1 %below, %below.e")
    lines.append(f"  %i = bitcast {target} %r to {bits}")
    lines.append(f"  %minus = sub {bits} %i, 1")
    lines.append(f"  %plus = add {bits} %i, 1")
    lines.append(f"  %pos = fcmp ogt {target} %r, 0.0")
    lines.append(f"  %neg = fcmp olt {target} %r, 0.0")
    if mode == "rz":
        lines.append("  %high = and i1 %pos, %too.high")
        lines.append("  %low = and i1 %neg, %too.low")
        lines.append("  %adjust = or i1 %high, %low")
        lines.append(f"  %n = select i1 %adjust, {bits} %minus, {bits} %i")
    else:
        away, towards = ("%minus", "%plus") if mode == "rm" else ("%plus", "%minus")
        lines.append(f"  %n.neg = select i1 %neg, {bits} {towards}, {bits} {least[mode]}")
        lines.append(f"  %next = select i1 %pos, {bits} {away}, {bits} %n.neg")
        lines.append(f"  %n = select i1 {'%too.high' if mode == 'rm' else '%too.low'}, {bits} %next, {bits} %i")
    lines.append(f"  %out = bitcast {bits} %n to {target}")
    lines.append(f"  ret {target} %out\n}}")
    return "\n".join(lines)


def rounded_helper(mode: str, operation: str, llvm: str) -> str:
    """The name of the helper that does one operation with the host's rounding mode switched."""
    name = f"sgp.{operation}.{mode}.{_SUFFIX[llvm]}"
    if name not in HELPERS:
        count = {"fma": 3, "sqrt": 1}.get(operation, 2)
        arguments = [f"%v{index}" for index in range(count)]
        intrinsic = f"llvm.experimental.constrained.{operation}.{_SUFFIX[llvm]}"
        typed = ", ".join(f"{llvm} {argument}" for argument in arguments)
        HELPERS[name] = Helper(
            f"define internal {llvm} @{name}({typed}) noinline nounwind strictfp {{\n"
            f"  call void @llvm.set.rounding(i32 {_ROUNDING_NUMBER[mode]}) strictfp\n"
            f'  %r = call {llvm} @{intrinsic}({typed}, metadata !"round.dynamic", metadata !"fpexcept.ignore") strictfp\n'
            f"  call void @llvm.set.rounding(i32 1) strictfp\n  ret {llvm} %r\n}}",
            (
                "declare void @llvm.set.rounding(i32)",
                f"declare {llvm} @{intrinsic}({', '.join([llvm] * count)}, metadata, metadata)",
            ),
        )
    return name


def atomic_helper(operation: str, llvm: str) -> str:
    """
    The name of the helper that updates floats of 16 bits, or a pair, in memory and returns what was there.

    LLVM's own loop compares the bits after a trip through f32, which quiets NaNs: on a signalling one it never ends.
    """
    name = f"sgp.atomic.{operation}.{llvm.strip('<>').replace(' ', '')}"
    if name not in HELPERS:
        bits = "i32" if llvm.startswith("<") else "i16"
        HELPERS[name] = Helper(
            f"""define internal {bits} @{name}(ptr %p, {llvm} %v) nounwind {{
entry:
  %first = load atomic {bits}, ptr %p monotonic, align {int(bits[1:]) // 8}
  br label %again
again:
  %old = phi {bits} [ %first, %entry ], [ %seen, %again ]
  %f = bitcast {bits} %old to {llvm}
  %sum = {operation} {llvm} %f, %v
  %new = bitcast {llvm} %sum to {bits}
  %both = cmpxchg ptr %p, {bits} %old, {bits} %new seq_cst seq_cst
  %seen = extractvalue {{ {bits}, i1 }} %both, 0
  %done = extractvalue {{ {bits}, i1 }} %both, 1
  br i1 %done, label %end, label %again
end:
  ret {bits} %old
}}"""
        )
    return name


# atom.add.f32 takes subnormal numbers, in memory and of its own, for zeros, unless %keeps. Returns the bits that were there.
HELPERS["sgp.atomic.fadd.float"] = Helper(
    """define internal float @sgp.atomic.flushed(float %x, i1 %keeps) alwaysinline nounwind memory(none) {
  %magnitude = call float @llvm.fabs.f32(float %x)
  %normal = fcmp uge float %magnitude, 0x3810000000000000
  %stays = or i1 %normal, %keeps
  %zero = call float @llvm.copysign.f32(float 0.0, float %x)
  %out = select i1 %stays, float %x, float %zero
  ret float %out
}
define internal i32 @sgp.atomic.fadd.float(ptr %p, float %v, i1 %keeps) nounwind {
entry:
  %addend = call float @sgp.atomic.flushed(float %v, i1 %keeps)
  %first = load atomic i32, ptr %p monotonic, align 4
  br label %again
again:
  %old = phi i32 [ %first, %entry ], [ %seen, %again ]
  %f = bitcast i32 %old to float
  %there = call float @sgp.atomic.flushed(float %f, i1 %keeps)
  %sum = fadd float %there, %addend
  %flushed = call float @sgp.atomic.flushed(float %sum, i1 %keeps)
  %new = bitcast float %flushed to i32
  %both = cmpxchg ptr %p, i32 %old, i32 %new seq_cst seq_cst
  %seen = extractvalue { i32, i1 } %both, 0
  %done = extractvalue { i32, i1 } %both, 1
  br i1 %done, label %end, label %again
end:
  ret i32 %old
}""",
    ("declare float @llvm.fabs.f32(float)", "declare float @llvm.copysign.f32(float, float)"),
)

_TWO_SUM = """  %s = fadd double %a, %b
  %bb = fsub double %s, %a
  %back = fsub double %s, %bb
  %ea = fsub double %a, %back
  %eb = fsub double %b, %bb
  %e = fadd double %ea, %eb"""

# What LLVM calls for a conversion to bf16, where the C compiler's runtime is too old to have it.
HELPERS["__truncsfbf2"] = Helper(
    """@llvm.used = appending global [1 x ptr] [ptr @__truncsfbf2], section "llvm.metadata"
define weak hidden bfloat @__truncsfbf2(float %x) nounwind {
  %i = bitcast float %x to i32
  %shifted = lshr i32 %i, 16
  %last = and i32 %shifted, 1
  %half = add i32 %last, 32767
  %rounded = add i32 %i, %half
  %high = lshr i32 %rounded, 16
  %nan = fcmp uno float %x, 0.0
  %n = select i1 %nan, i32 32767, i32 %high
  %narrow = trunc i32 %n to i16
  %out = bitcast i16 %narrow to bfloat
  ret bfloat %out
}"""
)
HELPERS["sgp.two_sum"] = Helper(
    f"""define internal {{ double, double }} @sgp.two_sum(double %a, double %b) {_ATTRIBUTES} {{
{_TWO_SUM}
  %r0 = insertvalue {{ double, double }} poison, double %s, 0
  %r1 = insertvalue {{ double, double }} %r0, double %e, 1
  ret {{ double, double }} %r1
}}"""
)
# Rounding down, an exact zero sum is -0 unless both addends are +0.
HELPERS["sgp.two_sum.down"] = Helper(
    f"""define internal {{ double, double }} @sgp.two_sum.down(double %a, double %b) {_ATTRIBUTES} {{
{_TWO_SUM}
  %ia = bitcast double %a to i64
  %ib = bitcast double %b to i64
  %any = or i64 %ia, %ib
  %sign = and i64 %any, -9223372036854775808
  %zero = bitcast i64 %sign to double
  %is.zero = fcmp oeq double %s, 0.0
  %t = select i1 %is.zero, double %zero, double %s
  %r0 = insertvalue {{ double, double }} poison, double %t, 0
  %r1 = insertvalue {{ double, double }} %r0, double %e, 1
  ret {{ double, double }} %r1
}}"""
)
# To f32, rounded to odd: a second rounding to f16 or bf16 is then the only one.
HELPERS["sgp.odd"] = Helper(
    f"""define internal float @sgp.odd(double %s, double %e) {_ATTRIBUTES} {{
  %r = call float @sgp.directed.rz.float(double %s, double %e)
  %w = fpext float %r to double
  %same = fcmp oeq double %w, %s
  %exact = fcmp oeq double %e, 0.0
  %both = and i1 %same, %exact
  %nan = fcmp uno double %s, %e
  %keep = or i1 %both, %nan
  %i = bitcast float %r to i32
  %odd = or i32 %i, 1
  %n = select i1 %keep, i32 %i, i32 %odd
  %out = bitcast i32 %n to float
  ret float %out
}}""",
    needs=(directed_helper("rz", "float"),),
)
for _narrow in ("half", "bfloat"):
    HELPERS[f"sgp.fma.{_narrow}"] = Helper(
        f"""define internal {_narrow} @sgp.fma.{_narrow}({_narrow} %x, {_narrow} %y, {_narrow} %z) {_ATTRIBUTES} {{
  %x.f = fpext {_narrow} %x to float
  %y.f = fpext {_narrow} %y to float
  %z.f = fpext {_narrow} %z to float
  %x.d = fpext float %x.f to double
  %y.d = fpext float %y.f to double
  %b = fpext float %z.f to double
  %a = fmul double %x.d, %y.d
{_TWO_SUM}
  %odd = call float @sgp.odd(double %s, double %e)
  %out = fptrunc float %odd to {_narrow}
  ret {_narrow} %out
}}""",
        needs=("sgp.odd",),
    )


def _polynomial(lines: list[str], name: str, llvm: str, x: str, coefficients: list[float]) -> str:
    """Horner's scheme with fma, highest coefficient first."""
    show = _double if llvm == "double" else _float
    value = show(coefficients[0])
    for index, coefficient in enumerate(coefficients[1:]):
        result = f"%{name}{index}"
        lines.append(
            f"  {result} = call {llvm} @llvm.fma.{_SUFFIX[llvm]}({llvm} {value}, {llvm} {x}, {llvm} {show(coefficient)})"
        )
        value = result
    return value


_FMA_F32 = "declare float @llvm.fma.f32(float, float, float)"
_FMA_F64 = "declare double @llvm.fma.f64(double, double, double)"


def _ex2() -> str:
    """2^x: x = n + f with |f| <= 1/2, a polynomial in f, and two scalings so that subnormal results round once."""
    lines = [f"define internal float @sgp.ex2(float %x) {_ATTRIBUTES} {{"]
    lines += [
        f"  %is.low = fcmp olt float %x, {_float(-160)}",
        f"  %x1 = select i1 %is.low, float {_float(-160)}, float %x",
        f"  %is.high = fcmp ogt float %x1, {_float(130)}",
        f"  %x2 = select i1 %is.high, float {_float(130)}, float %x1",
        f"  %t = fadd float %x2, {_float(12582912)}",
        f"  %n = fsub float %t, {_float(12582912)}",
        "  %f = fsub float %x2, %n",
        "  %i.t = bitcast float %t to i32",
        "  %i = sub i32 %i.t, 1262485504",
    ]
    coefficients = [math.log(2) ** k / math.factorial(k) for k in range(7, -1, -1)]
    value = _polynomial(lines, "p", "float", "%f", coefficients)
    lines += [
        "  %i1 = ashr i32 %i, 1",
        "  %i2 = sub i32 %i, %i1",
        "  %b1 = add i32 %i1, 127",
        "  %b2 = add i32 %i2, 127",
        "  %s1 = shl i32 %b1, 23",
        "  %s2 = shl i32 %b2, 23",
        "  %f1 = bitcast i32 %s1 to float",
        "  %f2 = bitcast i32 %s2 to float",
        f"  %r1 = fmul float {value}, %f1",
        "  %r2 = fmul float %r1, %f2",
        "  ret float %r2\n}",
    ]
    return "\n".join(lines)


def _lg2() -> str:
    """log2 through f64: exponent, and the series of atanh for a mantissa within sqrt(1/2) and sqrt(2)."""
    half_root = struct.unpack("<q", struct.pack("<d", math.sqrt(0.5)))[0]
    lines = [f"define internal float @sgp.lg2(float %x) {_ATTRIBUTES} {{"]
    lines += [
        "  %d = fpext float %x to double",
        "  %b = bitcast double %d to i64",
        f"  %o = sub i64 %b, {half_root}",
        "  %k = ashr i64 %o, 52",
        "  %ks = shl i64 %k, 52",
        "  %mb = sub i64 %b, %ks",
        "  %m = bitcast i64 %mb to double",
        "  %k32 = trunc i64 %k to i32",
        "  %kd = sitofp i32 %k32 to double",
        "  %m.minus = fsub double %m, 1.0",
        "  %m.plus = fadd double %m, 1.0",
        "  %s = fdiv double %m.minus, %m.plus",
        "  %z = fmul double %s, %s",
    ]
    value = _polynomial(lines, "p", "double", "%z", [2 / math.log(2) / n for n in (13, 11, 9, 7, 5, 3, 1)])
    lines += [
        f"  %l = call double @llvm.fma.f64(double {value}, double %s, double %kd)",
        "  %f = fptrunc double %l to float",
        "  %is.zero = fcmp oeq float %x, 0.0",
        "  %r1 = select i1 %is.zero, float 0xFFF0000000000000, float %f",
        "  %is.neg = fcmp olt float %x, 0.0",
        "  %r2 = select i1 %is.neg, float 0x7FF8000000000000, float %r1",
        "  %is.finite = fcmp olt float %x, 0x7FF0000000000000",
        "  %r3 = select i1 %is.finite, float %r2, float %x",
        "  ret float %r3\n}",
    ]
    return "\n".join(lines)


def _sine(name: str, quarter: float) -> str:
    """sin(x + quarter * pi / 2) through f64: reduced by multiples of pi / 2, then one of two polynomials."""
    high = struct.unpack("<d", struct.pack("<Q", 0x3FF921FB54442D18))[0]
    lines = [f"define internal float @{name}(float %x) {_ATTRIBUTES} {{"]
    lines += [
        "  %d = fpext float %x to double",
        f"  %q = fmul double %d, {_double(2 / math.pi)}",
        "  %k = call double @llvm.roundeven.f64(double %q)",
        "  %nk = fneg double %k",
        f"  %r1 = call double @llvm.fma.f64(double %nk, double {_double(high)}, double %d)",
        f"  %r2 = call double @llvm.fma.f64(double %nk, double {_double(6.123233995736766e-17)}, double %r1)",
        "  %whole.turn = fcmp oeq double %k, 0.0",
        "  %r0 = select i1 %whole.turn, double %d, double %r2",
        f"  %low = fcmp olt double %r0, {_double(-1)}",
        f"  %r3 = select i1 %low, double {_double(-1)}, double %r0",
        f"  %high = fcmp ogt double %r3, {_double(1)}",
        f"  %r = select i1 %high, double {_double(1)}, double %r3",
        "  %z = fmul double %r, %r",
    ]
    sine = _polynomial(lines, "s", "double", "%z", [(-1) ** n / math.factorial(2 * n + 1) for n in range(6, -1, -1)])
    cosine = _polynomial(lines, "c", "double", "%z", [(-1) ** n / math.factorial(2 * n) for n in range(7, -1, -1)])
    lines += [
        f"  %sine = fmul double {sine}, %r",
        f"  %kq = fadd double %k, {_double(quarter)}",
        f"  %k4 = fmul double %kq, {_double(0.25)}",
        "  %whole = call double @llvm.floor.f64(double %k4)",
        "  %part = fsub double %k4, %whole",
        f"  %is.1 = fcmp oeq double %part, {_double(0.25)}",
        f"  %is.3 = fcmp oeq double %part, {_double(0.75)}",
        "  %is.cos = or i1 %is.1, %is.3",
        f"  %v = select i1 %is.cos, double {cosine}, double %sine",
        f"  %is.back = fcmp oge double %part, {_double(0.5)}",
        "  %nv = fneg double %v",
        "  %u = select i1 %is.back, double %nv, double %v",
        "  %f = fptrunc double %u to float",
        "  ret float %f\n}",
    ]
    return "\n".join(lines)


def _tanh() -> str:
    lines = [f"define internal float @sgp.tanh(float %x) {_ATTRIBUTES} {{"]
    lines += [
        "  %a = call float @llvm.fabs.f32(float %x)",
        f"  %y = fmul float %a, {_float(-2 / math.log(2))}",
        "  %e = call float @sgp.ex2(float %y)",
        "  %n = fsub float 1.0, %e",
        "  %d = fadd float 1.0, %e",
        "  %q = fdiv float %n, %d",
        "  %big = call float @llvm.copysign.f32(float %q, float %x)",
        "  %z = fmul float %x, %x",
        f"  %t = fmul float %z, {_float(-1 / 3)}",
        "  %small = call float @llvm.fma.f32(float %t, float %x, float %x)",
        f"  %is.small = fcmp olt float %a, {_float(0.04)}",
        "  %r = select i1 %is.small, float %small, float %big",
        "  ret float %r\n}",
    ]
    return "\n".join(lines)


_REDUCTION = ("declare double @llvm.roundeven.f64(double)", "declare double @llvm.floor.f64(double)", _FMA_F64)
HELPERS["sgp.ex2"] = Helper(_ex2(), (_FMA_F32,))
HELPERS["sgp.lg2"] = Helper(_lg2(), (_FMA_F64,))
HELPERS["sgp.sin"] = Helper(_sine("sgp.sin", 0), _REDUCTION)
HELPERS["sgp.cos"] = Helper(_sine("sgp.cos", 1), _REDUCTION)
HELPERS["sgp.tanh"] = Helper(
    _tanh(),
    ("declare float @llvm.fabs.f32(float)", "declare float @llvm.copysign.f32(float, float)", _FMA_F32),
    ("sgp.ex2",),
)
# The offset-th set bit of mask, counted from base, upwards or downwards; all ones where there is none.
HELPERS["sgp.fns"] = Helper(
    """define internal i32 @sgp.fns(i32 %mask, i32 %base, i32 %offset) nounwind memory(none) {
entry:
  %up = icmp sge i32 %offset, 0
  %step = select i1 %up, i32 1, i32 -1
  %left0 = call i32 @llvm.abs.i32(i32 %offset, i1 false)
  %is.here = icmp eq i32 %offset, 0
  %wanted = select i1 %is.here, i32 1, i32 %left0
  br label %loop
loop:
  %at = phi i32 [ %base, %entry ], [ %at.next, %more ]
  %left = phi i32 [ %wanted, %entry ], [ %left.next, %more ]
  %inside = icmp ult i32 %at, 32
  br i1 %inside, label %look, label %none
look:
  %moved = lshr i32 %mask, %at
  %bit = and i32 %moved, 1
  %left.next = sub i32 %left, %bit
  %found = icmp eq i32 %left.next, 0
  br i1 %found, label %here, label %more
more:
  %at.next = add i32 %at, %step
  br i1 %is.here, label %none, label %loop
here:
  ret i32 %at
none:
  ret i32 -1
}""",
    ("declare i32 @llvm.abs.i32(i32, i1)",),
)
