"""generated/procs.c of both libraries: what cuGetProcAddress answers with."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from cuda_api.call import Call
from cuda_api.generators import loans
from cuda_api.generators.text import c_file, table_row
from cuda_api.table import Table

DESCRIPTION = """
Names and versions behind cuGetProcAddress. One base name stands for several symbols; the version that the caller was
compiled against chooses, because their parameters differ: the newest symbol that is no newer than that. A wrong choice
is silent stack garbage. {note}
"""

STRICT = "Every symbol must be there: the linker says which one is missing."
LENIENT = "A symbol that this library does not define is weak, reads NULL, and is not found, as in an older driver."

#: The per-thread default stream came with CUDA 7.
FIRST_PER_THREAD = 7000

_TYPES = """
/* A name's symbols stand together, oldest first; per_thread is NULL where the call has no twin. */
struct proc {
    const char *name;
    int since, since_per_thread;
    fgv_proc symbol, per_thread;
};
"""

_LOOKUP = """

/* The first entry whose name is not before `name`. */
static size_t first_not_before(const char *name)
{
    size_t low = 0, high = sizeof procs / sizeof *procs;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(procs[middle].name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

fgv_proc fgv_proc_find(const char *name, int cuda_version, uint64_t flags, int *status)
{
    bool wants_per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
    fgv_proc found = NULL;
    *status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    for (size_t i = first_not_before(name); i < sizeof procs / sizeof *procs && !strcmp(procs[i].name, name); i++) {
        const struct proc *proc = &procs[i];
        if (proc->symbol == NULL)
            continue;
        bool is_twin = wants_per_thread && proc->per_thread != NULL;
        if ((is_twin ? proc->since_per_thread : proc->since) <= cuda_version)
            found = is_twin ? proc->per_thread : proc->symbol;
        else if (found == NULL)
            *status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
    }
    if (found != NULL)
        *status = CU_GET_PROC_ADDRESS_SUCCESS;
    return found;
}
"""


def generate(table: Table) -> str:
    """The guest's, which has all of them."""
    return _file(table, STRICT, ['#include "loans.h"', ""], partial(loans.entry, table))


def generate_lenient(table: Table) -> str:
    """softgpu's."""
    weak = [f"#pragma weak {call.name}" for call in _sorted(table)]
    return _file(table, LENIENT, ["", *weak, ""], lambda call, suffix="": call.name + suffix)


def _sorted(table: Table) -> list[Call]:
    return sorted(table.symbols, key=lambda call: (call.base_name, call.since))


def _file(table: Table, note: str, head: list[str], entry: Callable[..., str]) -> str:
    body = ["#include <stdbool.h>", "#include <stddef.h>", "#include <string.h>", ""]
    body += ['#include "cuda_api/procs.h"', '#include "cuda_api/prototypes.h"', *head]
    body += [_TYPES.strip("\n"), "", "static const struct proc procs[] = {"]
    for call in _sorted(table):
        twin = f"(fgv_proc){entry(call, call.per_thread)}" if call.per_thread else "NULL"
        versions = (str(call.since), str(max(call.since, FIRST_PER_THREAD)))
        body.append(table_row([f'"{call.base_name}"', *versions, f"(fgv_proc){entry(call)}", twin]))
    body += ["};", _LOOKUP.strip("\n")]
    return c_file(DESCRIPTION.format(note=note), body)
