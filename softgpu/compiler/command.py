"""
softgpu-compile: an image in, a shared object out.

    softgpu-compile --image FILE --capability 75 --output FILE.so [--quick FILE.so] [--emit-llvm | --link | --check | --finish]
    softgpu-compile --version

It prints nothing when all is well. Otherwise it exits with 1 and says `softgpu: CODE: message`, CODE being the name of the CUresult
that the driver answers with. The version names the compiler and its LLVM: two that differ may make different code of the same PTX.
"""

from __future__ import annotations

import errno
import os
import sys
import textwrap
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cuda_api.image_set import split
from cuda_api.ptx import PtxSyntaxError, parse
from cuda_api.ptx.syntax import Module
from cuda_api.record import record
from softgpu.compiler.base.errors import (
    CompileError,
    InvalidImageError,
    InvalidPtxError,
    NoBinaryForGpuError,
    UnsupportedPtxVersionError,
)

if TYPE_CHECKING:
    from softgpu.compiler.module.translation import Translation

COMPILER_VERSION = "softgpu-compile 1"


_NEWEST_PTX = (9, 99)
_MOST_PROCESSES = 8
_MOST_SAID = 1000
"""Characters of an error: the driver keeps so many lines of what it is told, and a name in hostile text has no end."""


def ptx_of_image(image: bytes, capability: int) -> str:
    """
    PTX out of an image: a fat binary, or PTX text with or without a terminating zero.

    PTX for newer devices will do: it is translated as far as its instructions are known, and those that are not say so.
    """
    start = image.lstrip()[:2]
    if start in (b".v", b"//", b"/*"):
        return image.split(b"\0", 1)[0].decode("utf-8", "replace")
    from cuda_api import fatbin  # noqa: PLC0415 - plain PTX needs none of it

    try:
        return fatbin.select_ptx(image, capability, takes_newer=True)
    except fatbin.NoPtxError as error:
        raise NoBinaryForGpuError(str(error)) from error
    except fatbin.FatbinError as error:
        raise InvalidImageError(str(error)) from error


def module_of_text(ptx: str) -> Module:
    """PTX, read and found fit for the device."""
    try:
        module = parse(ptx)
    except PtxSyntaxError as error:
        raise InvalidPtxError(str(error)) from error
    if module.version > _NEWEST_PTX:
        raise UnsupportedPtxVersionError(f"PTX {module.version[0]}.{module.version[1]} is newer than this compiler")
    if module.address_size != 64:
        raise InvalidPtxError(f"addresses of {module.address_size} bits are not supported")
    return module


def modules_of(images: bytes, capability: int) -> list[Module]:
    """The PTX of each image of a set; an image alone is a set."""
    return [module_of_text(ptx_of_image(image, capability)) for image in split(images) or (b"",)]


def linked_module(modules: Sequence[Module], *, is_complete: bool = True) -> Module:
    """The modules as one; `is_complete` when no more are to come."""
    from softgpu.compiler.link import link as link_modules  # noqa: PLC0415 - rare

    return link_modules(modules, is_complete=is_complete)


def llvm_text(ptx: str) -> str:
    """The LLVM module of a PTX module."""
    return _translation(module_of_text(ptx)).text()


def _translation(module: Module) -> Translation:
    from softgpu.compiler.module.translation import Translation  # noqa: PLC0415

    return Translation(module)


def _module_of(images: bytes, capability: int) -> Module:
    modules = modules_of(images, capability)
    return modules[0] if len(modules) == 1 else linked_module(modules)


def compile_image(
    images: bytes, capability: int, output: Path, *, speed_level: int = 2, quick: Path | None = None
) -> None:
    """
    The whole way, from an image or a set of images, at one of LLVM's levels. A large module is only in `quick` when this returns, and in
    `output` later, where `quick` is given. Raises CompileError.
    """
    parts = _translation(_module_of(images, capability)).parts(_nr_processes())
    from softgpu.compiler import native, tiers  # noqa: PLC0415 - after much that can fail without LLVM

    if quick is not None and tiers.is_large(parts):
        tiers.compile_in_two(parts, quick.absolute(), output.absolute())
        return
    with native.work_folder(output) as folder:
        native.link(native.objects([part.text for part in parts], folder, speed_level=speed_level), output)


def _finish(images: bytes, capability: int, quick: Path, output: Path) -> None:
    """What a killed process did not: the optimised object of a module that has a quick one."""
    from softgpu.compiler import tiers  # noqa: PLC0415 - rare

    tiers.finish(partial(compile_image, images, capability, output.absolute()), quick.absolute(), output.absolute())


def _nr_processes() -> int:
    """How many may work at once. A process with threads stays alone: a copy of it would have locks that nobody opens."""
    return min(len(os.sched_getaffinity(0)), _MOST_PROCESSES) if threading.active_count() == 1 else 1


@record
class Options:
    """What the command line says; `mode` is '', 'emit_llvm', 'link', 'check' or 'finish'."""

    image: Path
    capability: int
    output: Path
    mode: str = ""
    quick: Path | None = None


def _options(arguments: list[str]) -> Options:
    """What the driver says before a launch is understood without a parser, whose import costs what a small kernel does."""
    match arguments:
        case ["--image", image, "--capability", capability, "--output", output] if capability.isdecimal():
            return Options(Path(image), int(capability), Path(output))
        case ["--image", image, "--capability", capability, "--output", output, "--quick", quick] if (
            capability.isdecimal()
        ):
            return Options(Path(image), int(capability), Path(output), quick=Path(quick))
    return _parsed(arguments)


def _parsed(arguments: list[str]) -> Options:
    import argparse  # noqa: PLC0415

    class Version(argparse.Action):
        """Looks LLVM's package up when asked, not at every start."""

        def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
            import llvmlite  # noqa: PLC0415

            print(f"{COMPILER_VERSION}, llvmlite {llvmlite.__version__}")
            parser.exit()

    parser = argparse.ArgumentParser(prog="softgpu-compile", description="Compiles PTX for this machine's CPU.")
    parser.add_argument("--version", action=Version, nargs=0, help="print the compiler's version and LLVM's")
    parser.add_argument("--image", required=True, type=Path, metavar="FILE", help="a fat binary, PTX text, or a set")
    parser.add_argument("--capability", required=True, type=int, metavar="75", help="the device's compute capability")
    parser.add_argument("--output", required=True, type=Path, metavar="FILE.so")
    parser.add_argument(
        "--quick",
        type=Path,
        metavar="FILE.so",
        help="make a large module's object here, quickly, and OUTPUT in the background",
    )
    modes = {
        "emit_llvm": "write LLVM text, before optimisation, instead",
        "link": "write the linked PTX instead",
        "check": "write nothing: the images may need others still",
        "finish": "make OUTPUT in the background: QUICK is there",
    }
    instead = parser.add_mutually_exclusive_group()
    for mode, text in modes.items():
        instead.add_argument(f"--{mode.replace('_', '-')}", action="store_const", dest="mode", const=mode, help=text)
    given = parser.parse_args(arguments)
    if given.mode == "finish" and not given.quick:
        parser.error("--finish needs --quick")
    return Options(given.image, given.capability, given.output, given.mode or "", given.quick)


def _write(options: Options, images: bytes) -> None:
    """What the options ask for; the shared object without any."""
    match options.mode:
        case "check":
            linked_module(modules_of(images, options.capability), is_complete=False)
        case "link":
            from cuda_api.ptx import format_module  # noqa: PLC0415

            text = format_module(linked_module(modules_of(images, options.capability)))
            options.output.write_bytes(text.encode("utf-8", "replace"))
        case "emit_llvm":
            options.output.write_text(_translation(_module_of(images, options.capability)).text())
        case "finish" if options.quick:
            _finish(images, options.capability, options.quick, options.output)
        case _:
            compile_image(images, options.capability, options.output, quick=options.quick)


_CODES = {
    errno.EFBIG: "OUT_OF_MEMORY",
    errno.ENOSPC: "OUT_OF_MEMORY",
    errno.ENOMEM: "OUT_OF_MEMORY",
    errno.ENOENT: "FILE_NOT_FOUND",
}
"""What of CUDA's errors one of the system is."""


def run(arguments: list[str]) -> int:
    """The command line; returns the exit code."""
    options = _options(arguments)
    try:
        _write(options, options.image.read_bytes())
    except CompileError as error:
        print(f"softgpu: {error.code}: {textwrap.shorten(str(error), _MOST_SAID)}", file=sys.stderr)
        return 1
    except RecursionError:
        print("softgpu: CUDA_ERROR_INVALID_PTX: the image is too deep", file=sys.stderr)
        return 1
    except MemoryError:  # the driver's limit for this process
        print(
            "softgpu: CUDA_ERROR_OUT_OF_MEMORY: the image takes more memory than a compiler may have", file=sys.stderr
        )
        return 1
    except OSError as error:
        code = _CODES.get(error.errno or 0, "OPERATING_SYSTEM")
        print(f"softgpu: CUDA_ERROR_{code}: {error}", file=sys.stderr)
        return 1
    except Exception:
        # A mistake of ours. The driver tells it from a compiler that cannot be started by the error's name.
        print("softgpu: CUDA_ERROR_INVALID_PTX: the compiler failed", file=sys.stderr)
        raise
    return 0
