"""generated/procs.c of both libraries: what cuGetProcAddress answers with."""

from __future__ import annotations

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


def generate(table: Table, *, is_strict: bool) -> str:
    body = ["#include <stdbool.h>", "#include <stddef.h>", "#include <string.h>", ""]
    body += ['#include "cuda_api/procs.h"', '#include "cuda_api/prototypes.h"', ""]
    symbols = sorted(table.symbols, key=lambda call: (call.base_name, call.since))
    if not is_strict:
        for call in symbols:
            body.append(f"#pragma weak {call.name}")
        body.append("")
    body += [_TYPES.strip("\n"), "", "static const struct proc procs[] = {"]
    for call in symbols:
        twin = f"(fgv_proc){call.name}{call.per_thread}" if call.per_thread else "NULL"
        versions = (str(call.since), str(max(call.since, FIRST_PER_THREAD)))
        body.append(table_row([f'"{call.base_name}"', *versions, f"(fgv_proc){call.name}", twin]))
    body += ["};", _LOOKUP.strip("\n")]
    return c_file(DESCRIPTION.format(note=STRICT if is_strict else LENIENT), body)
