"""A worker that is killed leaves no compiler behind: not the one that it waits for, and not the one that stays to optimise."""

import sys
from pathlib import Path
from typing import Any

import pytest

from ivshmem.region import Region
from tests.backend_host.test_worker_kernel_wall import PTX
from tests.backend_host.worker_guest import MODULE, NO_CHUNK, kernel_image
from tests.backend_host.worker_harness import SOFTGPU, Host, Served
from tests.end_to_end.host import wait_until

COMPILER = """#!{python}
import os, sys, time
from softgpu.compiler import main, native, tiers

def stay(*_, **__):
    time.sleep(600)

if {is_waited_for}:
    native.objects = stay
else:
    tiers._optimise = stay
sys.stdout.flush()
os._exit(main())
"""


def processes_of(compiler: Path) -> list[int]:
    """Those that run this script, whoever made them."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(compiler).encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


@pytest.mark.parametrize("is_waited_for", [True, False])
def test_no_compiler_outlives_a_killed_worker(region: Region, tmp_path: Path, is_waited_for: bool) -> None:
    compiler = tmp_path / "compiler"
    compiler.write_text(COMPILER.format(python=sys.executable, is_waited_for=is_waited_for))
    compiler.chmod(0o755)
    settings = {"FAIRGV_SOFTGPU_COMPILER": str(compiler), "FAIRGV_SOFTGPU_TIERS": "all"}
    host = Host(SOFTGPU, {**settings, "FAIRGV_SOFTGPU_CACHE": str(tmp_path / "cache")}, shared=[tmp_path])
    served = Served(host, region)
    guest = served.primary()
    fields: dict[str, Any] = {
        "blob": guest.send_blob(kernel_image(PTX)),
        "handle": MODULE,
        "prelinked": 0,
        "chunk": NO_CHUNK,
    }
    if is_waited_for:
        guest.begin("cuModuleLoadDataEx", **fields)
    else:
        guest.ok("cuModuleLoadDataEx", **fields)
    wait_until(lambda: bool(processes_of(compiler)), "a compiler is at work")
    served.worker.process.kill()
    served.worker.process.wait()
    wait_until(lambda: not processes_of(compiler), "it has ended with its worker")
    guest.close()
    host.close()
