"""What in an image depends on addresses that a driver chose, of what nvcc makes: in PTX, and in machine code of several kinds."""

import re
import struct
import subprocess
import threading
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path

import pytest

from backend_host.device import readings
from backend_host.worker import binds as module
from backend_host.worker import images
from backend_host.worker.binds import UNKNOWN, Binder, Bound, binds, nests
from backend_host.worker.build_ffi import HERE
from backend_host.worker.images import LEAST_BYTES_FOR_THREAD, MAX_IMAGE_BYTES, Aside
from benchmarks.nvcc import find_nvcc
from cuda_api.fatbin import EntryKind
from tests.backend_host.hostile_images import container, entry
from tests.backend_host.test_needs import machine_code
from tests.backend_host.worker_guest import ROOT
from tests.end_to_end.host import wait_until

NONE, VARIABLES, FUNCTIONS, HEAP, NESTED = Bound(0), Bound.VARIABLES, Bound.FUNCTIONS, Bound.HEAP, Bound.NESTED
HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"

PROGRAMS = {
    "global": "__device__ int v[9]; __global__ void k(int *o) { *o = v[threadIdx.x]; }",
    "constant": "__constant__ int v[9]; __global__ void k(int *o) { *o = v[threadIdx.x]; }",
    "table": "static __device__ const int v[9] = {1, 2}; __global__ void k(int *o, int i) { *o = v[i]; }",
    "byte": "__device__ bool is_done; __global__ void k(int *o) { *o = is_done; is_done = true; }",
    "managed": "__managed__ int v; __global__ void k(int *o) { *o = v; }",
    "text": '__global__ void k(const char **o) { *o = "text"; }',
    "printf": '#include <cstdio>\n__global__ void k(int i) { printf("%d", i); }',
    "printf of a text": '#include <cstdio>\n__global__ void k(int i) { printf("%s, %d", "one", i); printf("%s", "no"); }',
    "assert": "#include <cassert>\n__global__ void k(int i, const int *o) { assert(i > 3); assert(o[i] == 1); }",
    "read by name": "__constant__ float v[9], w = 7; __constant__ int4 x; __global__ void k(float *o) { *o = v[3] * w + x.z; }",
    "stored as well": "__constant__ int v[9]; __global__ void k(const int **o) { **(int **)o = v[3]; o[1] = v; }",
    "printed and stored": """
#include <cstdio>
__global__ void k(const char **o) { const char *text = "text"; printf(text); *o = text; }
""",
    "printed and called with": """
#include <cstdio>
__device__ __noinline__ int called(const char *text, int i) { return text[i]; }
__global__ void k(int *o) { printf("text"); *o = called("text", *o); }
""",
    "read as a text": """
#include <cstdio>
struct of_two { const char *texts[2]; };
__global__ void k(int *o, int i) { volatile of_two both = {{"one", "two"}}; printf("%s", both.texts[i]); *o = both.texts[0][i]; }
""",
    "function": """
typedef int (*operation)(int);
__device__ __noinline__ int f(int v) { return v * 3; }
__device__ __noinline__ int g(int v) { return v * 5; }
__global__ void keep(operation *o, int i) { *o = i ? f : g; }
__global__ void use(operation *o, int *v) { *v = (*o)(*v); }
""",
    "functions": """
__device__ __noinline__ int f(int v) { return v * 3; }
__device__ __noinline__ int g(int v) { return v * 5; }
__device__ int (*both[])(int) = {f, g};
__global__ void k(int *o, int i) { *o = both[i](*o); }
""",
    "virtual": """
struct base { __device__ virtual int go(int) = 0; };
struct one : base { __device__ int go(int v) override { return v * 7; } };
struct two : base { int k; __device__ int go(int v) override { return v * k; } };
__global__ void make(char *at, int i) { if (i) new (at) one; else new (at) two; }
__global__ void use(base *b, int *o) { *o = b->go(*o); }
""",
    "malloc": "__global__ void k(void **o) { free(o[1]); *o = malloc(9); }",
    "new": "__global__ void k(int **o) { delete[] o[1]; *o = new int[9]; }",
    "aligned": "__global__ void k(void **o) { *o = __nv_aligned_device_malloc(64, 64); }",
    "clean": r"""
#include <cub/block/block_reduce.cuh>
#include <cuda/std/tuple>
extern __shared__ int dynamic[];
struct many { double a[40]; };
template <class T> __global__ void reduce(const T *in, T *out)
{
    using block = cub::BlockReduce<T, 128>;
    __shared__ typename block::TempStorage shared;
    const T sum = block(shared).Sum(in[threadIdx.x]);
    if (threadIdx.x == 0) atomicAdd(out, sum);
}
template __global__ void reduce<float>(const float *, float *);
template __global__ void reduce<int>(const int *, int *);
__global__ void parameters(many m, double *o, int i) { o[0] = sin(m.a[i]) + pow(m.a[2], o[1]) / fmod(o[2], o[3]); }
__global__ void shared(int *o, int n) { dynamic[threadIdx.x] = o[n]; __syncthreads(); o[0] = dynamic[n]; }
__global__ void local(int *o, int i) { int a[64]; for (int k = 0; k < 64; k++) a[k] = o[k]; o[0] = a[i]; }
__device__ __noinline__ int called(int v) { return v * 7; }
__device__ __noinline__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
__global__ void calls(int *o) { o[0] = called(fibonacci(o[1])); }
__global__ void jumps(int *o, int i)
{
    switch (i) {
    case 0: o[0] = 1; break;
    case 1: o[2] = 6; break;
    case 2: o[3] = o[4] * 7; break;
    case 3: o[9] = __sinf(o[8]); break;
    case 4: o[10] = o[11] / o[12]; break;
    case 5: o[5] = atomicAdd(o, 1); break;
    default: o[6] = cuda::std::get<1>(cuda::std::make_tuple(1, o[7]));
    }
}
""",
}
FOLLOWED = "printf", "assert", "read by name", "constant"
"""What PTX tells that no kernel keeps."""
NESTING = "__global__ void child(int *o) { ++*o; } __global__ void parent(int *o) { child<<<1, 1>>>(o); }"
WHOLE = {
    "global": VARIABLES,
    "constant": NONE,
    "table": VARIABLES,
    "byte": VARIABLES,
    "managed": VARIABLES,
    "text": VARIABLES,
    "printf": NONE,
    "printf of a text": NONE,
    "assert": NONE,
    "read by name": NONE,
    "stored as well": VARIABLES,
    "printed and stored": VARIABLES,
    "printed and called with": VARIABLES,
    "read as a text": VARIABLES,
    "function": FUNCTIONS,
    "functions": FUNCTIONS | VARIABLES,
    "virtual": FUNCTIONS | VARIABLES,
    "malloc": HEAP,
    "new": HEAP,
    "aligned": HEAP,
    "clean": NONE,
}
FORMS = {
    "PTX": ("-ptx", "-arch=compute_80"),
    "machine code": ("-cubin", "-arch=sm_90"),
    "machine code to be linked": ("-cubin", "-rdc=true", "-arch=sm_90"),
}
MORE_FORMS = {
    "older machine code": ("-cubin", "-arch=sm_80"),
    "newer machine code": ("-cubin", "-arch=sm_120"),
    "both, compressed": ("-fatbin", "-arch=sm_90", "--compress-mode=size"),
    "PTX of a newer device": ("-fatbin", "-gencode=arch=compute_100,code=compute_100"),
}
CAPABILITIES = {"older machine code": 80, "newer machine code": 120, "PTX of a newer device": 80}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., bytes]:
    """What nvcc makes of a source with these options."""
    folder = tmp_path_factory.mktemp("binds")

    @cache
    def run(source: str, *options: str) -> bytes:
        (folder / "kernel.cu").write_text(source)
        command = [
            str(find_nvcc().path),
            "-std=c++17",
            *options,
            "-o",
            str(folder / "image"),
            str(folder / "kernel.cu"),
        ]
        subprocess.run(command, check=True, cwd=folder)
        return (folder / "image").read_bytes()

    return run


@pytest.mark.parametrize(
    ("name", "form"),
    [
        *product(PROGRAMS, FORMS),
        *product(("clean", "function", "virtual"), MORE_FORMS),
        *product((*FOLLOWED, "stored as well"), ("both, compressed",)),
    ],
)
def test_what_nvcc_makes(compiled: Callable[..., bytes], name: str, form: str) -> None:
    expected = WHOLE[name]
    if (name, form) == ("functions", "machine code"):
        expected = VARIABLES  # a table of the compiler's numbers
    if name.startswith(FOLLOWED) and "code" in form:
        expected = VARIABLES  # without PTX
    image = compiled(PROGRAMS[name], *(FORMS | MORE_FORMS)[form])
    assert binds(image, CAPABILITIES.get(form, 90)) == expected


def test_machine_code_is_told_of_by_ptx_for_the_same_architecture(compiled: Callable[..., bytes]) -> None:
    """By what has all of its variables."""
    code = compiled(PROGRAMS["read by name"], *FORMS["machine code"])
    text = compiled(PROGRAMS["read by name"], "-ptx", "-arch=compute_90")
    fewer = text.replace(b"[v+12]", b"[w]").replace(b".const .align 4 .b8 v[36];", b"")
    assert binds(container(entry(code, EntryKind.ELF, 90), entry(text, EntryKind.PTX, 90)), 90) == NONE
    assert binds(container(entry(code, EntryKind.ELF, 90), entry(text, EntryKind.PTX, 80)), 90) == VARIABLES
    assert binds(container(entry(code, EntryKind.ELF, 90), entry(fewer, EntryKind.PTX, 90)), 90) == VARIABLES
    assert binds(container(entry(fewer, EntryKind.PTX, 90)), 90) == NONE
    other = compiled(PROGRAMS["stored as well"], "-ptx", "-arch=compute_90")
    assert binds(container(*(entry(each, EntryKind.PTX, 90) for each in (other, text))), 90) == VARIABLES


@pytest.mark.parametrize("form", ["-ptx", "-cubin"])
def test_kernels_that_launch_kernels(compiled: Callable[..., bytes], form: str) -> None:
    image = compiled(NESTING, form, "-rdc=true", "-arch=sm_90")
    assert binds(image, 90) == NESTED | FUNCTIONS  # the address of the child, for the launch
    assert nests(image, 90)


def linked(folder: Path, *sources: str) -> bytes:
    """Machine code, each source compiled by itself."""
    nvcc = str(find_nvcc().path)
    for number, source in enumerate(sources):
        (folder / f"{number}.cu").write_text(source)
        subprocess.run([nvcc, "-rdc=true", "-arch=sm_90", "-c", f"{number}.cu"], check=True, cwd=folder)
    objects = [f"{number}.o" for number in range(len(sources))]
    command = [nvcc, "-dlink", "-cubin", "-arch=sm_90", "-o", "image", *objects, "-lcudadevrt"]
    subprocess.run(command, check=True, cwd=folder)
    return (folder / "image").read_bytes()


def test_linked_machine_code(tmp_path: Path) -> None:
    calls = "extern __device__ int called(int); __global__ void k(int *o) { *o = called(*o); }"
    assert binds(linked(tmp_path, calls, "__device__ int called(int v) { return v * 7; }"), 90) == NONE
    assert binds(linked(tmp_path, PROGRAMS["function"]), 90) == FUNCTIONS
    assert binds(linked(tmp_path, NESTING), 90) == NESTED | FUNCTIONS | VARIABLES  # of the library that launches


@pytest.mark.parametrize("form", FORMS)
def test_a_program_that_keeps_all_kinds_of_addresses(compiled: Callable[..., bytes], form: str) -> None:
    source = (ROOT / "tests/programs/kept_addresses.cu").read_text()
    image = compiled(source, *FORMS[form], f"-I{ROOT / 'tests/programs'}")
    assert binds(image, 90) == VARIABLES | FUNCTIONS | HEAP


@pytest.mark.parametrize(
    ("text", "bits"),
    [
        (".visible .entry k() { ret; }", NONE),
        (".entry k(.param .u64 .ptr .global .align 4 p) { .reg .b64 %d<2>; ld.param.u64 %d1, [p]; ret; }", NONE),
        (".extern .shared .align 16 .b8 all[]; .entry k() { .reg .b64 %d<2>; mov.u64 %d1, all; ret; }", NONE),
        (".entry k() { .shared .b32 s[9]; .local .b8 l[99]; st.shared.b32 [s], 1; ret; }", NONE),
        (".global .align 1 .b8 _ZN4cuda3std3__45__cpo5beginE[1];", NONE),
        (".global .align 4 .b8 __cudart_i2opi_f[24] = {1, 2};", NONE),
        ("// .global .b8 x[9];\n/* malloc */ .entry k() { ret; }", NONE),
        (".entry k() { .param .b64 malloc_param_0; ret; }", NONE),
        (".global .b8 x;", VARIABLES),
        (".entry k() { .global .b32 x; ret; }", VARIABLES),
        (".extern .global .b32 x;", VARIABLES),
        (".common .global .align 8 .u64 x;", VARIABLES),
        (".const[2] .b8 x[9];", VARIABLES),
        (".global .texref t;", VARIABLES),
        (".func f() { ret; } .entry k() { .reg .b64 %d<2>; mov.b64 %d1, f; ret; }", FUNCTIONS),
        (".entry k() { .reg .b64 %d<2>; mov.u64\n%d1,\nf; ret; }\n.func (.param .b32 r) f(.param .b32 a) { ret; }", FUNCTIONS),
        (".func .noreturn f() { trap; } .global .u64 t[2] = {0, f};", FUNCTIONS | VARIABLES),
        (".entry k() { P: .callprototype _ (); .reg .b64 %d<2>; call %d1, (), P; ret; }", FUNCTIONS),
        (".func f() { ret; } .entry k() { call f, (); ret; }", NONE),
        (".extern .func free(.param .b64 p); .entry k() { call free, (p); ret; }", HEAP),
        (".extern .func (.param .b32 r) cudaLaunchDeviceV2(.param .b64 p);", NESTED),
        ("#define G .global\nG .b8 x[9];", Bound.IMAGES),
    ],
)  # fmt: skip
def test_ptx_text(text: str, bits: Bound) -> None:
    assert binds((HEAD + text + "\n").encode() + b"\0", 90) == bits


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (".extern .func (.param .b32 r) cudaLaunchDeviceV2(.param .b64 p);", True),
        (".extern .func (.param .b64 r) cudaGetParameterBufferV2(.param .b64 p);", True),
        ("// cudaLaunchDeviceV2 is not called\n.entry k() { ret; }", False),
        (".entry k() { ret; }", False),
    ],
)
def test_which_ptx_launches_kernels(text: str, expected: bool) -> None:
    assert nests((HEAD + text + "\n").encode() + b"\0", 90) is expected


def test_what_cannot_be_read_is_not_said_to_launch_kernels() -> None:
    assert not nests(b"\x50\xed\x55\xba cudaLaunchDeviceV2", 90)
    assert not nests(b"cudaLaunchDeviceV2" + bytes(MAX_IMAGE_BYTES), 90)


def test_a_text_is_looked_into_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in one is known in the others."""
    monkeypatch.setattr(module, "_SLICE_BYTES", 16)
    text = HEAD + ".func f() { ret;\n}\n.global .b8\nx[9];\n.entry k() {\nmov.u64 %d1, f;\nret;\n}\n"
    assert binds(text.encode(), 90) == FUNCTIONS | VARIABLES
    assert binds(text.replace(", f;", ", %d2;").encode(), 90) == VARIABLES


LOADED = 2
GRAPH = (".nv.callgraph", 8, 0, 0)


@pytest.mark.parametrize("name", [".nv.global", ".nv.global.init", ".nv.constant3", ".nv.constant1"])
def test_memory_that_has_no_names_counts(name: str) -> None:
    assert binds(machine_code((name, 8, LOADED, 9)), 90) & VARIABLES


def test_machine_code_that_does_not_tell_who_calls_whom_may_call_by_addresses() -> None:
    assert binds(machine_code((".text.k", 8, LOADED, 0)), 90) == FUNCTIONS
    assert binds(machine_code((".nv.callgraph", 1, LOADED, 0)), 90) == NONE


def test_an_image_without_anything_that_can_run_cannot_be_read(compiled: Callable[..., bytes]) -> None:
    link_time = compiled(PROGRAMS["clean"], "-fatbin", "-rdc=true", "-gencode=arch=compute_90,code=lto_90")
    assert binds(link_time, 90) == Bound.IMAGES
    other = compiled(PROGRAMS["clean"], "-fatbin", "-gencode=arch=compute_80,code=sm_80")
    assert binds(other, 90) == Bound.IMAGES
    assert binds(other, 86) == NONE
    assert binds(b"nothing of the kind\0", 90) == Bound.IMAGES
    assert binds(container(entry(b"\xff" * 99, 2, 90)), 90) == Bound.IMAGES


def test_images_that_are_linked_when_loaded_count_together(compiled: Callable[..., bytes]) -> None:
    """One behind the other, and each begins at a multiple of 8."""
    clean, heap = (compiled(PROGRAMS[name], "-fatbin", "-rdc=true", "-arch=sm_90") for name in ("clean", "malloc"))
    assert binds(clean + bytes(-len(clean) % 8) + heap, 90) == HEAP
    assert binds(clean + bytes(-len(clean) % 8) + clean, 90) == NONE


@pytest.mark.parametrize("limit", ["MAX_IMAGE_BYTES", "MAX_UNPACKED_BYTES"])
def test_what_is_too_large_is_not_looked_into(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    image = (HEAD + ".entry k() { ret; }\n").encode()
    assert binds(image, 90) == NONE
    monkeypatch.setattr(module, limit, len(image) - 1)
    assert binds(image, 90) == Bound.IMAGES


@pytest.mark.parametrize("name", ["clean", "functions"])
def test_damage_hides_nothing(compiled: Callable[..., bytes], name: str) -> None:
    """An image cut short has its bits, or cannot be read."""
    image = compiled(PROGRAMS[name], *FORMS["machine code to be linked"])
    for nr_bytes in range(0, len(image), 97):
        found = binds(image[:nr_bytes], 90)
        assert found & Bound.IMAGES or WHOLE[name] in found


def test_sections_that_share_their_bytes_are_not_read() -> None:
    """Each of these would be looked through as a whole."""
    code = machine_code(*[(".nv.callgraph", 1, 0, 64)] * 100)
    assert binds(code, 90) == NONE
    table = struct.unpack_from("<Q", code, 0x28)[0]
    lies = bytearray(code)
    for number in range(2, 101):
        struct.pack_into("<Q", lies, table + number * 64 + 32, len(code) - 64)
    assert binds(bytes(lies), 90) == Bound.IMAGES


class Looking:
    """A binder, and what it told of which ticket."""

    def __init__(self) -> None:
        self.told: dict[int, int] = {}
        self.binder = Binder(self.told.__setitem__, Aside())

    def look(self, image: bytes, ticket: int) -> int:
        return self.binder.look(memoryview(image), 90, ticket)


LARGE = (HEAD + ".entry k() { ret; }\n" + "//\n" * LEAST_BYTES_FOR_THREAD).encode()
LARGE_HEAP = LARGE + b".extern .func free(.param .b64 p);\n"


def test_large_images_are_looked_into_by_a_thread() -> None:
    looking = Looking()
    assert looking.look((HEAD + ".global .b32 x;").encode(), 1) == VARIABLES
    assert [looking.look(LARGE, 2), looking.look(LARGE_HEAP, 3)] == [UNKNOWN, UNKNOWN]
    wait_until(lambda: len(looking.told) == 2, "all looked into")
    assert looking.told == {2: NONE, 3: HEAP}


def test_an_image_at_which_the_thread_fails_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(*_: object) -> Bound:
        raise MemoryError

    looking = Looking()
    monkeypatch.setattr(module, "binds", no_memory)
    assert looking.look(LARGE, 7) == UNKNOWN
    wait_until(lambda: bool(looking.told), "told")
    assert looking.told == {7: Bound.IMAGES}


def test_a_guest_that_loads_faster_than_anybody_can_look(monkeypatch: pytest.MonkeyPatch) -> None:
    looking, held = Looking(), threading.Event()
    monkeypatch.setattr(module, "binds", lambda *_: held.wait(60) and NONE)
    monkeypatch.setattr(images, "MAX_WAITING_BYTES", 6 * len(LARGE))
    assert [looking.look(LARGE, ticket) for ticket in range(4)] == [UNKNOWN] * 3 + [Bound.IMAGES]
    held.set()
    wait_until(lambda: len(looking.told) == 3, "all looked into")


def test_bits_are_those_of_the_page() -> None:
    enumeration = re.search(r"enum fgw_bound \{(.*?)\};", (HERE / "page" / "layout.h").read_text(), re.DOTALL)
    assert enumeration is not None
    there = {name: 1 << int(bit) for name, bit in re.findall(r"FGW_BOUND_(\w+) = 1u << (\d+)", enumeration[1])}
    assert there.items() >= {bit.name: bit.value for bit in Bound}.items()
    assert there == {bit.name: bit.value for bit in readings.Bound}
