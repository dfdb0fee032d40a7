"""cuda_api/prototypes.h: what a libcuda.so.1 exports."""

from __future__ import annotations

from cuda_api.generators.text import attributed, guarded
from cuda_api.table import Table

DESCRIPTION = """
Every symbol that our libcuda.so.1 libraries export, twins for the per-thread default stream included. The attribute
makes a definition visible in a library that is compiled with -fvisibility=hidden. With FGV_PLAIN_SYMBOLS a call's
symbol is plain_NAME, which is not shown: such a library defines the shown symbol apart from the call.
"""

_VISIBILITY = """
#ifdef FGV_PLAIN_SYMBOLS
#define FGV_EXPORT       __attribute__((visibility("hidden")))
#define FGV_SYMBOL(name) __asm__("plain_" #name)
#else
#define FGV_EXPORT __attribute__((visibility("default")))
#define FGV_SYMBOL(name)
#endif
"""


def generate(table: Table) -> str:
    lines = ['#include "cuda_api/types.h"', _VISIBILITY]
    for call in table.symbols:
        assert call.prototype is not None
        lines.append(attributed(f"FGV_EXPORT {call.prototype.declaration()}", f"FGV_SYMBOL({call.name})"))
        if call.per_thread:
            name = call.name + call.per_thread
            lines.append(attributed(f"FGV_EXPORT {call.prototype.declaration(name)}", f"FGV_SYMBOL({name})"))
    return guarded("CUDA_API_PROTOTYPES_H", DESCRIPTION, lines)
