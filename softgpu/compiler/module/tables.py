"""struct sgp_module and all it points to, as LLVM constants. Field by field what kernel_abi.h declares."""

from __future__ import annotations

from collections.abc import Iterator

from cuda_api.ptx.syntax import Module
from softgpu.compiler.base.errors import InvalidPtxError
from softgpu.compiler.base.layout import GlobalImage
from softgpu.compiler.module.kernel import Kernel

ABI_VERSION = 10
_MOST_DIGITS = 4  # of a target's number
_KERNEL = "{ ptr, ptr, ptr, ptr, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32 }"
_GLOBAL = "{ ptr, i64, i64, i32, i32 }"
_MODULE = "{ i32, i32, i32, i32, ptr, ptr, ptr, ptr, i64, i64, i32, i32 }"


def _bytes(data: bytes) -> str:
    plain = "".join(chr(b) if 32 <= b < 127 and b not in (34, 92) else f"\\{b:02X}" for b in data)
    return f'c"{plain}"'


def _string(symbol: str, text: str) -> str:
    data = text.encode() + b"\0"
    return f"@{symbol} = internal constant [{len(data)} x i8] {_bytes(data)}"


def _array(symbol: str, element: str, items: list[str]) -> Iterator[str]:
    if items:
        body = ", ".join(f"{element} {item}" for item in items)
        yield f"@{symbol} = internal constant [{len(items)} x {element}] [{body}]"


def _reference(symbol: str, has_items: object) -> str:
    return f"ptr @{symbol}" if has_items else "ptr null"


def _kernel(kernel: Kernel) -> str:
    required = ", ".join(f"i32 {count}" for count in kernel.required_threads)
    run_block = "ptr null" if kernel.needs_threads else f'ptr @"block.{kernel.name}"'
    run_thread = "ptr null" if kernel.context_bytes else f'ptr @"thread.{kernel.name}"'
    parameters = kernel.parameters
    fields = [
        f"ptr @name.k{kernel.index}",
        run_thread,
        run_block,
        _reference(f"parameters.k{kernel.index}", parameters.places),
        f"i32 {len(parameters.places)}",
        f"i32 {parameters.end_bytes}",
        f"i32 {kernel.static_shared_bytes}",
        f"i32 {kernel.local_bytes}",
        f"i32 {kernel.stack_bytes}",
        f"i32 {int(kernel.needs_threads)}",
        f"i32 {kernel.max_threads}",
        required,
        f"i32 {kernel.nr_registers}",
        f"i32 {int(kernel.traits.spins)}",
        f"i32 {kernel.context_bytes}",
        f"i32 {int(kernel.traits.knows_graphs)}",
    ]
    return "{ " + ", ".join(fields) + " }"


def module_tables(module: Module, image: GlobalImage, kernels: list[Kernel]) -> Iterator[str]:
    """LLVM text of all tables."""
    for kernel in kernels:
        yield _string(f"name.k{kernel.index}", kernel.name)
        items = [f"{{ i32 {p.offset_bytes}, i32 {p.size_bytes} }}" for p in kernel.parameters.places.values()]
        yield from _array(f"parameters.k{kernel.index}", "{ i32, i32 }", items)
    yield from _array("kernels", _KERNEL, [_kernel(kernel) for kernel in kernels])
    places = list(image.places.values())
    for index, place in enumerate(places):
        yield _string(f"name.g{index}", place.name)
    rows = [
        f"{{ ptr @name.g{index}, i64 {place.offset_bytes}, i64 {place.size_bytes}, "
        f"i32 {int(place.space == 'const')}, i32 {int(place.is_managed)} }}"
        for index, place in enumerate(places)
    ]
    yield from _array("globals", _GLOBAL, rows)
    relocations = image.relocations
    yield from _array("relocations", "{ i64, i64 }", [f"{{ i64 {at}, i64 {target} }}" for at, target in relocations])
    data = bytes(image.image)
    if data:
        body = _bytes(data) if any(data) else "zeroinitializer"
        yield f"@image = internal constant [{len(data)} x i8] {body}, align 16"
    version = module.version
    fields = [
        f"i32 {ABI_VERSION}",
        f"i32 {10 * version[0] + version[1]}",
        f"i32 {target_of(module.targets)}",
        f"i32 {len(kernels)}",
        _reference("kernels", kernels),
        _reference("globals", places),
        _reference("relocations", relocations),
        _reference("image", data),
        f"i64 {len(data)}",
        f"i64 {image.end_bytes}",
        f"i32 {len(places)}",
        f"i32 {len(relocations)}",
    ]
    yield f"@sgp_module = constant {_MODULE} {{ {', '.join(fields)} }}"


def target_of(targets: tuple[str, ...]) -> int:
    """75 of ('sm_75', 'debug'); an 'a' or 'f' at the end says nothing about us. Raises InvalidPtxError."""
    for target in targets:
        if target.startswith("sm_"):
            number = target[3:].rstrip("af")
            if not number.isdecimal() or len(number) > _MOST_DIGITS:
                raise InvalidPtxError(f"'{target[:16]}' is no target")
            return int(number)
    return 0
