"""Makes what a driver takes memory of the device for, step by step, and prints as JSON how much less memory each left free.

Run natively it tells what the driver takes; as a guest under a quota, what FairGV charges for it: there free memory is what the quota has left.
"""

import ctypes
import functools
import json
import subprocess
import sys
from collections.abc import Callable

MIB = 1 << 20
STACK, PRINTF, HEAP = range(3)
HEAD = ".version 7.0\n.target sm_70\n.address_size 64\n"
VARIABLE = HEAD + ".visible .global .align 4 .b8 x[{bytes}];\n.visible .entry k() {{ ret; }}\n"
LOCAL = (
    HEAD
    + """.visible .global .align 4 .u32 out;
.visible .entry k() {{
    .local .align 4 .b8 l[{bytes}];
    .reg .b64 %rd<6>;
    .reg .b32 %r<4>;
    mov.u64 %rd1, l;
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
    st.local.u32 [%rd3], %r1;
    mov.u32 %r2, %ctaid.x;
    mul.wide.u32 %rd4, %r2, 4;
    add.s64 %rd5, %rd1, %rd4;
    ld.local.u32 %r3, [%rd5];
    st.global.u32 [out], %r3;
    ret;
}}
"""
)
"""Which word is read where is known at run time alone, so the array stays."""
HOLD = "hold"

Handle = ctypes.c_void_p


@functools.cache
def cuda() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def call(name: str, *arguments: object) -> None:
    result = getattr(cuda(), name)(*arguments)
    if result != 0:
        raise RuntimeError(f"{name}: CUDA error {result}")


def primary() -> None:
    context = Handle()
    call("cuInit", 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call("cuCtxSetCurrent", context)


def free_bytes() -> int:
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    return free.value


def first_context() -> None:
    """Of another program, which ends with this one."""
    child = subprocess.Popen(
        [sys.executable, __file__, HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"made\n"


def second_context() -> None:
    before, context = Handle(), Handle()
    call("cuCtxGetCurrent", ctypes.byref(before))
    call("cuCtxCreate_v2", ctypes.byref(context), 0, 0)
    call("cuCtxSetCurrent", before)


def load(text: str) -> Handle:
    module = Handle()
    call("cuModuleLoadData", ctypes.byref(module), text.encode() + b"\0")
    return module


def modules(nr: int, nr_bytes: int) -> None:
    for _ in range(nr):
        load(VARIABLE.format(bytes=nr_bytes))


def streams(nr: int) -> None:
    for _ in range(nr):
        call("cuStreamCreate", ctypes.byref(Handle()), 1)


def limit(which: int, value: int) -> None:
    call("cuCtxSetLimit", which, ctypes.c_size_t(value))


def local_memory(nr_bytes: int) -> None:
    function = Handle()
    call("cuModuleGetFunction", ctypes.byref(function), load(LOCAL.format(bytes=nr_bytes)), b"k")
    call("cuLaunchKernel", function, *(1,) * 6, 0, None, None, None)
    call("cuCtxSynchronize")


STEPS: dict[str, Callable[[], None]] = {
    "a program's context": first_context,
    "a second context": second_context,
    "256 modules of 1 MiB": lambda: modules(256, MIB),
    "a module of 128 MiB": lambda: modules(1, 128 * MIB),
    "500 streams": lambda: streams(500),
    "stack of 8 KiB": lambda: limit(STACK, 8 << 10),
    "a kernel with 16 KiB local": lambda: local_memory(16 << 10),
    "printf's buffer of 64 MiB": lambda: limit(PRINTF, 64 * MIB),
    "heap of 256 MiB": lambda: limit(HEAP, 256 * MIB),
}


def main() -> None:
    primary()
    if HOLD in sys.argv:
        free_bytes()  # a guest's context is there when the host has answered
        print("made", flush=True)
        sys.stdin.read()
        return
    taken: dict[str, int | str] = {}
    for name, step in STEPS.items():
        before = free_bytes()
        try:
            step()
        except RuntimeError as error:  # a limit that may not change any more, say
            taken[name] = str(error)
        else:
            taken[name] = before - free_bytes()
    print(json.dumps(taken))


if __name__ == "__main__":
    main()
