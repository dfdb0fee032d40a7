"""LLVM text to a shared object: verified, optimised for this host, linked by the system's linker."""

from __future__ import annotations

import subprocess
import tempfile
from functools import cache
from pathlib import Path

import llvmlite.binding as llvm

from softgpu.compiler.errors import CompileError, LinkError

_EXCLUDED_FEATURES = "-avx512bf16,-avxneconvert"
"""Their conversions to bf16 flush subnormals, which PTX keeps."""
_ATTRIBUTES = """
attributes #0 = { nounwind null_pointer_is_valid "no-trapping-math"="true" }
attributes #1 = { noinline nounwind null_pointer_is_valid "no-trapping-math"="true" }
attributes #2 = { nounwind null_pointer_is_valid "no-trapping-math"="true" }
attributes #3 = { alwaysinline nounwind null_pointer_is_valid "no-trapping-math"="true" }
attributes #4 = { nounwind null_pointer_is_valid "no-trapping-math"="true" }
attributes #5 = { noinline }
"""


def host_target() -> tuple[str, str]:
    """The host's CPU and the features code may use."""
    features = llvm.get_host_cpu_features().flatten()
    return llvm.get_host_cpu_name(), f"{features},{_EXCLUDED_FEATURES}" if features else _EXCLUDED_FEATURES


@cache
def _start_llvm() -> None:
    """Once for the process. Loop strength reduction takes up to half of the time to emit code, and loops are as fast without it."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.set_option("softgpu", "-disable-lsr")


def object_code(text: str, *, speed_level: int = 2) -> bytes:
    """An ELF object of an LLVM module in text form."""
    _start_llvm()
    cpu, features = host_target()
    target = llvm.Target.from_default_triple()
    machine = target.create_target_machine(cpu, features, speed_level, reloc="pic", codemodel="default")
    header = f'target datalayout = "{machine.target_data}"\ntarget triple = "{machine.triple}"\n'
    try:
        module = llvm.parse_assembly(header + text + _ATTRIBUTES)
    except RuntimeError as error:
        raise CompileError(f"internal: LLVM refuses our text: {' '.join(str(error).split())}") from error
    optimise(module, machine, speed_level)
    return bytes(machine.emit_object(module))


def optimise(module: llvm.ModuleRef, machine: llvm.TargetMachine, speed_level: int) -> None:
    """LLVM's own pipeline for the level, with both vectorisers."""
    options = llvm.create_pipeline_tuning_options(speed_level=speed_level)
    options.loop_vectorization = True
    options.slp_vectorization = True
    options.loop_interleaving = True
    options.loop_unrolling = True
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)


def link(code: bytes, output: Path) -> None:
    """Writes the shared object in one step: whoever opens `output` finds all of it or the file that was there before."""
    output = output.absolute()
    with tempfile.TemporaryDirectory(prefix=".softgpu-", dir=output.parent) as folder:
        object_file, linked = Path(folder, "module.o"), Path(folder, "module.so")
        object_file.write_bytes(code)
        rest = ["-o", str(linked), str(object_file), "-lm"]
        if not _succeeds(["ld", "-shared", "--as-needed", "-z", "now", *rest]):
            _link_with_driver(rest)
        linked.replace(output)


def _succeeds(command: list[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def _link_with_driver(rest: list[str]) -> None:
    """The slow way, for a linker that is not called `ld` or does not find the libraries alone."""
    command = ["cc", "-shared", "-nostartfiles", "-Wl,--as-needed,-z,now", *rest]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise LinkError("no linker ('ld') and no C compiler ('cc') to link with") from error
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["the linker failed"]
        raise LinkError(lines[-1])
