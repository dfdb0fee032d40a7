"""Builds the fuzzer of the worker with clang: all of the worker's C in one program, over a stand-in for the driver. With sanitizers, or
with clang's counts of lines, to see what its inputs reach."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from backend_host.worker import build_ffi
from tests.fuzz import generate

HERE = Path(__file__).parent
OUT = build_ffi.ROOT / "build" / "fuzz"
CLANG = "clang-14"
OWN = (
    "worker.c",
    "daemon.c",
    "locks.c",
    "mutator.c",
    "objects.c",
    "stand_code.c",
    "stand_memory.c",
    "stand_nodes.c",
    "stand_swap.c",
    "stand_work.c",
    "system.c",
)
LEFT_OUT = ("generated/driver.c", "calls/swap_memory.c")
"""One looks for the driver's calls in a library, the other has a thread; the stand-in has both."""
SANITIZERS = [
    "-fsanitize=address,undefined",
    "-fsanitize-coverage=inline-8bit-counters,pc-table",
    "-fno-sanitize-recover=undefined",
]
"""Without traces of comparisons, which took two fifths of the time: the mutator knows the records' values."""
COUNTS = ["-fprofile-instr-generate", "-fcoverage-mapping"]
CARRIED = ["-static-libstdc++", "-static-libgcc"]
"""The fuzzer runs on machines without clang, too: the sanitizers' runtime is in it anyway."""
REPLACED = ("clock_gettime", "getrandom", "alarm", "signal", "_exit")
"""Calls of the system that make a run depend on time, or end the process: see system.c."""
REPLACED_IN = {
    "loop/worker.c": ("malloc", "free"),
    "calls/host_function.c": ("syscall",),
    "calls/span.c": ("pthread_mutex_lock", "pthread_mutex_unlock"),
}
"""Likewise in one file alone."""
WRAPPED = ("fgw_ranges_make_room", "fgw_ranges_insert", "fgw_ranges_erase", "fgw_ranges_erase_some")
"""Functions of the worker's that lead to locks.c first, from any file but their own."""


def _compile(source: Path, to: Path, flags: list[str], headers_ns: int) -> Path:
    """The object, made anew when it is older than its source or than any header."""
    is_own = source.parent in (HERE, to.parent)
    in_this = REPLACED_IN.get(f"{source.parent.name}/{source.name}", ())
    names = () if is_own else (*REPLACED, *in_this)
    warnings = ["-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"] if is_own else ["-w"]
    renamed = [f"-D{name}=fuzz_{name}" for name in names]
    target = to / f"{source.parent.name}_{source.stem}.o"
    if target.exists() and target.stat().st_mtime_ns > max(source.stat().st_mtime_ns, headers_ns):
        return target
    include = [f"-I{path}" for path in (HERE, to, *build_ffi.INCLUDES)]
    command = [CLANG, "-std=gnu11", "-O1", "-g", build_ffi.DEBUG, *flags, *warnings, *renamed, *include]
    subprocess.run([*command, "-c", source, "-o", target], check=True)
    return target


def build(name: str, *, counts: bool = False) -> Path:
    """The program `name`; `counts`: for its coverage. Of several processes that want it one builds."""
    to = OUT / (f"{name}-counts" if counts else name)
    to.mkdir(parents=True, exist_ok=True)
    with (to / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _built(name, to, counts=counts)


def _built(name: str, to: Path, *, counts: bool) -> Path:
    program = to / name
    generate.main(to)
    sources = [path for path in build_ffi.sources() if f"{path.parent.name}/{path.name}" not in LEFT_OUT]
    sources += [*(HERE / own for own in OWN), to / "stand_ins.c"]
    headers = [*HERE.glob("*.h"), *to.glob("*.h"), *(path for i in build_ffi.INCLUDES for path in i.rglob("*.h"))]
    headers_ns = max(path.stat().st_mtime_ns for path in [*headers, Path(__file__)])
    flags = COUNTS if counts else SANITIZERS
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(lambda source: _compile(source, to, flags, headers_ns), sources))
    link = ["-fsanitize=fuzzer", COUNTS[0]] if counts else ["-fsanitize=address,undefined,fuzzer", *CARRIED]
    link += [f"-Wl,--wrap={name}" for name in WRAPPED]
    if program.exists() and all(path.stat().st_mtime_ns < program.stat().st_mtime_ns for path in objects):
        return program
    fresh = program.with_suffix(".new")
    subprocess.run([CLANG, *link, *objects, "-o", fresh, "-lpthread", "-ldl"], check=True)
    return fresh.replace(program)


if __name__ == "__main__":
    print(build(sys.argv[1], counts=len(sys.argv) > 2))
