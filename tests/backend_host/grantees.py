"""A worker's side of the grant, in a test's own process."""

import os

from backend_host.worker._worker import ffi, lib

from backend_host.device.control import ControlPage


def attach(page: ControlPage, vgpu: int) -> tuple[int, ffi.CData]:
    """A slot of its own for this process as a worker of the vGPU, and its view of the page: a `struct fgw_grantee *`."""
    slot, grantee = page.worker_take(), ffi.new("struct fgw_grantee *")
    page.worker_assign(slot, os.getpid(), vgpu, 0)
    assert lib.fgw_grantee_attach(grantee, page.page, vgpu, slot)
    return slot, grantee
