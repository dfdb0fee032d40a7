"""LLVM text to a shared object: verified, optimised for this host by several processes, linked by the system's linker."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import llvmlite.binding as llvm

from softgpu.compiler.base.errors import CompileError, LinkError
from softgpu.compiler.lifetime import end_with

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
    """
    Once for the process. Loop strength reduction takes up to half of the time to emit code, and loops are as fast without it. Registers are
    given out well at level 0, too: else what does not fit in them makes frames that no stack is meant for.
    """
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    for option in ("-disable-lsr", "-optimize-regalloc"):
        llvm.set_option("softgpu", option)


def object_code(text: str, *, speed_level: int) -> bytes:
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
    """
    LLVM's own pipeline for the level, with both vectorisers. At level 0 what must be inlined is, and what can be is kept in registers: to do
    less takes no less time, since more code is emitted, and makes frames that no stack is meant for.
    """
    options = llvm.create_pipeline_tuning_options(speed_level=speed_level)
    options.loop_vectorization = True
    options.slp_vectorization = True
    options.loop_interleaving = True
    options.loop_unrolling = True
    builder = llvm.create_pass_builder(machine, options)
    if speed_level:
        passes = builder.getModulePassManager()
    else:
        passes = llvm.create_new_module_pass_manager()
        passes.add_sroa_pass()  # before, too: what is inlined is copied, and is a third as long then
        passes.add_always_inliner_pass()
        passes.add_sroa_pass()
    passes.run(module, builder)


def objects(modules: Sequence[Callable[[], str]], folder: Path, *, speed_level: int = 2) -> list[Path]:
    """
    Object files of several modules, all but the first written and compiled by a process of its own. What such a process fails at is done
    again here, which raises what it met.
    """
    _start_llvm()
    files = [folder / f"{number}.o" for number in range(len(modules))]
    workers: list[int] = []
    try:
        for module, file in zip(modules[1:], files[1:], strict=True):
            workers.append(_start_worker(module, file, speed_level))
        files[0].write_bytes(object_code(modules[0](), speed_level=speed_level))
        for module, file in zip(modules[1:], files[1:], strict=True):
            if os.waitpid(workers.pop(0), 0)[1]:
                file.write_bytes(object_code(module(), speed_level=speed_level))
    finally:
        for worker in workers:
            os.kill(worker, signal.SIGKILL)
            os.waitpid(worker, 0)
    return files


def _start_worker(module: Callable[[], str], file: Path, speed_level: int) -> int:
    """A copy of this process that compiles one module and ends; its exit status is 0 when the file is complete."""
    parent = os.getpid()
    worker = os.fork()
    if worker:
        return worker
    status = 1
    try:
        end_with(parent)
        file.write_bytes(object_code(module(), speed_level=speed_level))
        status = 0
    finally:
        os._exit(status)


@contextmanager
def work_folder(output: Path) -> Iterator[Path]:
    """An own folder beside the output; gone in the end."""
    folder = make_work_folder(output)
    try:
        yield folder
    finally:
        remove_work_folder(folder)


def make_work_folder(output: Path) -> Path:
    """A new folder beside the output. Where its name is taken, it is by what a killed process left."""
    tries = itertools.count()
    while True:
        folder = output.absolute().parent / f".softgpu-{os.getpid()}-{next(tries)}"
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            continue
        return folder


def remove_work_folder(folder: Path) -> None:
    """With what is in it."""
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()


def link(object_files: Sequence[Path], output: Path) -> None:
    """
    Writes the shared object in one step: whoever opens `output` finds all of it or the file that was there before. Its owner alone may read
    and write it, whatever the mask says: the driver loads nothing else. What is no file, as /dev/null, stays what it is.
    """
    linked = object_files[0].with_name("module.so")
    rest = ["-o", str(linked), *map(str, object_files), "-lm"]
    if not _succeeds(["ld", "-shared", "--as-needed", "-z", "now", *rest]):
        _link_with_driver(rest)
    if output.exists() and not output.is_file():
        output.write_bytes(linked.read_bytes())
        return
    linked.chmod(0o600)
    linked.replace(output)


def _succeeds(command: list[str]) -> bool:
    """Runs it, quietly."""
    quiet = [(os.POSIX_SPAWN_OPEN, fd, "/dev/null", os.O_RDWR, 0) for fd in (1, 2)]
    try:
        child = os.posix_spawnp(command[0], command, os.environ, file_actions=quiet)
    except OSError:
        return False
    return os.waitpid(child, 0)[1] == 0


def _link_with_driver(rest: list[str]) -> None:
    """The slow way, for a linker that is not called `ld` or does not find the libraries alone."""
    import subprocess  # noqa: PLC0415 - costs more than to link, and is rarely needed

    command = ["cc", "-shared", "-nostartfiles", "-Wl,--as-needed,-z,now", *rest]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise LinkError("no linker ('ld') and no C compiler ('cc') to link with") from error
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["the linker failed"]
        raise LinkError(lines[-1])
