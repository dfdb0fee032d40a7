"""Debuggers and profilers, which ask the driver for tables of their own: one line says why they see nothing."""

import sys

from tests.end_to_end.host import Host

ASK = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
for text in sys.argv[1:]:
    table = ctypes.c_void_p(8)
    print(cuda.cuGetExportTable(ctypes.byref(table), bytes.fromhex(text)), table.value)
"""
OF_TOOLS = ("2c8e0ad80710ab4e90dd54719fe5f74b", "fc58ac1a057c444fa97772ee9aefdb89")
OF_NOBODY = "f8cff9512146" + "00" * 10
LINE = (
    "fairgv: a debugger or profiler sees nothing of the device, which is remote; FAIRGV_TRACE=FILE and"
    " fairgv-run --trace FILE.json.gz show calls and kernels over time\n"
)


def test_a_tool_is_told_once(host: Host) -> None:
    result = host.guest(sys.executable, "-c", ASK, *OF_TOOLS, *OF_TOOLS)
    assert (result.returncode, result.stdout, result.stderr) == (0, "1 None\n" * 4, LINE)


def test_nobody_else_is(host: Host) -> None:
    result = host.guest(sys.executable, "-c", ASK, OF_NOBODY)
    assert (result.returncode, result.stdout, result.stderr) == (0, "1 None\n", "")
