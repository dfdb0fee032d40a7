"""Code in several pieces, from a guest that may lie: the fat binaries of a program built with -rdc=true, and cuLink."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

from tests.backend_host.worker_harness import (
    FUNCTION,
    MODULE,
    SOFTGPU,
    Guest,
    Host,
    Served,
    container,
    make_region,
)

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
INVALID_VALUE, INVALID_IMAGE = 1, 200


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
