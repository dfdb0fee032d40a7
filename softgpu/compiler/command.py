"""
softgpu-compile: an image in, a shared object out.

    softgpu-compile --image FILE --capability 75 --output FILE.so [--emit-llvm | --link | --check]
    softgpu-compile --version

It prints nothing when all is well. Otherwise it exits with 1 and says `softgpu: CODE: message`, CODE being the name of the CUresult
that the driver answers with. The version names the compiler and its LLVM: two that differ may make different code of the same PTX.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from cuda_api.image_set import split
from cuda_api.ptx import PtxSyntaxError, format_module, parse
from cuda_api.ptx.syntax import Module
from softgpu.compiler.errors import (
    CompileError,
    InvalidImageError,
    InvalidPtxError,
    NoBinaryForGpuError,
    UnsupportedPtxVersionError,
)

COMPILER_VERSION = "softgpu-compile 1"


class _VersionAction(argparse.Action):
    """Looks LLVM's package up when asked, not at every start."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        import llvmlite  # noqa: PLC0415

        print(f"{COMPILER_VERSION}, llvmlite {llvmlite.__version__}")
        parser.exit()


_NEWEST_PTX = (9, 99)


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


def module_of_text(ptx: str, capability: int) -> Module:
    """PTX, read and found fit for the device."""
    from softgpu.compiler.tables import target_of  # noqa: PLC0415

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
    return module


def modules_of(images: bytes, capability: int) -> list[Module]:
    """The PTX of each image of a set; an image alone is a set."""
    return [module_of_text(ptx_of_image(image, capability), capability) for image in split(images) or (b"",)]


def linked_module(modules: Sequence[Module], *, is_complete: bool = True) -> Module:
    """The modules as one; `is_complete` when no more are to come."""
    from softgpu.compiler.link import link as link_modules  # noqa: PLC0415 - rare

    return link_modules(modules, is_complete=is_complete)


def llvm_text(ptx: str, capability: int) -> str:
    """The LLVM module of a PTX module."""
    return _lowered(module_of_text(ptx, capability))


def _lowered(module: Module) -> str:
    from softgpu.compiler.unit import Unit  # noqa: PLC0415

    return Unit(module).text()


def _module_of(images: bytes, capability: int) -> Module:
    modules = modules_of(images, capability)
    return modules[0] if len(modules) == 1 else linked_module(modules)


def compile_image(images: bytes, capability: int, output: Path) -> None:
    """The whole way, from an image or a set of images. Raises CompileError."""
    text = _lowered(_module_of(images, capability))
    from softgpu.compiler.native import link, object_code  # noqa: PLC0415 - after all that can fail without LLVM

    link(object_code(text), output)


def _write(options: argparse.Namespace, images: bytes) -> None:
    """What the options ask for; the shared object without any."""
    output: Path = options.output
    if options.check:
        linked_module(modules_of(images, options.capability), is_complete=False)
    elif options.link:
        text = format_module(linked_module(modules_of(images, options.capability)))
        output.write_bytes(text.encode("utf-8", "replace"))
    elif options.emit_llvm:
        output.write_text(_lowered(_module_of(images, options.capability)))
    else:
        compile_image(images, options.capability, output)


def run(arguments: list[str]) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="softgpu-compile", description="Compiles PTX for this machine's CPU.")
    parser.add_argument("--version", action=_VersionAction, nargs=0, help="print the compiler's version and LLVM's")
    parser.add_argument("--image", required=True, type=Path, metavar="FILE", help="a fat binary, PTX text, or a set")
    parser.add_argument("--capability", required=True, type=int, metavar="75", help="the device's compute capability")
    parser.add_argument("--output", required=True, type=Path, metavar="FILE.so")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--emit-llvm", action="store_true", help="write LLVM text, before optimisation, instead")
    instead.add_argument("--link", action="store_true", help="write the linked PTX instead")
    instead.add_argument("--check", action="store_true", help="write nothing: the images may need others still")
    options = parser.parse_args(arguments)
    try:
        _write(options, options.image.read_bytes())
    except CompileError as error:
        print(f"softgpu: {error.code}: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"softgpu: CUDA_ERROR_FILE_NOT_FOUND: {error}", file=sys.stderr)
        return 1
    return 0
