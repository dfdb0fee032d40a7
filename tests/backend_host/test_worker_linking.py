"""Code in several pieces, from a guest that may lie: the fat binaries of a program built with -rdc=true, and cuLink."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pytest

from tests.backend_host.worker_guest import FUNCTION, MODULE, Answer, Guest, container, make_region
from tests.backend_host.worker_harness import SOFTGPU, Host, Served

HEADER = ".version 7.0\n.target sm_75\n.address_size 64\n"
USER = (
    HEADER
    + """
.extern .func (.param .b32 r) triple(.param .b32 a);
.extern .global .u32 offset;
.visible .entry k(.param .u64 k_out) {
  .reg .b64 %x; .reg .b32 %r; .reg .b32 %s;
  ld.param.u64 %x, [k_out]; mov.b32 %r, 5;
  { .param .b32 a; .param .b32 b; st.param.b32 [a], %r; call (b), triple, (a); ld.param.b32 %r, [b]; }
  ld.global.u32 %s, [offset]; add.u32 %r, %r, %s; st.global.u32 [%x], %r; ret;
}
"""
)
MAKER = (
    HEADER
    + """
.visible .global .u32 offset = 100;
.visible .func (.param .b32 r) triple(.param .b32 a) {
  .reg .b32 %r; ld.param.b32 %r, [a]; mul.lo.u32 %r, %r, 3; st.param.b32 [r], %r; ret;
}
"""
)
MACHINE_CODE = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 0)
"""A fat binary with nothing for softgpu, as a program's linked one."""
NO_CHUNK = 0xFFFFFFFF
INVALID_VALUE, OUT_OF_MEMORY, INVALID_IMAGE, INVALID_SOURCE, INVALID_HANDLE, NOT_SUPPORTED = 1, 2, 200, 300, 400, 801
LINK = 0x48_00000001_000001
CUBIN, PTX_INPUT, FATBINARY, OBJECT = 0, 1, 2, 3
OPTIMIZATION_LEVEL = 7
LOG_BYTES = 1000
NOT_FOUND = 500
LIBRARY = 0x46_00000001_000001
MANAGED = (
    HEADER
    + """
.visible .global .attribute(.managed) .align 4 .u32 shared[4] = {1, 2, 3, 4};
.visible .global .u32 plain = 100;
.visible .entry k() { ret; }
"""
)
MAX_LINKS = 16


def image_set(*images: bytes) -> bytes:
    data = b""
    for image in images:
        data += bytes(-len(data) % 8) + image
    return data


SET = image_set(MACHINE_CODE, container(USER), container(MAKER))


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """One worker for all: none of these guests may end it."""
    host = Host(SOFTGPU)
    with make_region() as region:
        served = Served(host, region)
        served.primary()
        yield served
        served.guest.close()
    host.close()


@pytest.fixture
def guest(served: Served) -> Iterator[Guest]:
    yield served.guest
    served.guest.cast_off("cuModuleUnload", hmod=MODULE)
    served.guest.call("cuCtxSynchronize")
    served.guest.take_error()


def computed(guest: Guest) -> int:
    """What the kernel of MODULE writes."""
    guest.ok("cuModuleGetFunction", b"k", module=MODULE, handle=FUNCTION, name_bytes=1, chunk=NO_CHUNK)
    address = guest.ok("cuMemAlloc_v2", bytesize=4096).dptr
    guest.launch(FUNCTION, struct.pack("<Q", address))
    return int(struct.unpack("<I", guest.from_device(address, 4))[0])


def test_a_set_is_linked(guest: Guest) -> None:
    assert guest.load(SET, nr_prelinked=2).result == 0
    assert computed(guest) == 115


@pytest.mark.parametrize(
    ("data", "nr_prelinked"),
    [
        (SET, 1),  # an image nobody speaks of
        (SET, 3),  # one that is not there
        (SET, 4096),
        (SET, 4097),
        (SET, 0xFFFFFFFF),
        (SET[:-1], 2),  # cut
        (SET + b"\0" * 8, 2),
        (image_set(MACHINE_CODE, container(USER)[:-8], container(MAKER)), 2),
        (image_set(container(USER), USER.encode() + b"\0"), 1),  # PTX has no length that a driver would know
        (image_set(MACHINE_CODE, struct.pack("<IIQQ", 0x466243B1, 1, 4096, 0)), 1),  # a pointer of the guest's
        (image_set(MACHINE_CODE, struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 2**64 - 16)), 1),
        (image_set(MACHINE_CODE, struct.pack("<IHHQ", 0xBA55ED50, 1, 0xFFFF, 16)), 1),
        (MACHINE_CODE, 1),
    ],
)
def test_a_set_that_lies(guest: Guest, data: bytes, nr_prelinked: int) -> None:
    assert guest.load(data, nr_prelinked=nr_prelinked).result == INVALID_IMAGE
    assert guest.load(SET, nr_prelinked=2).result == 0


def create(guest: Guest, link: int = LINK, options: bytes = b"", nr_options: int = 0) -> int:
    fields: dict[str, Any] = {"nr_options": nr_options, "info_bytes": LOG_BYTES, "error_bytes": LOG_BYTES}
    return guest.call("cuLinkCreate_v2", options, link=link, **fields).result


def add(guest: Guest, data: bytes, kind: int = PTX_INPUT, payload: bytes = b"name", **fields: Any) -> Answer:
    values: dict[str, Any] = {"link": LINK, "nr_options": 0, "name_bytes": len(payload), "chunk": 0} | fields
    return guest.call("cuLinkAddData_v2", payload, blob=guest.send_blob(data), type=kind, **values)


@pytest.fixture
def link(guest: Guest) -> Iterator[Guest]:
    assert create(guest) == 0
    yield guest
    assert guest.call("cuLinkDestroy", state=LINK).result == 0
    assert guest.call("cuLinkDestroy", state=LINK).result == INVALID_HANDLE


def test_texts_are_linked(link: Guest) -> None:
    assert add(link, USER.encode() + b"\0").result == 0
    assert add(link, container(MAKER), FATBINARY).result == 0
    done = link.ok("cuLinkComplete", link=LINK, chunk=0)
    assert (done.verdict, done.info_bytes, done.error_bytes) == (0, 0, 0)
    image = b""
    while len(image) < done.image_bytes:
        part = min(1000, done.image_bytes - len(image))
        link.ok("link_read", link=LINK, offset=len(image), bytes=part, chunk=1)
        image += link.read(link.chunk_offset(1), part)
    assert link.load(image).result == 0
    assert computed(link) == 115


def test_errors_come_with_a_log(link: Guest) -> None:
    assert add(link, USER.encode()).result == 0
    done = link.ok("cuLinkComplete", link=LINK, chunk=0)
    half = link.chunk_offset(0) + Guest.CHUNK_BYTES // 2
    assert done.verdict == INVALID_SOURCE
    assert b"'triple', which is defined nowhere" in link.read(half, done.error_bytes)
    assert done.image_bytes == 0
    assert add(link, b"rubbish", chunk=NO_CHUNK).error_bytes == 0  # nowhere to put it
    refused = add(link, b"rubbish")
    assert refused.verdict == INVALID_IMAGE
    assert link.read(half, refused.error_bytes).endswith(b"'name' is not what its type says")


def test_a_log_never_outgrows_its_room(link: Guest) -> None:
    for _ in range(40):
        answer = add(link, b"rubbish", payload=b"n" * 4096)
        assert answer.error_bytes < LOG_BYTES


@pytest.mark.parametrize(
    ("data", "kind", "expected"),
    [
        (USER.encode(), FATBINARY, INVALID_IMAGE),
        (container(USER), PTX_INPUT, INVALID_IMAGE),
        (container(USER), CUBIN, INVALID_IMAGE),
        (container(USER)[:-8], FATBINARY, INVALID_IMAGE),
        (struct.pack("<IIQQ", 0x466243B1, 1, 4096, 0), PTX_INPUT, INVALID_IMAGE),
        (b"\x7fELF" + bytes(60), CUBIN, INVALID_IMAGE),
        (b"\x7fELF" + bytes(60), OBJECT, NOT_SUPPORTED),  # softgpu's answer
    ],
)
def test_inputs_of_another_kind(link: Guest, data: bytes, kind: int, expected: int) -> None:
    assert add(link, data, kind).verdict == expected


@pytest.mark.parametrize(
    "fields",
    [
        {"nr_options": 1},  # more than the payload has
        {"nr_options": 0xFFFFFFFF},
        {"nr_options": 0x10000000},  # 2^32 bytes of options
        {"name_bytes": 3},
        {"name_bytes": 5},
        {"name_bytes": 0xFFFFFFFF},
        {"nr_options": 1, "name_bytes": 0xFFFFFFF4},
    ],
)
def test_counts_that_lie(link: Guest, fields: dict[str, Any]) -> None:
    assert add(link, USER.encode(), **fields).result == INVALID_VALUE


def test_a_name_of_any_length(link: Guest) -> None:
    assert add(link, USER.encode(), payload=b"n" * 4096).result == 0
    assert add(link, MAKER.encode(), payload=b"n" * 4097).result == INVALID_VALUE
    assert add(link, MAKER.encode(), payload=b"").result == 0


@pytest.mark.parametrize("kind", [6, 0xFFFFFFFF])
def test_a_kind_that_there_is_not(link: Guest, kind: int) -> None:
    assert add(link, USER.encode(), kind).result == INVALID_VALUE


def test_a_blob_that_is_not_whole(link: Guest) -> None:
    link.cast_off("blob_begin", blob=9, bytes=100)
    fields: dict[str, Any] = {"link": LINK, "type": PTX_INPUT, "chunk": 0}
    assert link.call("cuLinkAddData_v2", blob=9, **fields).result == INVALID_VALUE
    assert link.call("cuLinkAddData_v2", blob=10, **fields).result == INVALID_VALUE


@pytest.mark.parametrize("option", [3, 4, 5, 6, 17, 18, 19, 25, 26, 27, 28, 35, 1 << 32, (1 << 64) - 1])
def test_no_option_is_a_pointer_of_the_guests(guest: Guest, option: int) -> None:
    pair = struct.pack("<QQ", option, 4096)
    assert create(guest, LINK, pair, 1) == INVALID_VALUE
    assert create(guest) == 0
    assert add(guest, USER.encode(), payload=pair, nr_options=1, name_bytes=0).result == INVALID_VALUE
    guest.ok("cuLinkDestroy", state=LINK)


def load_with(guest: Guest, text: str, options: bytes = b"", call: str = "cuModuleLoadDataEx", **fields: Any) -> Answer:
    values = {"handle": MODULE, "nr_options": len(options) // 16, "error_bytes": LOG_BYTES, "chunk": 0, **fields}
    return guest.call(call, options, blob=guest.send_blob(text.encode()), **values)


@pytest.mark.parametrize("call", ["cuModuleLoadDataEx", "cuLibraryLoadData"])
def test_a_load_gives_its_log_back(guest: Guest, call: str) -> None:
    level = struct.pack("<QQ", OPTIMIZATION_LEVEL, 4)
    for error_bytes in (LOG_BYTES, 0xFFFFFFFF):
        refused = load_with(guest, HEADER + "nonsense", level, call, error_bytes=error_bytes)
        half = guest.chunk_offset(0) + Guest.CHUNK_BYTES // 2
        assert refused.result == 0
        assert refused.verdict != 0
        assert b"nonsense" in guest.read(half, refused.error_bytes)
    assert load_with(guest, HEADER + "nonsense", level, call, error_bytes=20).error_bytes < 20
    assert load_with(guest, HEADER + "nonsense", level, call, chunk=NO_CHUNK).result == refused.verdict
    assert load_with(guest, HEADER + "nonsense", level, call, chunk=NO_CHUNK - 1).verdict == refused.verdict
    done = load_with(guest, MAKER, level, call)
    assert (done.verdict, done.error_bytes) == (0, 0)


def test_options_of_a_load_that_lie(guest: Guest) -> None:
    level = struct.pack("<QQ", OPTIMIZATION_LEVEL, 4)
    for nr_options in (0, 2, 0x10000000, 0xFFFFFFFF):
        assert load_with(guest, MAKER, level, nr_options=nr_options).result == INVALID_VALUE
    for option in (3, 4, 5, 6, 17, 18, 19, 25, 26, 27, 28, 35, 1 << 32, (1 << 64) - 1):
        assert load_with(guest, MAKER, struct.pack("<QQ", option, 4096)).result == INVALID_VALUE
    assert load_with(guest, MAKER, level * 36).result == INVALID_VALUE
    assert load_with(guest, MAKER, level).verdict == 0


def managed(guest: Guest, name: bytes = b"shared", **fields: Any) -> Answer:
    values: dict[str, Any] = {"library": LIBRARY, "name_bytes": len(name), "chunk": 1, **fields}
    return guest.call("cuLibraryGetManaged", name, **values)


def test_managed_variables_are_told_with_their_bytes(guest: Guest) -> None:
    loaded = load_with(guest, MANAGED, call="cuLibraryLoadData", handle=LIBRARY, chunk=NO_CHUNK)
    assert loaded.result == 0
    told = managed(guest)
    assert (told.result, told.bytes) == (0, 16)
    assert guest.read(guest.chunk_offset(1), 16) == struct.pack("<IIII", 1, 2, 3, 4)
    assert managed(guest, context=0).address == told.address, "a program may ask before it has a context"
    assert managed(guest, offset=8).result == 0
    assert guest.read(guest.chunk_offset(1), 8) == struct.pack("<II", 3, 4)
    assert managed(guest, offset=16).result == 0
    for lie in (17, 1 << 32, (1 << 64) - 1):
        assert managed(guest, offset=lie).result == INVALID_VALUE
    for chunk in (Guest.NR_CHUNKS, NO_CHUNK):
        assert managed(guest, chunk=chunk).result == INVALID_VALUE
    for name in (b"plain", b"none"):
        assert managed(guest, name).result == NOT_FOUND
    for name_bytes in (0, 5, 7, 0xFFFFFFFF):
        assert managed(guest, name_bytes=name_bytes).result == INVALID_VALUE
    assert managed(guest, library=LIBRARY + 1).result == INVALID_HANDLE
    for name, is_managed in ((b"shared", 1), (b"plain", 0)):
        found = guest.ok("cuLibraryGetGlobal", name, library=LIBRARY, name_bytes=len(name))
        assert found.is_managed == is_managed


def test_a_plain_option_is_passed_on(guest: Guest) -> None:
    assert create(guest, LINK, struct.pack("<QQ", OPTIMIZATION_LEVEL, 4), 1) == 0
    assert create(guest) == INVALID_HANDLE  # taken
    guest.ok("cuLinkDestroy", state=LINK)
    assert create(guest, LINK, struct.pack("<QQ", OPTIMIZATION_LEVEL, 4), 2) == INVALID_VALUE
    assert create(guest, LINK, struct.pack("<QQ", OPTIMIZATION_LEVEL, 4) * 36, 36) == INVALID_VALUE


def test_nothing_is_read_beyond_the_image(link: Guest) -> None:
    read: dict[str, Any] = {"link": LINK, "chunk": 0}
    assert link.call("link_read", offset=0, bytes=1, **read).result == INVALID_VALUE  # nothing is complete
    done = link.ok("cuLinkComplete", link=LINK, chunk=NO_CHUNK)
    assert link.call("cuLinkComplete", link=LINK, chunk=0).result == INVALID_HANDLE
    assert add(link, USER.encode()).result == INVALID_VALUE
    assert link.call("link_read", offset=0, bytes=done.image_bytes, **read).result == 0
    for offset, nbytes in (
        (0, done.image_bytes + 1),
        (1, done.image_bytes),
        (done.image_bytes + 1, 0),
        (2**64 - 1, 2),
        (0, 0xFFFFFFFF),
    ):
        assert link.call("link_read", offset=offset, bytes=nbytes, **read).result == INVALID_VALUE
    assert link.call("link_read", link=LINK, offset=0, bytes=1, chunk=NO_CHUNK).result == INVALID_VALUE
    assert link.call("link_read", link=MODULE, offset=0, bytes=1, chunk=0).result == INVALID_HANDLE


def test_links_are_counted(guest: Guest) -> None:
    for index in range(MAX_LINKS):
        assert create(guest, LINK + index) == 0
    assert create(guest, LINK + MAX_LINKS) == OUT_OF_MEMORY
    guest.ok("cuLinkDestroy", state=LINK)
    assert create(guest, LINK) == 0
    for index in range(MAX_LINKS):
        guest.ok("cuLinkDestroy", state=LINK + index)
