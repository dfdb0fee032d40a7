"""A module that several processes write and compile: the same code, the same errors, and nothing lost with a process."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from cuda_api.ptx import parse
from softgpu.compiler import command, native
from softgpu.compiler.base.errors import UnsupportedInstruction
from softgpu.compiler.command import compile_image
from softgpu.compiler.module.translation import Translation
from tests.end_to_end.host import wait_until
from tests.softgpu.compiler_harness import CAPABILITY, HEADER, LoadedModule

NR_KERNELS = 6
FUNCTION = """
.func (.param .u32 r) shared_by_all(.param .u32 a) {
  .reg .b32 %r<3>;
  ld.param.u32 %r1, [a]; mul.lo.u32 %r1, %r1, 3; st.param.u32 [r], %r1;
  ret;
}
"""
KERNEL = """
.visible .entry k{number}(.param .u64 out) {{
  .reg .b32 %r<9>; .reg .b64 %x<9>;
  ld.param.u64 %x1, [out];
  mov.u32 %r1, %tid.x;
  {{ .param .u32 a; .param .u32 r; st.param.u32 [a], %r1; call (r), shared_by_all, (a); ld.param.u32 %r2, [r]; }}
  {filling}
  {last}
  add.u32 %r2, %r2, {number};
  mul.wide.u32 %x2, %r1, 4; add.s64 %x3, %x1, %x2;
  st.global.u32 [%x3], %r2;
  ret;
}}
"""


def _text(last: str = "") -> str:
    """Kernels that make several parts; `last` stands in the last of them."""
    filling = "xor.b32 %r3, %r3, 5;\n" * 150
    kernels = [
        KERNEL.format(number=number, filling=filling, last=last if number == NR_KERNELS - 1 else "")
        for number in range(NR_KERNELS)
    ]
    return HEADER + FUNCTION + "".join(kernels)


def _module(folder: Path, name: str = "module") -> LoadedModule:
    compile_image(_text().encode(), CAPABILITY, folder / f"{name}.so")
    return LoadedModule(folder / f"{name}.so")


def _check(module: LoadedModule) -> None:
    array = (ctypes.c_uint32 * 32)()
    for number in range(NR_KERNELS):
        module.run(f"k{number}", ctypes.addressof(array).to_bytes(8, "little"), block_dim=(32, 1, 1))
        assert list(array) == [3 * thread + number for thread in range(32)]


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The processes that the compiler starts where four may work at once."""
    started: list[int] = []
    start = native._start_worker

    def counted(module: Callable[[], str], file: Path, speed_level: int) -> int:
        started.append(start(module, file, speed_level))
        return started[-1]

    monkeypatch.setattr(native, "_start_worker", counted)
    monkeypatch.setattr(command, "_nr_processes", lambda: 4)
    return started


def test_several_processes_make_one_module(tmp_path: Path, workers: list[int]) -> None:
    _check(_module(tmp_path))
    assert len(workers) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["module.so"]


def test_what_a_killed_process_had_to_do_is_done(
    tmp_path: Path, workers: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    parent, whole = os.getpid(), native.object_code

    def killed(text: str, *, speed_level: int) -> bytes:
        if os.getpid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
        return whole(text, speed_level=speed_level)

    monkeypatch.setattr(native, "object_code", killed)
    _check(_module(tmp_path))
    assert len(workers) == 3


def test_an_error_is_told_whichever_process_meets_it(tmp_path: Path, workers: list[int]) -> None:
    with pytest.raises(UnsupportedInstruction, match=r"k5: line .*'wmma.something'"):
        compile_image(_text("wmma.something %r1, %r2;").encode(), CAPABILITY, tmp_path / "module.so")
    assert list(tmp_path.iterdir()) == []
    for worker in workers:
        with pytest.raises(ChildProcessError):
            os.waitpid(worker, 0)


def test_an_error_of_another_part_than_the_first_is_told(tmp_path: Path, workers: list[int]) -> None:
    def failing() -> str:
        raise UnsupportedInstruction("frob", "k", 1)

    first = Translation(parse(HEADER + ".visible .entry k() { ret; }")).text
    with pytest.raises(UnsupportedInstruction, match="frob"):
        native.objects([first, failing], tmp_path)
    with pytest.raises(UnsupportedInstruction, match="frob"):
        native.objects([first, failing, first], tmp_path)
    assert len(workers) == 3
    for worker in workers:
        with pytest.raises(ChildProcessError):
            os.waitpid(worker, os.WNOHANG)


def test_small_modules_are_not_worth_a_process(tmp_path: Path, workers: list[int]) -> None:
    compile_image((HEADER + ".visible .entry k() { ret; }").encode(), CAPABILITY, tmp_path / "module.so")
    assert workers == []


def test_every_part_has_what_it_calls_and_nothing_twice() -> None:
    parts = [part.text() for part in Translation(parse(_text())).parts(4)]
    assert len(parts) == 4
    for number in range(NR_KERNELS):
        assert sum(f'define hidden void @"block.k{number}"' in part for part in parts) == 1
    assert all('define internal void @"f.shared_by_all"' in part for part in parts)


def test_a_folder_that_a_killed_process_left_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / f".softgpu-{os.getpid()}-0").mkdir()
    with native.work_folder(tmp_path / "module.so") as folder:
        assert folder.name == f".softgpu-{os.getpid()}-1"
    assert not folder.exists()


def test_the_command_finds_its_packages_without_site(tmp_path: Path) -> None:
    image, output = tmp_path / "k.ptx", tmp_path / "k.so"
    image.write_text(HEADER + ".visible .entry k() { ret; }")
    command_line = [sys.executable, "-S", "-P", "-m", "softgpu.compiler"]
    arguments = ["--image", str(image), "--capability", str(CAPABILITY), "--output", str(output)]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([*command_line, *arguments], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(LoadedModule(output).kernels) == ["k"]


@pytest.mark.parametrize(("cores", "threads", "processes"), [(1, 1, 1), (4, 1, 4), (1000, 1, 8), (4, 2, 1)])
def test_the_number_of_processes(cores: int, threads: int, processes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as cores, bounded; a process that has other threads stays alone."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    monkeypatch.setattr(threading, "active_count", lambda: threads)
    assert command._nr_processes() == processes


SLEEPS = """
import os, sys, time
from pathlib import Path
from softgpu.compiler import command, native

parent = os.getpid()
command._nr_processes = lambda: 4

def sleep(text, *, speed_level):
    (Path(sys.argv[1]) / str(os.getpid())).touch()
    time.sleep(600)

native.object_code = sleep
command.compile_image(sys.stdin.buffer.read(), int(sys.argv[2]), Path(sys.argv[1]) / "module.so")
"""


def test_forks_end_with_the_process_that_made_them(tmp_path: Path) -> None:
    compiler = subprocess.Popen([sys.executable, "-c", SLEEPS, str(tmp_path), str(CAPABILITY)], stdin=subprocess.PIPE)
    assert compiler.stdin is not None
    compiler.stdin.write(_text().encode())
    compiler.stdin.close()
    wait_until(lambda: len(_numbers(tmp_path)) == 4, "all four compile")
    compiler.kill()
    compiler.wait()
    for number in _numbers(tmp_path):
        wait_until(lambda number=number: not Path(f"/proc/{number}").exists(), "a fork has ended")  # type: ignore[misc]


def _numbers(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.isdecimal()]
