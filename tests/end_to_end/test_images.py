"""Images on their way to the host: of a program for many GPUs the part for this one travels, and runs as the whole does."""

import json
import struct
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from cuda_api.fatbin import HEADER_MAGIC, EntryKind, Fatbin, FatbinEntry, parse
from tests.end_to_end.host import PROGRAMS, Host

RECORD_BYTES = 256
"""What a load's other records take, at most, for each piece of its image."""
PRINTS = """
import ctypes, sys
cuda, context, module, function = ctypes.CDLL("libcuda.so.1"), *[ctypes.c_void_p() for _ in range(3)]
assert cuda.cuInit(0) == cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
for path in sys.argv[1:]:
    assert cuda.cuModuleLoad(ctypes.byref(module), path.encode()) == 0
    assert cuda.cuModuleGetFunction(ctypes.byref(function), module, b"say") == 0
    assert cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, None, None) == 0
    assert cuda.cuCtxSynchronize() == 0
print("end", flush=True)
"""
SAYS = b"""
.version 8.0
.target sm_75
.address_size 64
.extern .func (.param .b32 result) vprintf (.param .b64 format, .param .b64 values);
.global .align 1 .b8 text[4] = {104, 105, 10, 0};
.visible .entry say()
{
    .reg .b64 %rd<3>;
    mov.u64 %rd1, text;
    cvta.global.u64 %rd2, %rd1;
    {
        .param .b64 format;
        .param .b64 values;
        .param .b32 result;
        st.param.b64 [format], %rd2;
        st.param.b64 [values], 0;
        call.uni (result), vprintf, (format, values);
    }
    ret;
}
"""


def containers_in(program: Path) -> list[Fatbin]:
    content = program.read_bytes()
    magic = struct.pack("<IHH", HEADER_MAGIC, 1, 16)
    found, begin = [], content.find(magic)
    while begin >= 0:
        end = begin + 16 + struct.unpack_from("<Q", content, begin + 8)[0]
        found.append(parse(content[begin:end]))
        begin = content.find(magic, end)
    return found


def bytes_of(entries: Sequence[FatbinEntry]) -> int:
    return sum(len(entry.stored) for entry in entries)


def test_only_what_the_device_uses_travels(host: Host, tmp_path: Path) -> None:
    counts = tmp_path / "counts"
    result = host.guest("architectures", options=("--json", str(counts)))
    assert (result.returncode, result.stdout) == (0, "code for 800, sum 42\nPASS\n"), result.stderr
    entries = max((container.entries for container in containers_in(PROGRAMS / "architectures")), key=bytes_of)
    assert len({entry.sm for entry in entries}) == 4
    used = [entry for entry in entries if entry.sm == 80]
    assert {entry.kind for entry in used} == {EntryKind.ELF, EntryKind.PTX}
    loads = [count for count in json.loads(counts.read_text()) if count["name"].startswith("cuLibraryLoadData")]
    sent_bytes = sum(count["sent_bytes"] for count in loads)
    assert bytes_of(used) <= sent_bytes <= bytes_of(used) + RECORD_BYTES * len(entries) < bytes_of(entries) / 3


@pytest.mark.parametrize("padding_bytes", [0, 1 << 20])
def test_what_is_printed_before_anybody_looked_for_it_comes_out(host: Host, tmp_path: Path, padding_bytes: int) -> None:
    """However large the image is; see backend_host/worker/images.py."""
    images = []
    for number in range(3):
        images.append(tmp_path / f"{number}.ptx")
        images[-1].write_bytes(SAYS + b"//".ljust(padding_bytes, b"-") + b"\n" * number)
    result = host.guest(sys.executable, "-c", PRINTS, *map(str, images))
    assert (result.returncode, result.stdout) == (0, "hi\nhi\nhi\nend\n"), result.stderr
