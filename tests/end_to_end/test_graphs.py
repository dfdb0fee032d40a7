"""Captures through FairGV where it differs from a device of one's own: what the host could not reach at a launch."""

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.nvcc import find_nvcc
from tests.conformance.build import build_driver
from tests.end_to_end.host import Host

NR_STEPS = 40
MAX_UPDATES_WAITED_FOR = 2
"""Of one node: the first, and the first with each of two child graphs."""
UPDATES = [f"cuGraphExec{kind}NodeSetParams" for kind in ("Memcpy", "Memset", "Host", "ChildGraph")]
UPDATES += ["cuGraphExecKernelNodeSetParams_v2", "cuGraphNodeSetEnabled"]

PRELUDE = """
import ctypes, threading
cuda = ctypes.CDLL("libcuda.so.1")
def ok(call, *arguments):
    result = getattr(cuda, call)(*arguments)
    assert result == 0, (call, result)
pointer, size, word = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint
context, stream, graph, device, pinned = pointer(), pointer(), pointer(), ctypes.c_uint64(), pointer()
ok("cuInit", 0)
ok("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
ok("cuCtxSetCurrent", context)
ok("cuStreamCreate", ctypes.byref(stream), 1)
ok("cuMemAlloc_v2", ctypes.byref(device), size(1 << 20))
ok("cuMemHostAlloc", ctypes.byref(pinned), size(1 << 20), 0)
pageable = ctypes.create_string_buffer(1 << 20)
def status():
    value = ctypes.c_int(-1)
    ok("cuStreamIsCapturing", stream, ctypes.byref(value))
    return value.value
"""

PAGEABLE = """
for nbytes in (16, 1 << 20):
    for call in (lambda: cuda.cuMemcpyHtoDAsync_v2(device, pageable, size(nbytes), stream),
                 lambda: cuda.cuMemcpyDtoHAsync_v2(pageable, device, size(nbytes), stream),
                 lambda: cuda.cuMemcpyAsync(ctypes.c_uint64(pinned.value), ctypes.c_uint64(ctypes.addressof(pageable)), size(nbytes), stream)):
        ok("cuStreamBeginCapture_v2", stream, 2)
        print(call(), status(), cuda.cuStreamEndCapture(stream, ctypes.byref(graph)), graph.value is not None, status())
ok("cuStreamBeginCapture_v2", stream, 2)
ok("cuMemcpyHtoDAsync_v2", device, pinned, size(1 << 20), stream)
print(status(), cuda.cuStreamEndCapture(stream, ctypes.byref(graph)), graph.value is not None)
"""

WRITTEN_ON_THE_WAY = """
write = ctypes.CFUNCTYPE(None, pointer)(lambda _: pageable.__setitem__(slice(0, 4), b"then"))
back = ctypes.create_string_buffer(16)
pageable[:4] = b"once"
ok("cuStreamBeginCapture_v2", stream, 2)
ok("cuLaunchHostFunc", stream, write, None)
ok("cuMemcpyHtoDAsync_v2", device, pageable, size(16), stream)
ok("cuMemcpyDtoHAsync_v2", back, device, size(16), stream)
ok("cuStreamEndCapture", stream, ctypes.byref(graph))
executable = pointer()
ok("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, ctypes.c_uint64(0))
ok("cuGraphLaunch", executable, stream)
print(back.raw[:4].decode())
"""

DOT = """
import sys
ok("cuGraphCreate", ctypes.byref(graph), 0)
nodes = [pointer() for _ in range(3)]
for i, node in enumerate(nodes):
    before = (pointer * 1)(nodes[i - 1]) if i else None
    ok("cuGraphAddEmptyNode", ctypes.byref(node), graph, before, size(1 if i else 0))
ok("cuGraphDebugDotPrint", graph, sys.argv[1].encode(), 1)
text = open(sys.argv[1]).read()
print(text.count("EMPTY"), text.count("->"), text.startswith("digraph"))
"""


def run(host: Host, script: str, *arguments: str) -> list[str]:
    result = host.guest(sys.executable, "-c", PRELUDE + script, *arguments)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


def test_pageable_memory_is_captured(host: Host) -> None:
    assert run(host, PAGEABLE) == ["0 1 0 True 0"] * 6 + ["1 0 True"]


def test_what_a_host_function_of_the_graph_wrote_is_copied(host: Host) -> None:
    """NVIDIA's driver leaves that to chance."""
    assert run(host, WRITTEN_ON_THE_WAY) == ["then"]


def test_updates_over_and_over_are_not_waited_for(host: Host, tmp_path: Path) -> None:
    counted = tmp_path / "counts"
    program = str(build_driver(find_nvcc()))
    result = host.guest(program, "graph_updated_over_and_over", options=("--json", str(counted)))
    assert result.returncode == 0, result.stderr
    counts = {count["name"]: count for count in json.loads(counted.read_text())}
    assert counts.keys() >= set(UPDATES), f"{result.stdout}{result.stderr}"
    for call in UPDATES:
        assert counts[call]["nr"] == NR_STEPS
        assert counts[call]["nr_round_trips"] <= MAX_UPDATES_WAITED_FOR, call
    assert counts["cuGraphLaunch"]["nr_round_trips"] == 0


def test_a_graph_is_drawn_into_a_file_of_the_guest(host: Host, tmp_path: object) -> None:
    assert run(host, DOT, f"{tmp_path}/graph.dot") == ["3 2 True"]


def test_what_a_graph_launches_on_the_device_is_charged(host: Host) -> None:
    child = host.start("graph_relaunch", "tell", options=("--vgpu", "relaunching"), stdin=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == "40 rounds, ended after 40, 0 left, error 0\n"
    spun_ns = int(child.stdout.readline().split()[1])
    vgpu = next(vgpu for vgpu in host.status()["vgpus"] if vgpu["name"] == "relaunching")
    output, errors = child.communicate("\n")
    assert (child.returncode, output, errors) == (0, "PASS\n", "")
    assert vgpu["used_ns"] >= spun_ns >= 40_000_000


ORDERS = r"""
PTX = b'''
.version 8.0
.target sm_80
.address_size 64
.extern .func (.param .b32 error) cudaGraphLaunch (.param .b64 graph, .param .b64 how);
.visible .entry order(.param .u64 graph, .param .u64 how, .param .u32 times, .param .u64 errors) {
    .reg .b64 %g, %h, %e; .reg .b32 %n, %r, %one; .reg .pred %more;
    ld.param.u64 %g, [graph]; ld.param.u64 %h, [how]; ld.param.u32 %n, [times]; ld.param.u64 %e, [errors];
again:
    { .param .b32 error; .param .b64 a; .param .b64 b;
      st.param.b64 [a], %g; st.param.b64 [b], %h;
      call (error), cudaGraphLaunch, (a, b);
      ld.param.b32 %r, [error]; }
    mul.lo.u32 %r, %r, 4;
    cvt.u64.u32 %h, %r; add.u64 %h, %h, %e;
    atom.global.add.u32 %one, [%h], 1;
    ld.param.u64 %h, [how];
    sub.u32 %n, %n, 1;
    setp.ne.u32 %more, %n, 0;
    @%more bra again;
    ret;
}
'''
module, order = pointer(), pointer()
ok("cuModuleLoadData", ctypes.byref(module), PTX)
ok("cuModuleGetFunction", ctypes.byref(order), module, b"order")

def launch(graph, how, times):
    values = [ctypes.c_uint64(graph), ctypes.c_uint64(how), word(times), device]
    arguments = (pointer * 4)(*(ctypes.addressof(value) for value in values))
    ok("cuLaunchKernel", order, 1, 1, 1, 1, 1, 1, 0, stream, arguments, None)

def instantiated(flags, *launches):
    made = pointer()
    ok("cuStreamBeginCapture_v2", stream, 2)
    if not launches:
        ok("cuMemsetD32Async", ctypes.c_uint64(device.value + 4096), 1, size(1), stream)
    for one in launches:
        launch(*one)
    ok("cuStreamEndCapture", stream, ctypes.byref(graph))
    ok("cuGraphInstantiateWithFlags", ctypes.byref(made), graph, ctypes.c_uint64(flags))
    return made

def errors(*which):
    counts = (word * 1024)()
    ok("cuMemcpyDtoH_v2", counts, device, size(4096))
    ok("cuMemsetD32_v2", device, 0, size(1024))
    return [counts[error] for error in which]

TAIL, CHILD = 1 << 56, 2 << 56
ok("cuMemsetD32_v2", device, 0, size(2048))
small, plain = instantiated(4), instantiated(0)
launch(small.value, TAIL, 3)
ok("cuStreamSynchronize", stream)
print("outside of a graph", *errors(0, 1))
ok("cuGraphLaunch", instantiated(0, (small.value, TAIL, 300), (small.value, 5, 2), (0, TAIL, 4)), stream)
ok("cuStreamSynchronize", stream)
print("in a graph", *errors(0, 1, 69))
for wrong in WRONG:
    ok("cuGraphLaunch", instantiated(0, (small.value, CHILD, 1), (wrong(), CHILD, 1)), stream)
print("what is none", cuda.cuStreamSynchronize(stream))
"""


def test_what_kernels_launch_may_be_anything(host: Host) -> None:
    """More than there is room for, in streams that are none, graphs that are none: the last ends the context's work, as a fault does."""
    for wrong in ("lambda: 0x1234", "lambda: plain.value", "lambda: device.value", "lambda: (1 << 64) - 8"):
        assert run(host, ORDERS.replace("WRONG", f"[{wrong}]")) == [
            "outside of a graph 0 3",
            "in a graph 255 6 45",
            "what is none 719",
        ]
