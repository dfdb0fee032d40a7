"""
Kernels of one wmma, mma, ldmatrix or their kin, which take registers as words from memory and give them back; and what is put there.

Each takes (u64 out, u64 in) and is for one warp, as run_kernels.py runs them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

BITS = {"f16": 16, "bf16": 16, "tf32": 32, "f32": 32, "f64": 64, "s32": 32, "s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1}
RANGES = {"s8": (-128, 128), "u8": (0, 256), "s4": (-8, 8), "u4": (0, 16), "b1": (0, 2)}
HEADER = ".version 8.0\n.target sm_80\n.address_size 64\n"
WARP = 32


@dataclass(frozen=True)
class Product:
    """One form; `b1` names its operation in `words`."""

    shape: str
    a: str
    b: str
    c: str
    d: str
    words: str = ""

    @property
    def name(self) -> str:
        return "_".join((self.shape, self.d, self.a, self.b, self.c, *self.words.strip(".").split("."))).strip("_")

    @property
    def dimensions(self) -> tuple[int, int, int]:
        rows, rest = self.shape[1:].split("n")
        columns, depth = rest.split("k")
        return int(rows), int(columns), int(depth)

    def matrices(self, generator: np.random.Generator, picking: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """
        Whole numbers are any. Of floats the elements of one factor are all different, and the other, `picking`, has one 1 in each row or
        column, so that the product is elements of the former.
        """
        m, n, k = self.dimensions
        if self.a in RANGES:
            a, b = (generator.integers(*RANGES[kind], size) for kind, size in ((self.a, (m, k)), (self.b, (k, n))))
        else:
            a, b = _numbered(generator, (m, k)), _numbered(generator, (k, n))
            if picking == "a":
                a = np.eye(k, dtype=np.int64)[generator.integers(0, k, m)]
            else:
                b = np.eye(k, dtype=np.int64)[:, generator.integers(0, k, n)]
        return a, b, _numbered(generator, (m, n))

    def expected(self, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        if self.a == "b1":
            a, b = a.astype(np.int64), b.astype(np.int64)
            return np.asarray((a @ b if "and" in self.words else a @ (1 - b) + (1 - a) @ b) + c)
        return np.asarray(a @ b + c)


def _numbered(generator: np.random.Generator, size: tuple[int, int]) -> np.ndarray:
    """Numbers that bf16 has; more than those have the same a second time."""
    return generator.permutation(size[0] * size[1]).reshape(size) % 256


def packed(kind: str, values: np.ndarray) -> np.ndarray:
    """32-bit words of elements, the last axis packed."""
    if kind in ("f16", "f32", "f64"):
        numbers = np.ascontiguousarray(values.astype({"f16": np.float16, "f32": np.float32, "f64": np.float64}[kind]))
        return numbers.view(np.uint32)
    if kind == "tf32":  # the lower bits are not looked at
        return np.ascontiguousarray(values.astype(np.float32)).view(np.uint32) | 0x1FFF
    if kind == "bf16":
        halves = (np.ascontiguousarray(values.astype(np.float32)).view(np.uint32) >> 16).astype(np.uint16)
        return np.ascontiguousarray(halves).view(np.uint32)
    bits = BITS[kind]
    if bits == 32:
        return np.ascontiguousarray(values.astype(np.int64) & 0xFFFFFFFF).astype(np.uint32)
    per_word = 32 // bits
    grouped = (values.astype(np.int64) & ((1 << bits) - 1)).reshape(*values.shape[:-1], -1, per_word)
    return np.asarray((grouped << (np.arange(per_word) * bits)).sum(-1)).astype(np.uint32)


def unpacked(kind: str, words: np.ndarray) -> np.ndarray:
    types = {"f16": np.float16, "f32": np.float32, "f64": np.float64, "s32": np.int32}
    return np.ascontiguousarray(words).view(types[kind])


def nr_words_of(kind: str, nr_elements: int) -> int:
    return nr_elements * BITS[kind] // 32


# Kernels


def _register_type(kind: str) -> str:
    return "f64" if kind == "f64" else "f32" if kind == "f32" else "b32"


def _registers(letter: str, kind: str, nr_words: int) -> tuple[str, list[str]]:
    names = [f"%{letter}{i}" for i in range(nr_words // (2 if kind == "f64" else 1))]
    return f"  .reg .{_register_type(kind)} {', '.join(names)};", names


def kernel(name: str, lines: list[str]) -> str:
    head = [
        f".visible .entry {name}(.param .u64 to, .param .u64 from) {{",
        "  .reg .b64 %out, %in, %own, %at; .reg .b32 %lane, %address; .shared .align 16 .b8 tile[1024];",
        "  ld.param.u64 %out, [to]; ld.param.u64 %in, [from]; mov.u32 %lane, %tid.x;",
    ]
    return "\n".join([*head, *lines, "  ret;", "}", ""])


def _moves(opcode: str, pointer: str, kind: str, names: list[str], start_bytes: int, lane_bytes: int) -> list[str]:
    """Registers of each lane, one after another, from memory or to it."""
    size = 8 if kind == "f64" else 4
    lines = [f"  mad.wide.u32 %at, %lane, {lane_bytes}, {pointer};"]
    for index, name in enumerate(names):
        place = f"[%at+{start_bytes + size * index}]"
        words = f"{place}, {name}" if opcode == "st" else f"{name}, {place}"
        lines.append(f"  {opcode}.global.{_register_type(kind)} {words};")
    return lines


def mma_kernel(product: Product) -> str:
    m, n, k = product.dimensions
    kinds = (product.a, product.b, product.c, product.d)
    counts = [nr_words_of(kind, total // WARP) for kind, total in zip(kinds, (m * k, k * n, m * n, m * n), strict=True)]
    lane_bytes = 4 * sum(counts[:3])
    lines, lists, start = [], [], 0
    for letter, kind, count in zip("abcd", kinds, counts, strict=True):
        declared, names = _registers(letter, kind, count)
        lines.append(declared)
        lists.append("{" + ", ".join(names) + "}")
        if letter != "d":
            lines += _moves("ld", "%in", kind, names, start, lane_bytes)
            start += 4 * count
    operation = product.words if product.a == "b1" else ""
    saturation = product.words if product.a != "b1" else ""
    types = f".{product.d}.{product.a}.{product.b}.{product.c}"
    lines.append(
        f"  mma.sync.aligned.{product.shape}.row.col{saturation}{types}{operation} "
        f"{lists[3]}, {lists[0]}, {lists[1]}, {lists[2]};"
    )
    lines += _moves("st", "%out", product.d, names, 0, 4 * counts[3])
    return kernel(f"mma_{product.name}", lines)


MMA = [
    *(Product(s, "f16", "f16", c, d) for s in ("m16n8k8", "m16n8k16") for c in ("f16", "f32") for d in ("f16", "f32")),
    *(Product(s, "bf16", "bf16", "f32", "f32") for s in ("m16n8k8", "m16n8k16")),
    *(Product(s, "tf32", "tf32", "f32", "f32") for s in ("m16n8k4", "m16n8k8")),
    *(Product(s, "f64", "f64", "f64", "f64") for s in ("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16")),
    *(
        Product(s, a, b, "s32", "s32", words)
        for s in ("m8n8k16", "m16n8k16", "m16n8k32")
        for a in ("s8", "u8")
        for b in ("s8", "u8")
        for words in ("", ".satfinite")
    ),
    *(
        Product(s, a, b, "s32", "s32")
        for s in ("m8n8k32", "m16n8k32", "m16n8k64")
        for a in ("s4", "u4")
        for b in ("s4", "u4")
    ),
    *(
        Product(s, "b1", "b1", "s32", "s32", words)
        for s in ("m8n8k128", "m16n8k128", "m16n8k256")
        for words in (".xor.popc", ".and.popc")
    ),
]


@dataclass(frozen=True)
class Whole:
    """A product of wmma: A, B and C in these orders, their lines `apart` elements longer than they need be."""

    product: Product
    orders: tuple[str, str, str, str]
    apart: int
    space: str = "global"

    @property
    def name(self) -> str:
        return f"wmma_{self.product.name}_{'_'.join(self.orders)}_{self.apart}_{self.space}"

    def strides(self) -> list[int]:
        m, n, k = self.product.dimensions
        lengths = {"row": (k, n, n, n), "col": (m, k, m, m)}
        return [lengths[order][place] + self.apart for place, order in enumerate(self.orders)]


def _fragment_registers(role: int, product: Product) -> int:
    m, n, k = product.dimensions
    kind = (product.a, product.b, product.c, product.d)[role]
    if kind == "f16" and role < 2:
        return 8
    return nr_words_of(kind, (m * k, k * n, m * n, m * n)[role] // WARP)


def stored(kind: str, matrix: np.ndarray, order: str, stride: int) -> np.ndarray:
    """Words of a matrix in memory; the gaps hold ones."""
    lines = matrix if order == "row" else matrix.T
    room = np.ones((lines.shape[0], stride), lines.dtype)
    room[:, : lines.shape[1]] = lines
    flat = np.append(room.ravel(), np.zeros(-room.size % 32, lines.dtype))
    return packed(kind, flat)


def wmma_kernel(whole: Whole) -> str:
    product = whole.product
    kinds = (product.a, product.b, product.c, product.d)
    lines: list[str] = []
    start, lists = 0, []
    m, n, k = product.dimensions
    shapes = ((m, k), (k, n), (m, n))
    for role, letter in enumerate("abcd"):
        declared, names = _registers(letter, kinds[role], _fragment_registers(role, product))
        lines.append(declared)
        lists.append("{" + ", ".join(names) + "}")
        stride = whole.strides()[role]
        stride_text = f", {stride}" if whole.apart else ""
        if letter == "d":
            continue
        words = stored(kinds[role], np.zeros(shapes[role], np.int64), whole.orders[role], stride).size
        lines.append(f"  add.s64 %at, %in, {4 * start};")
        head = f"wmma.load.{letter}.sync.aligned.{whole.orders[role]}.{product.shape}"
        lines += _loaded(whole.space, head, kinds[role], lists[role], stride_text, words)
        start += words
    kind = product.a
    types = f".{product.d}.{product.c}" if kind == "f16" else f".{product.d}.{product.a}.{product.b}.{product.c}"
    operation = f"{product.words}" if kind == "b1" else ""
    saturation = product.words if kind != "b1" else ""
    lines.append(
        f"  wmma.mma{operation}.sync.aligned.{whole.orders[0]}.{whole.orders[1]}.{product.shape}{types}{saturation} "
        f"{lists[3]}, {lists[0]}, {lists[1]}, {lists[2]};"
    )
    stride = whole.strides()[3]
    head = f"wmma.store.d.sync.aligned.{whole.orders[3]}.{product.shape}"
    lines.append(f"  {head}.global.{product.d} [%out], {lists[3]}, {stride};")
    return kernel(whole.name, lines)


def _loaded(space: str, head: str, kind: str, registers: str, stride: str, nr_words: int) -> list[str]:
    if space != "shared":
        suffix = f".{space}" if space else ""
        return [f"  {head}{suffix}.{kind} {registers}, [%at]{stride};"]
    lines = ["  mov.u32 %address, tile; bar.warp.sync -1;"]
    for word in range(nr_words):
        lines.append(f"  {{ .reg .b32 %w; ld.global.b32 %w, [%at+{4 * word}]; st.shared.b32 [tile+{4 * word}], %w; }}")
    return [*lines, "  bar.warp.sync -1;", f"  {head}.shared.{kind} {registers}, [%address]{stride};"]


_SHAPES_16 = ("m16n16k16", "m32n8k16", "m8n32k16")
_ORDERS = [(a, b, c, d) for a in ("row", "col") for b in ("row", "col") for c, d in (("row", "col"), ("col", "row"))]
WMMA = [
    *(
        Whole(Product(s, "f16", "f16", c, d), orders, 8)
        for s in _SHAPES_16
        for c, d in (("f16", "f16"), ("f16", "f32"), ("f32", "f16"), ("f32", "f32"))
        for orders in _ORDERS[:: 3 if c == d else 7]
    ),
    *(Whole(Product(s, "bf16", "bf16", "f32", "f32"), orders, 0) for s in _SHAPES_16 for orders in _ORDERS),
    *(Whole(Product("m16n16k8", "tf32", "tf32", "f32", "f32"), orders, 4) for orders in _ORDERS),
    *(Whole(Product("m8n8k4", "f64", "f64", "f64", "f64"), orders, 2) for orders in _ORDERS),
    *(
        Whole(Product(s, kind, kind, "s32", "s32", words), orders, 16)
        for s in _SHAPES_16
        for kind, words in (("s8", ""), ("u8", ".satfinite"))
        for orders in _ORDERS
    ),
    *(
        Whole(Product("m8n8k32", kind, kind, "s32", "s32"), ("row", "col", c, d), 0)
        for kind in ("s4", "u4")
        for c in ("row", "col")
        for d in ("row", "col")
    ),
    *(
        Whole(Product("m8n8k128", "b1", "b1", "s32", "s32", words), ("row", "col", "row", "row"), 0)
        for words in (".xor.popc", ".and.popc")
    ),
    Whole(Product("m16n16k16", "f16", "f16", "f32", "f32"), ("row", "col", "row", "row"), 0, "shared"),
    Whole(Product("m16n16k16", "u8", "u8", "s32", "s32"), ("col", "row", "row", "row"), 0, "shared"),
    Whole(Product("m16n16k16", "f16", "f16", "f32", "f32"), ("row", "row", "row", "row"), 0, ""),
]


def move_kernel(name: str, number: int, transposes: str, *, is_load: bool) -> str:
    """ldmatrix: rows from `in` to shared memory, registers out. stmatrix: registers in, rows out."""
    declared, names = _registers("r", "b32", number)
    row = ["  mov.u32 %address, tile; mad.lo.u32 %address, %lane, 16, %address;"]
    whole = "  mad.wide.u32 %at, %lane, 16, {pointer};"
    words = "{ .reg .b32 %w; "
    registers = "{" + ", ".join(names) + "}"
    if is_load:
        moved = [
            f"  {words}ld.global.b32 %w, [%at+{4 * i}]; st.shared.b32 [%address+{4 * i}], %w; }}" for i in range(4)
        ]
        lines = [*row, whole.format(pointer="%in"), *moved, "  bar.warp.sync -1;"]
        lines.append(f"  ldmatrix.sync.aligned.m8n8.x{number}{transposes}.shared.b16 {registers}, [%address];")
        lines += _moves("st", "%out", "b32", names, 0, 4 * number)
    else:
        lines = [*row, *_moves("ld", "%in", "b32", names, 0, 4 * number)]
        lines.append(f"  stmatrix.sync.aligned.m8n8.x{number}{transposes}.shared.b16 [%address], {registers};")
        moved = [
            f"  {words}ld.shared.b32 %w, [%address+{4 * i}]; st.global.b32 [%at+{4 * i}], %w; }}" for i in range(4)
        ]
        lines += ["  bar.warp.sync -1;", whole.format(pointer="%out"), *moved]
    return kernel(name, [declared, *lines])


MOVES = [(number, transposes) for number in (1, 2, 4) for transposes in ("", ".trans")]
MOVMATRIX = kernel(
    "movmatrix",
    [
        "  .reg .b32 %r0, %r1;",
        *_moves("ld", "%in", "b32", ["%r0"], 0, 4),
        "  movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r0;",
        *_moves("st", "%out", "b32", ["%r1"], 0, 4),
    ],
)
