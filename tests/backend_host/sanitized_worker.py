"""A worker whose C code was built with sanitizers: first argument the module's path, the others as for backend_host.worker.main.

Afterwards memory that nobody can reach any more is reported. That needs system calls that the filter forbids, so the filter stays out here.
"""

import ctypes
import importlib.util
import os
import sys
from typing import Any

CANARY_BYTES = 54321
PR_SET_DUMPABLE = 4

spec = importlib.util.spec_from_file_location("_worker", sys.argv[1])
assert spec is not None
assert spec.loader is not None
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
sys.modules["backend_host.worker._worker"] = module

from backend_host.worker import main  # noqa: E402


class Unwalled:
    """The library without its filter, with the right to look into its own memory from another process, and whose descriptor 2 stays ours:
    reports go there."""

    def __getattr__(self, name: str) -> Any:
        instead = {"fgw_walls_enter": self._enter, "fgw_printing_open_errors": lambda _: os.dup(2)}
        return instead.get(name) or getattr(module.lib, name)

    @staticmethod
    def _enter(tenant: Any, step: Any) -> int:
        tenant.has_filter = False
        failed = int(module.lib.fgw_walls_enter(tenant, step))
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
        return failed


main.lib = Unwalled()  # type: ignore[attr-defined]
status = main.main(sys.argv[2:])
ctypes.CDLL(None).malloc(CANARY_BYTES)  # lost on purpose: shows that leaks are found
ctypes.CDLL(None).__lsan_do_recoverable_leak_check()
sys.stderr.flush()
os._exit(status)
