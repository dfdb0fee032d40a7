"""
Runs compiled kernels by the ABI of kernel_abi.h, without a driver: one block in one call, for kernels whose threads never wait.

`ElementWise` makes a module of many one-instruction kernels, each of which applies its instruction to arrays, so that hundreds of cases cost
one compilation. Kernels that reach the runtime's barriers or traps cannot run here: those are tested through the driver.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from softgpu.compiler.command import compile_image

CAPABILITY = 90
HEADER = ".version 8.0\n.target sm_90\n.address_size 64\n"


class Runtime(ctypes.Structure):
    _fields_ = (("abi_version", ctypes.c_uint32), ("reserved", ctypes.c_uint32), ("functions", ctypes.c_void_p * 22))


class Block(ctypes.Structure):
    _fields_ = (
        ("runtime", ctypes.c_void_p),
        ("parameters", ctypes.c_void_p),
        ("globals", ctypes.c_void_p),
        ("shared", ctypes.c_void_p),
        ("grid", ctypes.c_uint32 * 3),
        ("block_dim", ctypes.c_uint32 * 3),
        ("block_index", ctypes.c_uint32 * 3),
        ("dynamic_shared_bytes", ctypes.c_uint32),
        ("multiprocessor", ctypes.c_uint32),
        ("nr_multiprocessors", ctypes.c_uint32),
        ("grid_workspace", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
    )


class Parameter(ctypes.Structure):
    _fields_ = (("offset_bytes", ctypes.c_uint32), ("size_bytes", ctypes.c_uint32))


class KernelTable(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("run_thread", ctypes.c_void_p),
        ("run_block", ctypes.c_void_p),
        ("parameters", ctypes.POINTER(Parameter)),
        ("nr_parameters", ctypes.c_uint32),
        ("parameters_bytes", ctypes.c_uint32),
        ("static_shared_bytes", ctypes.c_uint32),
        ("local_bytes", ctypes.c_uint32),
        ("stack_bytes", ctypes.c_uint32),
        ("needs_threads", ctypes.c_uint32),
        ("max_threads", ctypes.c_uint32),
        ("required_threads", ctypes.c_uint32 * 3),
        ("nr_registers", ctypes.c_uint32),
        ("spins", ctypes.c_uint32),
        ("context_bytes", ctypes.c_uint32),
        ("knows_graphs", ctypes.c_uint32),
    )


class GlobalTable(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("offset_bytes", ctypes.c_uint64),
        ("size_bytes", ctypes.c_uint64),
        ("is_constant", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    )


class Relocation(ctypes.Structure):
    _fields_ = (("at_bytes", ctypes.c_uint64), ("target_bytes", ctypes.c_uint64))


class ModuleTable(ctypes.Structure):
    _fields_ = (
        ("abi_version", ctypes.c_uint32),
        ("ptx_version", ctypes.c_uint32),
        ("target", ctypes.c_uint32),
        ("nr_kernels", ctypes.c_uint32),
        ("kernels", ctypes.POINTER(KernelTable)),
        ("globals", ctypes.POINTER(GlobalTable)),
        ("relocations", ctypes.POINTER(Relocation)),
        ("globals_image", ctypes.c_void_p),
        ("image_bytes", ctypes.c_uint64),
        ("globals_bytes", ctypes.c_uint64),
        ("nr_globals", ctypes.c_uint32),
        ("nr_relocations", ctypes.c_uint32),
    )


_CLOCK = ctypes.CFUNCTYPE(ctypes.c_uint64)
_BAD_ADDRESS = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint64)
_MISALIGNED_BITS = 31
_PRINT = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)


class LoadedModule:
    """A compiled module with its own copy of the globals."""

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))
        self.table = ModuleTable.in_dll(self._library, "sgp_module")
        self.kernels = {
            self.table.kernels[i].name.decode(): self.table.kernels[i] for i in range(self.table.nr_kernels)
        }
        self.globals = {
            self.table.globals[i].name.decode(): self.table.globals[i] for i in range(self.table.nr_globals)
        }
        self._storage = ctypes.create_string_buffer(int(self.table.globals_bytes) + 256)
        self.base = -(-ctypes.addressof(self._storage) // 256) * 256
        if self.table.image_bytes:
            ctypes.memmove(self.base, self.table.globals_image, int(self.table.image_bytes))
        for index in range(self.table.nr_relocations):
            relocation = self.table.relocations[index]
            ctypes.c_uint64.from_address(self.base + relocation.at_bytes).value = self.base + relocation.target_bytes
        self.printed: list[bytes] = []
        self._clock = _CLOCK(lambda: 12345678901234)
        self._print = _PRINT(self._printed)
        self._runtime = Runtime(abi_version=2)
        self._runtime.functions[3] = ctypes.cast(self._print, ctypes.c_void_p).value
        self._runtime.functions[8] = ctypes.cast(self._clock, ctypes.c_void_p).value
        self._runtime.functions[9] = ctypes.cast(self._clock, ctypes.c_void_p).value
        self.misaligned_bits = 0
        self._bad_address = _BAD_ADDRESS(self._collect)
        self._runtime.functions[13] = ctypes.cast(self._bad_address, ctypes.c_void_p).value

    def _collect(self, _self: int, bits: int) -> None:
        """Memory here is the process's, outside of what kernels reach."""
        self.misaligned_bits |= bits & _MISALIGNED_BITS

    def _printed(self, _self: int, text: bytes, _arguments: int) -> int:
        self.printed.append(text)
        return 1

    def run(
        self,
        name: str,
        parameters: bytes,
        *,
        block_dim: tuple[int, int, int] = (1, 1, 1),
        grid: tuple[int, int, int] = (1, 1, 1),
        dynamic_shared_bytes: int = 0,
        thread: int | None = None,
    ) -> None:
        """All blocks of a launch, one after another; or one thread of block 0."""
        kernel = self.kernels[name]
        assert not kernel.needs_threads
        values = ctypes.create_string_buffer(parameters, max(len(parameters), 1))
        shared = ctypes.create_string_buffer(kernel.static_shared_bytes + dynamic_shared_bytes + 256)
        nr_threads = block_dim[0] * block_dim[1] * block_dim[2]
        context = ctypes.create_string_buffer(kernel.context_bytes * nr_threads + 64)
        block = Block(
            runtime=ctypes.addressof(self._runtime),
            parameters=ctypes.addressof(values),
            globals=self.base,
            shared=-(-ctypes.addressof(shared) // 256) * 256,
            grid=grid,
            block_dim=block_dim,
            dynamic_shared_bytes=dynamic_shared_bytes,
            context=-(-ctypes.addressof(context) // 64) * 64,
        )
        if thread is not None:
            one = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32)(kernel.run_thread)
            one(ctypes.addressof(block), None, thread)
            assert self.misaligned_bits == 0
            return
        whole = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(kernel.run_block)
        for z in range(grid[2]):
            for y in range(grid[1]):
                for x in range(grid[0]):
                    block.block_index[:] = (x, y, z)
                    whole(ctypes.addressof(block), None)
        assert self.misaligned_bits == 0


def compiled(ptx: str, folder: Path, name: str = "module") -> LoadedModule:
    """Compiles PTX text as the command does and loads it."""
    output = folder / f"{name}.so"
    compile_image(ptx.encode(), CAPABILITY, output)
    return LoadedModule(output)


def compiled_quickly(ptx: str, output: Path) -> LoadedModule:
    """With LLVM's lowest level, for hundreds of kernels that run once."""
    compile_image(ptx.encode(), CAPABILITY, output, speed_level=1)
    return LoadedModule(output)


_REGISTER = {"pred": "pred", "f32": "f32", "f64": "f64"}
_LOAD = {8: "u8", 16: "u16", 32: "u32", 64: "u64"}


def bits_of(type_name: str) -> int:
    if type_name == "pred":
        return 8
    if type_name.endswith("x2"):
        return 32
    return int("".join(c for c in type_name.removeprefix("bf").removeprefix("f") if c.isdigit()))


@dataclass(frozen=True, slots=True)
class Shape:
    """An instruction on operands %d and %a, %b, %c, ...; types in PTX's words, 'pred' for a predicate operand."""

    text: str
    destination: str
    sources: tuple[str, ...]


class ElementWise:
    """A kernel for each shape; `apply` runs one on columns of bits."""

    def __init__(self, shapes: Sequence[Shape], folder: Path) -> None:
        self._names = {shape: f"k{index}" for index, shape in enumerate(dict.fromkeys(shapes))}
        text = HEADER + "".join(self._kernel(name, shape) for shape, name in self._names.items())
        self._module = compiled_quickly(text, folder / "elementwise.so")

    @staticmethod
    def _kernel(name: str, shape: Shape) -> str:
        lines = [f".visible .entry {name}("]
        lines.append(",\n".join(f"  .param .u64 {name}_p{i}" for i in range(len(shape.sources) + 1)) + "\n) {")
        lines.append("  .reg .b64 %x<9>; .reg .b32 %i<9>; .reg .b16 %h<9>; .reg .pred %q<9>;")
        operands = [("d", shape.destination), *zip("abcef", shape.sources, strict=False)]
        lines += [f"  .reg .{_register(kind)} %{letter};" for letter, kind in operands]
        lines.append("  mov.u32 %i0, %tid.x; cvt.u64.u32 %x0, %i0;")
        for index, (letter, kind) in enumerate(operands):
            size = bits_of(kind) // 8
            lines.append(f"  ld.param.u64 %x1, [{name}_p{index}]; mad.lo.s64 %x{index + 2}, %x0, {size}, %x1;")
            if index and kind == "pred":
                lines.append(f"  ld.global.u8 %h0, [%x{index + 2}]; setp.ne.u16 %{letter}, %h0, 0;")
            elif index:
                lines.append(f"  ld.global.{_moved(kind)} %{letter}, [%x{index + 2}];")
        lines.append(f"  {shape.text};")
        if shape.destination == "pred":
            lines.append("  selp.u16 %h1, 1, 0, %d; st.global.u8 [%x2], %h1;")
        else:
            lines.append(f"  st.global.{_moved(shape.destination)} [%x2], %d;")
        return "\n".join([*lines, "  ret;", "}", ""])

    def apply(self, shape: Shape, rows: Sequence[tuple[int, ...]]) -> list[int]:
        """The destination's bits for each row of source bits."""
        results: list[int] = []
        for start in range(0, len(rows), 1024):
            results += self._apply(shape, rows[start : start + 1024])
        return results

    def _apply(self, shape: Shape, rows: Sequence[tuple[int, ...]]) -> list[int]:
        size = bits_of(shape.destination) // 8
        out = ctypes.create_string_buffer(size * len(rows))
        columns = []
        for index, kind in enumerate(shape.sources):
            width = bits_of(kind) // 8
            data = b"".join((row[index] % (1 << (8 * width))).to_bytes(width, "little") for row in rows)
            columns.append(ctypes.create_string_buffer(data, len(data)))
        pointers = [ctypes.addressof(buffer) for buffer in (out, *columns)]
        parameters = b"".join(pointer.to_bytes(8, "little") for pointer in pointers)
        self._module.run(self._names[shape], parameters, block_dim=(len(rows), 1, 1))
        return [int.from_bytes(out.raw[i : i + size], "little") for i in range(0, len(out.raw), size)]


def _register(kind: str) -> str:
    return _REGISTER.get(kind) or f"b{max(bits_of(kind), 16)}"


def _moved(kind: str) -> str:
    if kind in ("f32", "f64"):
        return kind
    return ("s" if kind[0] == "s" else "u") + str(bits_of(kind))


Reference = Callable[..., int | None]
"""What an instruction gives of its sources; None: that is not judged."""


@dataclass(frozen=True, slots=True)
class Case:
    """An instruction, and what is right."""

    shape: Shape
    reference: Reference

    def __str__(self) -> str:
        return self.shape.text.split(" ")[0]


def case(text: str, destination: str, sources: str, reference: Reference) -> Case:
    """`text`: an opcode, or an instruction with its operands (%d, %a, %b, ...). Types by their names, sources with spaces between them."""
    kinds = tuple(sources.split())
    operands = ", ".join(["%d", *(f"%{letter}" for letter, _ in zip("abcef", kinds, strict=False))])
    return Case(Shape(text if "%" in text else f"{text} {operands}", destination, kinds), reference)
