"""
softgpu-compile: an image in, a shared object out.

    softgpu-compile --image FILE --capability 75 --output FILE.so
    softgpu-compile --version

It prints nothing when all is well. Otherwise it exits with 1 and says `softgpu: CODE: message`, CODE being the name of the CUresult
that the driver answers with. The version names the compiler and its LLVM: two that differ may make different code of the same PTX.
"""

from __future__ import annotations

import os
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cuda_api.ptx import PtxSyntaxError, parse
from softgpu.compiler.errors import (
    CompileError,
    InvalidImageError,
    InvalidPtxError,
    NoBinaryForGpuError,
    UnsupportedPtxVersionError,
)

if TYPE_CHECKING:
    from softgpu.compiler.unit import Unit

COMPILER_VERSION = "softgpu-compile 1"


_NEWEST_PTX = (9, 99)
_MOST_PROCESSES = 8


def ptx_of_image(image: bytes, capability: int) -> str:
    """PTX out of an image: a fat binary, or PTX text with or without a terminating zero."""
    start = image.lstrip()[:2]
    if start in (b".v", b"//", b"/*"):
        return image.split(b"\0", 1)[0].decode("utf-8", "replace")
    from cuda_api import fatbin  # noqa: PLC0415 - plain PTX needs none of it

    try:
        return fatbin.select_ptx(image, capability)
    except fatbin.NoPtxError as error:
        raise NoBinaryForGpuError(str(error)) from error
    except fatbin.FatbinError as error:
        raise InvalidImageError(str(error)) from error


def _unit(ptx: str, capability: int) -> Unit:
    from softgpu.compiler.tables import target_of  # noqa: PLC0415
    from softgpu.compiler.unit import Unit  # noqa: PLC0415

    try:
        module = parse(ptx)
    except PtxSyntaxError as error:
        raise InvalidPtxError(str(error)) from error
    if module.version > _NEWEST_PTX:
        raise UnsupportedPtxVersionError(f"PTX {module.version[0]}.{module.version[1]} is newer than this compiler")
    if target_of(module.targets) > capability:
        raise NoBinaryForGpuError(f"the PTX is for sm_{target_of(module.targets)}, the device is sm_{capability}")
    if module.address_size != 64:
        raise InvalidPtxError(f"addresses of {module.address_size} bits are not supported")
    return Unit(module)


def llvm_text(ptx: str, capability: int) -> str:
    """The LLVM module of a PTX module."""
    return _unit(ptx, capability).text()


def compile_image(image: bytes, capability: int, output: Path) -> None:
    """The whole way. Raises CompileError."""
    unit = _unit(ptx_of_image(image, capability), capability)
    modules = unit.modules(_nr_processes())
    from softgpu.compiler import native  # noqa: PLC0415 - after much that can fail without LLVM

    with native.work_folder(output) as folder:
        native.link(native.objects(modules, folder), output)


def _nr_processes() -> int:
    """How many may work at once. A process with threads stays alone: a copy of it would have locks that nobody opens."""
    return min(len(os.sched_getaffinity(0)), _MOST_PROCESSES) if threading.active_count() == 1 else 1


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says."""

    image: Path
    capability: int
    output: Path
    is_text: bool = False


def _options(arguments: list[str]) -> Options:
    """What the driver says is understood without a parser, whose import costs what a small kernel does."""
    match arguments:
        case ["--image", image, "--capability", capability, "--output", output] if capability.isdecimal():
            return Options(Path(image), int(capability), Path(output))
    import argparse  # noqa: PLC0415

    parser = argparse.ArgumentParser(prog="softgpu-compile", description="Compiles PTX for this machine's CPU.")
    parser.add_argument("--version", action="store_true", help="print the compiler's version and LLVM's")
    parser.add_argument("--image", type=Path, metavar="FILE", help="a fat binary or PTX text")
    parser.add_argument("--capability", type=int, metavar="75", help="the device's compute capability")
    parser.add_argument("--output", type=Path, metavar="FILE.so")
    parser.add_argument("--emit-llvm", action="store_true", help="write LLVM text, before optimisation, instead")
    given = parser.parse_args(arguments)
    if given.version:
        import llvmlite  # noqa: PLC0415

        print(f"{COMPILER_VERSION}, llvmlite {llvmlite.__version__}")
        parser.exit()
    missing = [f"--{name}" for name in ("image", "capability", "output") if getattr(given, name) is None]
    if missing:
        parser.error(f"the following arguments are required: {', '.join(missing)}")
    return Options(given.image, given.capability, given.output, given.emit_llvm)


def run(arguments: list[str]) -> int:
    """The command line; returns the exit code."""
    options = _options(arguments)
    try:
        image = options.image.read_bytes()
        if options.is_text:
            ptx = ptx_of_image(image, options.capability)
            options.output.write_text(llvm_text(ptx, options.capability))
        else:
            compile_image(image, options.capability, options.output)
    except CompileError as error:
        print(f"softgpu: {error.code}: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"softgpu: CUDA_ERROR_FILE_NOT_FOUND: {error}", file=sys.stderr)
        return 1
    return 0
