"""cuda_api/prototypes.h: what a libcuda.so.1 exports."""

from __future__ import annotations

from cuda_api.generators.text import guarded, wrap
from cuda_api.table import Table

DESCRIPTION = """
Every symbol that our libcuda.so.1 libraries export, twins for the per-thread default stream included. The attribute
makes a definition visible in a library that is compiled with -fvisibility=hidden.
"""


def generate(table: Table) -> str:
    lines = ['#include "cuda_api/types.h"', "", '#define FGV_EXPORT __attribute__((visibility("default")))', ""]
    for call in table.symbols:
        assert call.prototype is not None
        lines.append(wrap(f"FGV_EXPORT {call.prototype.declaration()};"))
        if call.per_thread:
            lines.append(wrap(f"FGV_EXPORT {call.prototype.declaration(call.name + call.per_thread)};"))
    return guarded("CUDA_API_PROTOTYPES_H", DESCRIPTION, lines)
