"""cuda_api/driver.h and the worker's loader: the device library as a struct of typed function pointers."""

from __future__ import annotations

from collections.abc import Iterator

from cuda_api.call import Call
from cuda_api.generators.text import c_file, guarded, table_row, wrap
from cuda_api.table import Table

DRIVER = """
The device library, as the worker calls it: one pointer per call of the table, under the name of its symbol. An older
device library has fewer symbols; a pointer it lacks stays NULL, and the call is CUDA_ERROR_NOT_SUPPORTED.
"""

LOADER = """
Fills struct fgv_driver from an open device library.
"""


def _calls(table: Table) -> Iterator[Call]:
    return (call for call in table.symbols if call.codec != "alias")


def generate(table: Table) -> str:
    body = ['#include "cuda_api/types.h"', "", "struct fgv_driver {"]
    for call in _calls(table):
        assert call.prototype is not None
        body.append(wrap(f"CUresult (*{call.name})({call.prototype.parameter_list()});", "    "))
    body += ["};", ""]
    body += ["/* library: what dlopen gave. Returns how many symbols it lacks. */"]
    body += ["unsigned int fgv_driver_load(struct fgv_driver *driver, void *library);"]
    return guarded("CUDA_API_DRIVER_H", DRIVER, body)


def generate_loader(table: Table) -> str:
    body = ["#include <dlfcn.h>", "#include <stddef.h>", "#include <string.h>", "", '#include "cuda_api/driver.h"', ""]
    body += ["static const struct {", "    const char *symbol;", "    size_t member; /* offset in struct fgv_driver */"]
    body += ["} symbols[] = {"]
    body += [table_row([f'"{call.name}"', f"offsetof(struct fgv_driver, {call.name})"]) for call in _calls(table)]
    body += ["};", _LOAD.strip("\n")]
    return c_file(LOADER, body)


_LOAD = """

unsigned int fgv_driver_load(struct fgv_driver *driver, void *library)
{
    unsigned int nr_missing = 0;
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *symbol = dlsym(library, symbols[i].symbol);
        memcpy((char *)driver + symbols[i].member, &symbol, sizeof symbol);
        nr_missing += symbol == NULL;
    }
    return nr_missing;
}
"""
