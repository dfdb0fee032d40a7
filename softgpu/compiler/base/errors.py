"""What can go wrong in a compilation, each with the CUDA error the driver reports for it."""

from __future__ import annotations


class CompileError(Exception):
    """A module that cannot be compiled; `code` is the name of a CUresult."""

    code = "CUDA_ERROR_INVALID_PTX"


class InvalidPtxError(CompileError):
    """The text is not PTX, or PTX that contradicts itself."""


class InvalidImageError(CompileError):
    """The image is neither PTX nor a fat binary."""

    code = "CUDA_ERROR_INVALID_IMAGE"


class NoBinaryForGpuError(CompileError):
    """The image has machine code and no PTX."""

    code = "CUDA_ERROR_NO_BINARY_FOR_GPU"


class UndefinedSymbolError(CompileError):
    """Of the modules that are linked none defines what one of them uses."""

    code = "CUDA_ERROR_INVALID_SOURCE"


class DuplicateSymbolError(CompileError):
    """Two of the modules that are linked define the same."""

    code = "CUDA_ERROR_INVALID_SOURCE"


class UnsupportedCallError(CompileError):
    """A kernel calls what softgpu has not."""

    code = "CUDA_ERROR_NOT_SUPPORTED"


class TooLargeError(CompileError):
    """No device has so much memory."""

    code = "CUDA_ERROR_OUT_OF_MEMORY"


class UnsupportedPtxVersionError(CompileError):
    code = "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"


class UnsupportedInstruction(CompileError):  # noqa: N818 - it is named after what happened
    """softgpu has no such instruction. Names it, the function and the line."""

    code = "CUDA_ERROR_NOT_SUPPORTED"

    def __init__(self, spelling: str, function: str, line: int, reason: str = "") -> None:
        because = f" ({reason})" if reason else ""
        super().__init__(f"{function}: line {line}: instruction '{spelling}' is not supported{because}")
        self.spelling = spelling
        self.function = function
        self.line = line


class LinkError(CompileError):
    """The system's linker is missing or failed."""

    code = "CUDA_ERROR_JIT_COMPILER_NOT_FOUND"
