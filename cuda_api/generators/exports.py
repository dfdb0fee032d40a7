"""frontend_guest/generated/exports.c: the symbols that the guest's library shows, and their traced twins."""

from __future__ import annotations

from collections.abc import Iterator

from cuda_api.generators.loans import entry
from cuda_api.generators.text import attributed, c_file, choice, table_row, wrap
from cuda_api.prototype import Prototype
from cuda_api.table import Table

DESCRIPTION = """
The symbols that the library shows. Inside it the calls have other symbols (FGV_PLAIN_SYMBOLS in prototypes.h), so that
what the library calls itself is not taken for a call of the program. A shown symbol costs one branch that is never
taken while nobody traces; cuGetProcAddress gives programs the call itself, without that, or its traced twin.
"""

_HEAD = """
#define SHOWN(name) __asm__(#name) __attribute__((visibility("default")))
#define TWIN        static __attribute__((noinline, cold))
"""


def generate(table: Table) -> str:
    symbols: list[tuple[str, str, Prototype]] = []
    for call in table.symbols:
        assert call.prototype is not None
        symbols.append((call.name, entry(table, call), call.prototype))
        if call.per_thread:
            symbols.append((call.name + call.per_thread, entry(table, call, call.per_thread), call.prototype))
    body = ['#include "base/trace.h"', '#include "base/trace_counts.h"', '#include "cuda_api/prototypes.h"']
    body += ['#include "loans.h"', "", _HEAD.strip("\n")]
    for number, (name, inside, prototype) in enumerate(symbols):
        body += ["", *_twin(number, name, inside, prototype), "", *_shown(name, inside, prototype)]
    body += ["", "const struct fgv_trace_symbol fgv_trace_symbols[] = {"]
    body += [table_row([f'"{name}"', f"(fgv_proc){inside}", f"(fgv_proc)traced_{name}"]) for name, inside, _ in symbols]
    body += ["};", "", "const uint32_t fgv_trace_nr_symbols = sizeof fgv_trace_symbols / sizeof *fgv_trace_symbols;"]
    return c_file(DESCRIPTION, body)


def _twin(number: int, name: str, inside: str, prototype: Prototype) -> Iterator[str]:
    yield wrap(f"TWIN {prototype.declaration(f'traced_{name}')}")
    yield "{"
    yield "    struct fgv_traced traced;"
    yield "    fgv_trace_begin(&traced);"
    yield wrap(f"CUresult result = {inside}({prototype.arguments()});", "    ")
    yield f"    return fgv_trace_end(&traced, {number}, result);"
    yield "}"


def _shown(name: str, inside: str, prototype: Prototype) -> Iterator[str]:
    yield attributed(prototype.declaration(f"shown_{name}"), f"SHOWN({name})")
    yield from choice(prototype, f"shown_{name}", "__builtin_expect(fgv_tracing, 0)", f"traced_{name}", inside)
