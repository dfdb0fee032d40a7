"""cuda_api/common/generated/refusals.c: the symbols of calls that are not carried."""

from __future__ import annotations

from cuda_api import refused
from cuda_api.generators.text import c_file, table_row
from cuda_api.table import Table

DESCRIPTION = """
Calls that the library exports and does not carry. Their parameters are not looked at, so none are declared: a caller
puts them where nobody reads, and takes back a result. cuGetProcAddress finds them where the driver is as new as
they are, since a program would take a newer call for one that works. They are weak: softgpu has some of them.
"""

_HEAD = """
#define REFUSED(name, result)                                                                                          \\
    __attribute__((visibility("default"), weak)) CUresult name(void);                                                  \\
    CUresult name(void)                                                                                                \\
    {                                                                                                                  \\
        return fgv_refuse(#name, result);                                                                              \\
    }
"""


def generate(table: Table) -> str:
    calls = refused.read(table).calls
    body = ['#include "cuda_api/refusals.h"', "", _HEAD.strip("\n"), ""]
    body += [f"REFUSED({name}, {call.result})" for call in calls for name in call.symbols]
    body += ["", "const struct fgv_refusal fgv_refusals[] = {"]
    for call in calls:
        twin = f"(fgv_proc){call.name}{call.per_thread}" if call.per_thread else "NULL"
        body.append(table_row([f'"{call.base_name}"', str(call.since), f"(fgv_proc){call.name}", twin]))
    body += ["};", "", "const size_t fgv_nr_refusals = sizeof fgv_refusals / sizeof *fgv_refusals;"]
    return c_file(DESCRIPTION, body)
