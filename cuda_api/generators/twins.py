"""generated/twins.c of both libraries: the names that only lead to another call.

_ptsz and _ptds twins serve programs compiled for a default stream per thread; an alias is an older symbol with the same
parameters.
"""

from __future__ import annotations

from collections.abc import Iterator

from cuda_api.call import Call
from cuda_api.generators.text import c_file, wrap
from cuda_api.table import Table

DESCRIPTION = """
Symbols that lead to another one. Twins for the per-thread default stream: in a _ptsz twin a NULL stream is
CU_STREAM_PER_THREAD; a _ptds twin has no stream, so it makes the copy or set on CU_STREAM_PER_THREAD and waits for it.
Older names with the same parameters.
"""


def generate(table: Table, *, is_strict: bool) -> str:
    body = ["#include <stddef.h>", "", '#include "cuda_api/prototypes.h"', ""]
    if not is_strict:
        targets = {
            call.of or call.per_thread_async or call.name
            for call in table.symbols
            if call.of or call.per_thread_async or call.per_thread == "_ptsz"
        }
        body += [*(f"#pragma weak {name}" for name in sorted(targets)), ""]
    body += ["static CUstream own_stream(CUstream stream)", "{"]
    body += ["    return stream == NULL ? CU_STREAM_PER_THREAD : stream;", "}"]
    for call in table.symbols:
        if call.codec == "alias":
            body += ["", *_alias(call)]
        if call.per_thread == "_ptsz":
            body += ["", *_stream_twin(call)]
        if call.per_thread_async:
            body += ["", *_copy_twin(call)]
    return c_file(DESCRIPTION, body)


def _alias(call: Call) -> Iterator[str]:
    assert call.prototype is not None
    yield wrap(call.prototype.declaration())
    yield "{"
    yield wrap(f"return {call.of}({call.prototype.arguments()});", "    ")
    yield "}"


def _stream_twin(call: Call) -> Iterator[str]:
    assert call.prototype is not None
    yield wrap(call.prototype.declaration(call.name + call.per_thread))
    yield "{"
    arguments = []
    for p in call.parameters:
        if p.base == "CUstream" and not p.is_pointer:
            arguments.append(f"own_stream({p.name})")
        elif p.base == "CUlaunchConfig":
            yield f"    CUlaunchConfig own_{p.name};"
            yield f"    if ({p.name} != NULL) {{"
            yield f"        own_{p.name} = *{p.name};"
            yield f"        own_{p.name}.hStream = own_stream({p.name}->hStream);"
            yield f"        {p.name} = &own_{p.name};"
            yield "    }"
            arguments.append(p.name)
        elif p.base == "CUDA_GRAPH_INSTANTIATE_PARAMS":
            yield f"    if ({p.name} != NULL)"
            yield f"        {p.name}->hUploadStream = own_stream({p.name}->hUploadStream);"
            arguments.append(p.name)
        else:
            arguments.append(p.name)
    yield wrap(f"return {call.name}({', '.join(arguments)});", "    ")
    yield "}"


def _copy_twin(call: Call) -> Iterator[str]:
    assert call.prototype is not None
    yield wrap(call.prototype.declaration(call.name + call.per_thread))
    yield "{"
    arguments = f"{call.prototype.arguments()}, CU_STREAM_PER_THREAD"
    yield wrap(f"CUresult result = {call.per_thread_async}({arguments});", "    ")
    yield "    return result != CUDA_SUCCESS ? result : cuStreamSynchronize(CU_STREAM_PER_THREAD);"
    yield "}"
