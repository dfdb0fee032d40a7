"""The generated files: fresh, compiling, and doing what the table says.

`loopback` joins the guest's stubs to the worker's handlers in one library; `device` is a device library in which every
call writes down its arguments and hands out numbers.
"""

from __future__ import annotations

import ctypes
import subprocess
from functools import cache
from pathlib import Path

import pytest

from cuda_api import generate, outputs, table
from cuda_api.c_types import HANDLES
from cuda_api.call import Call
from cuda_api.prototype import Parameter

ROOT = Path(__file__).parents[2]
FLAGS = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-Wshadow", "-fPIC", f"-I{ROOT}"]
FLAGS += [
    f"-I{ROOT}/{folder}" for folder in ("cuda_api/include", "ivshmem/include", "frontend_guest", "backend_host/worker")
]

INVALID_VALUE, INVALID_CONTEXT, INVALID_HANDLE, INVALID_DEVICE, NOT_SUPPORTED = 1, 201, 400, 101, 801
OUT = 0x11223344


def _cc(*arguments: str | Path) -> None:
    result = subprocess.run(["cc", *FLAGS, *arguments], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[:4000]


def _argument(p: Parameter) -> str:
    if p.base == "float" and not p.is_pointer:
        return f"(unsigned long long){p.name}"
    return (
        f"(unsigned long long)(uintptr_t){p.name}"
        if p.is_pointer or p.base in HANDLES
        else f"(unsigned long long){p.name}"
    )


def _twin_by_hand(call: Call) -> str:
    assert call.prototype is not None
    names = "".join(f"    (void){p.name};\n" for p in call.parameters)
    declaration = call.prototype.declaration(call.name + call.per_thread)
    return f"{declaration}\n{{\n{names}    return CUDA_ERROR_NOT_SUPPORTED;\n}}\n"


def _device_call(call: Call) -> str:
    """A definition that writes down "name(arguments in hexadecimal)" and fills what it can of the outputs."""
    assert call.prototype is not None
    values = [
        p
        for p in call.parameters
        if not p.is_pointer
        and not p.base.startswith(("CUhostFn", "CUstreamCallback", "CUocc", "CUmemLocation", "CUipc"))
    ]
    lines = [f"{call.prototype.declaration()}", "{", f'    char *end = journal + sprintf(journal, "{call.name}(");']
    lines += [f'    end += sprintf(end, "%llx ", {_argument(p)});' for p in values]
    lines += ['    sprintf(end, ")");']
    used = {p.name for p in values}
    for p in call.parameters:
        if call.rule(p) in ("out", "out nullable", "new"):
            lines.append(f"    memset({p.name}, 0, sizeof *{p.name});")
            lines.append(f"    *(unsigned int *)(void *){p.name} = {OUT:#x};")
        elif call.rule(p) == "in":
            lines.append(
                f'    sprintf(journal + strlen(journal), " %x", *(const unsigned int *)(const void *){p.name});'
            )
        elif p.name not in used:
            lines.append(f"    (void){p.name};")
    return "\n".join([*lines, "    return CUDA_SUCCESS;", "}", ""])


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("device")
    text = '#include <stdio.h>\n#include <string.h>\n#include "cuda_api/prototypes.h"\n\nchar journal[4096];\n\n'
    calls = [call for call in table.read().symbols if call.codec != "alias"]
    by_hand = [call for call in calls if call.per_thread == "_ptds" and not call.per_thread_async]
    (folder / "device.c").write_text(
        text + "\n".join([_device_call(call) for call in calls] + [_twin_by_hand(call) for call in by_hand])
    )
    generated = ROOT / "softgpu" / "driver" / "generated"
    library = folder / "device.so"
    _cc("-shared", "-o", library, folder / "device.c", generated / "twins.c", generated / "procs.c")
    return ctypes.CDLL(str(library))


@pytest.fixture(scope="module")
def loopback(device: ctypes.CDLL, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("loopback")
    calls = table.read()
    text = '#include "backend_host/worker/client/service.h"\n#include "frontend_guest/generated/hooks.h"\n\nint hooks, answers;\n\n'
    parameters = "struct fgw_worker *worker, const struct fgw_request *request, void *reply"
    for call in calls.records:
        if not call.has_handler:
            text += f"CUresult fgw_serve_{call.name}({parameters})\n{{\n    (void)worker, (void)request, (void)reply;\n"
            text += "    return CUDA_ERROR_NOT_SUPPORTED;\n}\n"
        if call.before and call.prototype is not None:
            text += f"bool fgv_before_{call.name}({call.prototype.parameter_list()}, CUresult *answer)\n{{\n"
            text += "".join(f"    (void){p.name};\n" for p in call.parameters)
            text += "    *answer = (CUresult)answers;\n    return answers != 0;\n}\n"
        if call.hook and call.prototype is not None:
            text += f"void fgv_after_{call.name}(CUresult result, {call.prototype.parameter_list()})\n{{\n    (void)result;\n"
            text += "".join(f"    (void){p.name};\n" for p in call.parameters) + "    hooks++;\n}\n"
    (folder / "by_hand.c").write_text(text)
    library = folder / "loopback.so"
    sources = ["frontend_guest/generated/stubs.c", "backend_host/worker/generated/handlers.c"]
    sources += ["backend_host/worker/generated/driver.c", "cuda_api/generated/call_info.c", "tests/cuda_api/loopback.c"]
    _cc("-shared", "-Wl,-Bsymbolic", "-Wl,-z,defs", "-o", library, folder / "by_hand.c", *(ROOT / s for s in sources))
    opened = ctypes.CDLL(str(library))
    assert opened.loopback_open(ctypes.c_void_p(device._handle)) == 0
    return opened


def _journal(device: ctypes.CDLL) -> str:
    return bytes((ctypes.c_char * 4096).in_dll(device, "journal")).split(b"\0")[0].decode()


def _counter(library: ctypes.CDLL, name: str) -> int:
    return ctypes.c_uint64.in_dll(library, name).value


@cache
def _symbols(library: ctypes.CDLL) -> dict[int | None, str]:
    """The names of calls by their addresses."""
    return {
        ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value: symbol
        for call in table.read().symbols
        for symbol in (call.name, call.name + call.per_thread)
    }


def _find(library: ctypes.CDLL, name: str, version: int, flags: int = 0) -> tuple[str | None, int]:
    """What fgv_proc_find gives, as (symbol, status)."""
    status = ctypes.c_int(-1)
    library.fgv_proc_find.restype = ctypes.c_void_p
    address = library.fgv_proc_find(name.encode(), version, ctypes.c_uint64(flags), ctypes.byref(status))
    return (_symbols(library)[address] if address else None), status.value


def test_the_files_are_fresh() -> None:
    assert list(outputs.stale(generate.outputs())) == []


def test_output_is_deterministic() -> None:
    assert generate.outputs() == generate.outputs()


def test_a_changed_or_missing_file_is_stale(tmp_path: Path) -> None:
    texts = generate.outputs()
    assert set(outputs.write(texts, tmp_path)) == set(generate.OUTPUTS)
    assert outputs.write(texts, tmp_path) == []
    (tmp_path / "docs" / "coverage.md").write_text("by hand\n")
    (tmp_path / "cuda_api" / "include" / "cuda_api" / "wire.h").unlink()
    assert set(outputs.stale(texts, tmp_path)) == {"docs/coverage.md", "cuda_api/include/cuda_api/wire.h"}


def test_each_file_carries_the_seal() -> None:
    assert all(generate.seal() in text.splitlines()[0] for text in generate.outputs().values())


def test_no_generated_line_is_too_long() -> None:
    texts = {path: text for path, text in generate.outputs().items() if not path.endswith(".md")}
    assert [path for path, text in texts.items() if any(len(line) > 120 for line in text.splitlines())] == []


@pytest.mark.parametrize("path", [path for path in generate.OUTPUTS if path.endswith((".c", ".h"))])
def test_it_compiles_alone(path: str) -> None:
    _cc("-fsyntax-only", "-x", "c", ROOT / path)


@pytest.mark.parametrize(
    ("name", "version", "flags", "symbol", "status"),
    [
        ("cuCtxGetDevice", 12080, 0, "cuCtxGetDevice", 0),
        ("cuCtxGetDevice", 13000, 0, "cuCtxGetDevice_v2", 0),
        ("cuCtxSynchronize", 12090, 0, "cuCtxSynchronize", 0),
        ("cuCtxSynchronize", 13000, 0, "cuCtxSynchronize_v2", 0),
        ("cuCtxCreate", 3020, 0, "cuCtxCreate_v2", 0),
        ("cuCtxCreate", 11040, 0, "cuCtxCreate_v3", 0),
        ("cuCtxCreate", 13000, 0, "cuCtxCreate_v4", 0),
        ("cuMemAlloc", 3020, 0, "cuMemAlloc_v2", 0),
        ("cuMemAlloc", 13000, 0, "cuMemAlloc_v2", 0),
        ("cuMemAlloc", 2000, 0, None, 2),
        ("cuStreamGetCaptureInfo", 10010, 0, "cuStreamGetCaptureInfo", 0),
        ("cuStreamGetCaptureInfo", 11030, 0, "cuStreamGetCaptureInfo_v2", 0),
        ("cuStreamGetCaptureInfo", 12030, 2, "cuStreamGetCaptureInfo_v3_ptsz", 0),
        ("cuStreamGetCaptureInfo", 13000, 1, "cuStreamGetCaptureInfo_v3", 0),
        ("cuEventElapsedTime", 12070, 0, "cuEventElapsedTime", 0),
        ("cuEventElapsedTime", 12080, 0, "cuEventElapsedTime_v2", 0),
        ("cuDeviceGetUuid", 11030, 0, "cuDeviceGetUuid", 0),
        ("cuDeviceGetUuid", 11040, 0, "cuDeviceGetUuid_v2", 0),
        ("cuGetProcAddress", 11030, 0, "cuGetProcAddress", 0),
        ("cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2", 0),
        ("cuMemcpyHtoD", 13000, 2, "cuMemcpyHtoD_v2_ptds", 0),
        ("cuMemcpyHtoD", 13000, 1, "cuMemcpyHtoD_v2", 0),
        ("cuLaunchKernel", 13000, 2, "cuLaunchKernel_ptsz", 0),
        ("cuLaunchKernel", 4000, 2, None, 2),
        ("cuInit", 13000, 2, "cuInit", 0),
        ("cuLibraryLoadData", 11080, 0, None, 2),
        ("cuMemAlloc_v2", 13000, 0, None, 1),
        ("cuGraphAddExternalSemaphoresWaitNode", 13000, 0, None, 1),
        ("cuZ", 13000, 0, None, 1),
        ("", 13000, 0, None, 1),
    ],
)
def test_get_proc_address(
    device: ctypes.CDLL, name: str, version: int, flags: int, symbol: str | None, status: int
) -> None:
    assert _find(device, name, version, flags) == (symbol, status)


def test_every_symbol_is_found_at_its_own_version(device: ctypes.CDLL) -> None:
    for call in table.read().symbols:
        assert _find(device, call.base_name, call.since) == (call.name, 0)


def test_twins_use_the_stream_of_the_thread(device: ctypes.CDLL) -> None:
    assert device.cuStreamGetFlags_ptsz(None, None) == 0
    assert _journal(device) == "cuStreamGetFlags(2 )"
    assert device.cuStreamGetFlags_ptsz(ctypes.c_void_p(0x77), None) == 0
    assert _journal(device) == "cuStreamGetFlags(77 )"
    assert device.cuMemcpyHtoD_v2_ptds(ctypes.c_uint64(0x5000), None, ctypes.c_size_t(4)) == 0
    assert _journal(device) == "cuStreamSynchronize(2 )"


def test_a_reply_comes_back_through_both_halves(device: ctypes.CDLL, loopback: ctypes.CDLL) -> None:
    width = ctypes.c_size_t(0)
    assert loopback.cuDeviceGetTexture1DLinearMaxWidth(ctypes.byref(width), 0x20, 3, 0) == 0
    assert _journal(device) == "cuDeviceGetTexture1DLinearMaxWidth(20 3 64 )"
    assert width.value == OUT


def test_null_where_the_table_wants_a_pointer(loopback: ctypes.CDLL) -> None:
    sent = _counter(loopback, "loopback_requests")
    assert loopback.cuGraphExecGetFlags(ctypes.c_void_p(0x99), None) == INVALID_VALUE
    assert loopback.cuStreamCreate(None, 0) == INVALID_VALUE
    assert _counter(loopback, "loopback_requests") == sent
    address = ctypes.c_uint64(0x1000)
    assert loopback.cuMemcpyPeer(address, None, address, None, ctypes.c_size_t(1)) == 0, "these may be NULL"


def test_what_comes_first_is_said_first(loopback: ctypes.CDLL) -> None:
    allowed = ctypes.c_int.in_dll(loopback, "loopback_allowed")
    handles = _counter(loopback, "loopback_handles")
    allowed.value = INVALID_CONTEXT
    try:
        assert loopback.cuGraphExecGetFlags(ctypes.c_void_p(0x99), None) == INVALID_CONTEXT
        assert loopback.cuStreamQuery(ctypes.c_void_p(0x99)) == INVALID_CONTEXT
        assert loopback.cuStreamCreate(ctypes.byref(ctypes.c_void_p()), 0) == INVALID_CONTEXT
    finally:
        allowed.value = 0
    assert _counter(loopback, "loopback_handles") == handles


def test_a_handle_lives_from_create_to_destroy(device: ctypes.CDLL, loopback: ctypes.CDLL) -> None:
    handles, hooks = _counter(loopback, "loopback_handles"), ctypes.c_int.in_dll(loopback, "hooks").value
    bound = ctypes.c_uint32.in_dll(loopback, "loopback_bound")
    stream, event = ctypes.c_void_p(), ctypes.c_void_p()
    assert loopback.cuStreamCreateWithPriority(ctypes.byref(stream), 1, -3) == 0
    assert _journal(device) == "cuStreamCreateWithPriority(1 fffffffffffffffd )"
    assert loopback.cuEventCreate(ctypes.byref(event), 2) == 0
    assert stream.value not in (None, OUT)
    assert bound.value == 2
    assert loopback.cuStreamWaitEvent(stream, event, 1) == 0
    assert _journal(device) == f"cuStreamWaitEvent({OUT:x} {OUT:x} 1 )"
    assert loopback.cuStreamWaitEvent(event, event, 1) == INVALID_HANDLE
    assert loopback.cuEventDestroy_v2(event) == 0
    assert bound.value == 1
    assert _counter(loopback, "loopback_handles") == handles + 1
    assert ctypes.c_int.in_dll(loopback, "hooks").value == hooks + 3
    assert loopback.cuEventQuery(event) == INVALID_HANDLE


def test_who_is_asked_before_may_answer(device: ctypes.CDLL, loopback: ctypes.CDLL) -> None:
    sent, handles = _counter(loopback, "loopback_requests"), _counter(loopback, "loopback_handles")
    answers, event = ctypes.c_int.in_dll(loopback, "answers"), ctypes.c_void_p()
    answers.value = 719
    try:
        assert loopback.cuEventCreate(ctypes.byref(event), 2) == 719
        assert loopback.cuEventCreate(ctypes.byref(event), 8) == INVALID_VALUE, "of arguments that are in order"
        assert loopback.cuEventQuery(ctypes.c_void_p(0x99)) == INVALID_HANDLE
    finally:
        answers.value = 0
    assert event.value is None
    assert _counter(loopback, "loopback_requests") == sent
    assert _counter(loopback, "loopback_handles") == handles


def test_values_that_are_not_allowed_stop_at_both_ends(device: ctypes.CDLL, loopback: ctypes.CDLL) -> None:
    sent = _counter(loopback, "loopback_requests")
    value = (ctypes.c_uint64 * 8)(5)
    assert loopback.cuStreamSetAttribute(None, 7, value) == INVALID_VALUE
    assert loopback.cuEventCreate(ctypes.byref(ctypes.c_void_p()), 8) == INVALID_VALUE
    assert _counter(loopback, "loopback_requests") == sent
    assert loopback.cuStreamSetAttribute(None, 9, value) == 0
    assert _journal(device) == "cuStreamSetAttribute(0 9 ) 5"
    number = table.read().by_name["cuStreamSetAttribute"].number
    hostile = (ctypes.c_uint64 * 10)(0, 7)
    assert loopback.loopback_serve(number, hostile, None) == INVALID_VALUE
    before = _journal(device)
    hostile = (ctypes.c_uint64 * 10)(0x1234, 9)
    assert loopback.loopback_serve(number, hostile, None) == INVALID_HANDLE
    assert _journal(device) == before


def test_a_number_in_use_is_refused_before_the_driver_is_called(device: ctypes.CDLL, loopback: ctypes.CDLL) -> None:
    event = ctypes.c_void_p()
    assert loopback.cuEventCreate(ctypes.byref(event), 0) == 0
    assert loopback.cuCtxResetPersistingL2Cache() == 0
    before = _journal(device)
    number = table.read().by_name["cuEventCreate"].number
    assert loopback.loopback_serve(number, (ctypes.c_uint64 * 2)(event.value or 0, 0), None) == INVALID_HANDLE
    assert _journal(device) == before
    assert loopback.cuEventDestroy_v2(event) == 0


def test_a_device_is_the_workers(device: ctypes.CDLL, loopback: ctypes.CDLL) -> None:
    call = table.read().by_name["cuKernelSetCacheConfig"]
    kernel, kind = 0x700000001, list(HANDLES).index("CUkernel") + 1
    request = (ctypes.c_uint32 * (call.request.size_bytes // 4))(kernel & 0xFFFFFFFF, kernel >> 32)
    request[call.request.offset("config") // 4] = 1
    assert loopback.loopback_serve(call.number, request, None) == INVALID_HANDLE
    loopback.fgw_worker_bind(None, kind, ctypes.c_uint64(kernel), ctypes.c_void_p(0x55))
    assert loopback.loopback_serve(call.number, request, None) == 0
    assert _journal(device) == "cuKernelSetCacheConfig(55 1 64 )"
    request[call.request.offset("dev") // 4] = 1
    assert loopback.loopback_serve(call.number, request, None) == INVALID_DEVICE
    loopback.fgw_worker_unbind(None, kind, ctypes.c_uint64(kernel))


def test_a_call_the_device_library_lacks_is_not_supported(
    device: ctypes.CDLL, loopback: ctypes.CDLL, tmp_path: Path
) -> None:
    (tmp_path / "empty.c").write_text("extern int nothing;\nint nothing;\n")
    _cc("-shared", "-o", tmp_path / "empty.so", tmp_path / "empty.c")
    empty = ctypes.CDLL(str(tmp_path / "empty.so"))
    nr_calls = sum(1 for call in table.read().symbols if call.codec != "alias")
    try:
        assert loopback.loopback_open(ctypes.c_void_p(empty._handle)) == nr_calls
        assert loopback.cuCtxSynchronize() == NOT_SUPPORTED
    finally:
        assert loopback.loopback_open(ctypes.c_void_p(device._handle)) == 0


def test_a_set_of_host_memory_settles(loopback: ctypes.CDLL) -> None:
    assert loopback.cuMemsetD8_v2(ctypes.c_uint64(0x1000), 1, ctypes.c_size_t(4)) == 0
    assert loopback.cuMemsetD8_v2(ctypes.c_uint64(0xBAD), 1, ctypes.c_size_t(4)) == 700


def test_a_doubtful_call_waits_for_its_answer(loopback: ctypes.CDLL) -> None:
    address, some = ctypes.c_uint64(0x1000), ctypes.c_size_t

    def posts(result: int) -> int:
        assert result == 0
        return _counter(loopback, "loopback_posts")

    before = _counter(loopback, "loopback_posts")
    assert posts(loopback.cuMemsetD32_v2(address, 1, some(0x3FC00))) == before + 1
    assert posts(loopback.cuMemsetD32_v2(address, 1, some(0x3FC01))) == before + 1
    assert posts(loopback.cuMemsetD2D8_v2(address, some(0x1000), 1, some(0x1000), some(0xFF))) == before + 2
    assert posts(loopback.cuMemsetD2D8_v2(address, some(0x1000), 1, some(0x1001), some(0xFF))) == before + 2
    assert posts(loopback.cuMemcpyDtoD_v2(address, ctypes.c_uint64(0x200000), some(8))) == before + 2
    stream, event = ctypes.c_void_p(), ctypes.c_void_p()
    assert posts(loopback.cuStreamCreateWithPriority(ctypes.byref(stream), 1, 0)) == before + 3
    assert posts(loopback.cuEventCreate(ctypes.byref(event), 2)) == before + 4
    assert posts(loopback.cuStreamWaitEvent(stream, event, 1)) == before + 4
    assert posts(loopback.cuEventDestroy_v2(event)) == before + 5


def test_what_ends_behind_a_part_of_a_slab_is_not_sent(loopback: ctypes.CDLL) -> None:
    """The driver would find nothing wrong. Errors of earlier work come first all the same."""
    some, healthy = ctypes.c_size_t, ctypes.c_int.in_dll(loopback, "loopback_healthy")
    sent = _counter(loopback, "loopback_requests")
    in_slab = ctypes.c_uint64(0xF0000)
    assert loopback.cuMemsetD8_v2(in_slab, 1, some(0x10001)) == INVALID_VALUE
    assert loopback.cuMemcpyDtoD_v2(in_slab, ctypes.c_uint64(0x1000), some(0x10001)) == INVALID_VALUE
    assert loopback.cuMemcpyDtoD_v2(ctypes.c_uint64(0x1000), in_slab, some(0x10001)) == INVALID_VALUE
    healthy.value = 700
    try:
        assert loopback.cuMemsetD8_v2(in_slab, 1, some(0x10001)) == 700
    finally:
        healthy.value = 0
    assert _counter(loopback, "loopback_requests") == sent
    assert loopback.cuMemsetD8_v2(in_slab, 1, some(0x10000)) == 0


def test_what_is_unsafe_during_captures_is_not_sent(loopback: ctypes.CDLL) -> None:
    captures = ctypes.c_uint32.in_dll(loopback, "fgv_nr_captures")
    sent = _counter(loopback, "loopback_requests")
    captures.value = 1
    try:
        assert loopback.cuEventQuery(ctypes.c_void_p(0x99)) == 900
    finally:
        captures.value = 0
    assert _counter(loopback, "loopback_requests") == sent


def test_a_graph_is_the_hosts_to_look_up(loopback: ctypes.CDLL) -> None:
    assert loopback.cuGraphDestroy(None) == INVALID_VALUE
    assert loopback.cuGraphDestroy(ctypes.c_void_p(0x99)) != 0
    assert loopback.cuGraphUpload(ctypes.c_void_p(0x99), None) != 0


def test_call_info_and_services_agree_with_the_table(loopback: ctypes.CDLL) -> None:
    loopback.fgv_call_info.restype = ctypes.c_void_p
    loopback.fgw_service_find.restype = ctypes.c_void_p
    for call in table.read().calls:
        info = loopback.fgv_call_info(call.number)
        assert ctypes.c_char_p.from_address(info).value == call.name.encode()
        assert ctypes.c_uint32.from_address(info + 16).value == call.request.size_bytes
        assert ctypes.c_uint32.from_address(info + 20).value == call.reply.size_bytes
        service = loopback.fgw_service_find(call.number)
        assert bool(service) == call.has_record
        if service:
            assert ctypes.c_char_p.from_address(service).value == call.name.encode()
    for number in (0, max(call.number for call in table.read().symbols) + 1, 0xEFFF, 0xFFFF):
        assert loopback.fgv_call_info(number) is None
        assert loopback.fgw_service_find(number) is None


def test_main_names_what_is_stale(capsys: pytest.CaptureFixture[str]) -> None:
    assert generate.main(["--check"]) == 0
    assert capsys.readouterr().err == ""
