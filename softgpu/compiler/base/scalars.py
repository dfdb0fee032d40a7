"""PTX's fundamental types and what they are in LLVM."""

from __future__ import annotations

from cuda_api.record import record


@record
class Type:
    """`kind` is one of u, s, b (bits), f, bf, p (predicate), x (a packed pair of floats)."""

    name: str
    kind: str
    bits: int
    llvm: str

    @property
    def is_signed(self) -> bool:
        return self.kind == "s"

    @property
    def is_float(self) -> bool:
        return self.kind in ("f", "bf", "x")

    @property
    def integer(self) -> str:
        """The LLVM integer of the same width."""
        return f"i{self.bits}"

    @property
    def size_bytes(self) -> int:
        return (self.bits + 7) // 8


TYPES: dict[str, Type] = {"pred": Type("pred", "p", 1, "i1")}
for _bits in (8, 16, 32, 64, 128):
    for _kind in "usb":
        TYPES[f"{_kind}{_bits}"] = Type(f"{_kind}{_bits}", _kind, _bits, f"i{_bits}")
TYPES["f16"] = Type("f16", "f", 16, "half")
TYPES["bf16"] = Type("bf16", "bf", 16, "bfloat")
TYPES["f32"] = Type("f32", "f", 32, "float")
TYPES["tf32"] = Type("tf32", "f", 32, "float")
TYPES["f64"] = Type("f64", "f", 64, "double")
TYPES["f16x2"] = Type("f16x2", "x", 32, "<2 x half>")
TYPES["bf16x2"] = Type("bf16x2", "x", 32, "<2 x bfloat>")

BITS_OF_LLVM = {
    "i1": 1,
    "half": 16,
    "bfloat": 16,
    "float": 32,
    "double": 64,
    "ptr": 64,
    "<2 x half>": 32,
    "<2 x bfloat>": 32,
    **{f"i{bits}": bits for bits in (8, 16, 32, 64, 128)},
}
