"""backend_host/worker/generated/handlers.c: the worker's half of generated calls, and the table of all services.

A handler gets a private copy of the request. It looks up every handle, holds enumerations to what the table allows,
makes sure that a new number is free before the driver makes the object, and writes nothing into the reply that the
driver did not give.
"""

from __future__ import annotations

from collections.abc import Iterator

from cuda_api.c_types import HANDLES, STRUCTS
from cuda_api.call import Call
from cuda_api.generators.text import c_file, out_of_range, table_row, wrap
from cuda_api.prototype import Parameter
from cuda_api.table import Table

DESCRIPTION = """
The worker's half of the calls that the table describes completely, and the table of all services, hand-written ones
included.
"""


def generate(table: Table) -> str:
    body = ["#include <string.h>", "", '#include "client/service.h"', '#include "cuda_api/driver.h"']
    body += ['#include "cuda_api/wire.h"', ""]
    for call in table.records:
        body.append(wrap(f"{_signature(call)};"))
    for call in table.records:
        if call.has_handler:
            body += ["", *_Handler(call).lines()]
    body += ["", *_services(table)]
    return c_file(DESCRIPTION, body)


def _signature(call: Call) -> str:
    return f"CUresult fgw_serve_{call.name}(struct fgw_worker *worker, const struct fgw_request *request, void *reply)"


class _Handler:
    def __init__(self, call: Call) -> None:
        self.call = call

    def lines(self) -> Iterator[str]:
        call = self.call
        yield wrap(_signature(call))
        yield "{"
        if call.request.size_bytes:
            yield f"    const struct fgv_request_{call.name} *fixed = request->fixed;"
        else:
            yield "    (void)request;"
        yield "    const struct fgv_driver *driver = fgw_worker_driver(worker);"
        yield f"    if (driver->{call.name} == NULL)"
        yield "        return CUDA_ERROR_NOT_SUPPORTED;"
        yield from self.bounds()
        yield from self.lookups()
        yield from self.locals()
        yield from self.make_call()
        yield "}"

    def bounds(self) -> Iterator[str]:
        for name, ranges in self.call.allowed.items():
            yield wrap(f"if ({out_of_range(f'fixed->{name}', ranges)})", "    ")
            yield "        return CUDA_ERROR_INVALID_VALUE;"

    def lookups(self) -> Iterator[str]:
        result = "CUresult result"
        for p in self.call.parameters:
            kind = HANDLES.get(p.base)
            if kind and self.call.rule(p) == "new":
                yield f"    {result} = fgw_worker_can_bind(worker, FGV_HANDLE_{kind}, fixed->{p.name});"
            elif kind:
                yield f"    void *{p.name} = NULL;"
                find = f"fgw_worker_find(worker, FGV_HANDLE_{kind}, fixed->{p.name}, &{p.name})"
                if self.call.rule(p) == "nullable":
                    find = f"fixed->{p.name} == 0 ? CUDA_SUCCESS : {find}"
                yield wrap(f"{result} = {find};", "    ")
            elif p.base == "CUdevice" and not p.is_pointer:
                yield f"    CUdevice {p.name} = 0;"
                yield f"    {result} = fgw_worker_device(worker, fixed->{p.name}, &{p.name});"
            else:
                continue
            result = "result"
            yield "    if (result != CUDA_SUCCESS)"
            yield "        return result;"
        self.result = result

    def locals(self) -> Iterator[str]:
        for p in self.call.parameters:
            if not p.is_pointer:
                continue
            if p.base in HANDLES:
                yield f"    {p.base} {p.name} = NULL;"
            elif p.base in STRUCTS:
                yield f"    {p.base} {p.name};"
                if self.call.rule(p) == "in":
                    yield f"    memcpy(&{p.name}, fixed->{p.name}, sizeof {p.name});"
                else:
                    yield f"    memset(&{p.name}, 0, sizeof {p.name});"
            else:
                yield f"    {p.base} {p.name} = {f'fixed->{p.name}' if self.call.rule(p) == 'in' else '0'};"

    def argument(self, p: Parameter) -> str:
        if p.is_pointer:
            return f"&{p.name}"
        if p.base == "CUdeviceptr":
            return f"fgw_worker_address(worker, fixed->{p.name})"
        return p.name if p.base in HANDLES or p.base == "CUdevice" else f"fixed->{p.name}"

    def make_call(self) -> Iterator[str]:
        call = self.call
        arguments = ", ".join(self.argument(p) for p in call.parameters)
        outs = [p for p in call.parameters if call.rule(p).startswith("out")]
        after = list(self.after(outs))
        if not outs:
            yield "    (void)reply;"
        if not after:
            yield wrap(f"return driver->{call.name}({arguments});", "    ")
            return
        yield wrap(f"{self.result} = driver->{call.name}({arguments});", "    ")
        yield "    if (result != CUDA_SUCCESS)"
        yield "        return result;"
        yield from after

    def after(self, outs: list[Parameter]) -> Iterator[str]:
        call = self.call
        if outs:
            yield f"    struct fgv_reply_{call.name} *answer = reply;"
            yield "    memset(answer, 0, sizeof *answer);"
            for p in outs:
                if p.base in STRUCTS:
                    yield f"    memcpy(answer->{p.name}, &{p.name}, sizeof answer->{p.name});"
                else:
                    yield f"    answer->{p.name} = {p.name};"
        for p in call.parameters:
            if p.name == call.destroys:
                yield f"    fgw_worker_unbind(worker, FGV_HANDLE_{HANDLES[p.base]}, fixed->{p.name});"
        new = [p for p in call.parameters if call.rule(p) == "new"]
        for p in new:
            parent = call.parent(p)
            what = f"worker, FGV_HANDLE_{HANDLES[p.base]}, fixed->{p.name}, {p.name}"
            call_bind = f"fgw_worker_bind({what})"
            if p.base == "CUevent":
                call_bind = f"fgw_worker_bind_with_flags({what}, fixed->Flags)"
            if parent is not None:
                call_bind = f"fgw_worker_bind_under({what}, FGV_HANDLE_{HANDLES[parent.base]}, fixed->{parent.name})"
            yield wrap(f"return {call_bind};", "    ")
        if not new and (outs or call.destroys):
            yield "    return CUDA_SUCCESS;"


def _services(table: Table) -> Iterator[str]:
    yield "const struct fgw_service fgw_services[] = {"
    for call in table.records:
        words = (("ANSWER", call.answer), ("COST", call.cost), ("ORDER", call.order), ("WAITS", call.waits))
        yield table_row(
            [
                f'"{call.name}"',
                f"fgw_serve_{call.name}",
                f"FGV_CALL_{call.name}",
                *(f"FGV_{kind}_{word.upper()}" for kind, word in words),
                *(str(size) for size in (call.request.size_bytes, call.reply.size_bytes)),
                *(_offset(call, base) for base in ("CUstream", "CUevent")),
                str(call.payload).lower(),
                str(not call.contextless).lower(),
            ]
        )
    yield "};"
    yield ""
    yield "const unsigned int fgw_nr_services = sizeof fgw_services / sizeof *fgw_services;"
    yield ""
    yield "/* Place in fgw_services plus one, 0 for a number that is never requested. */"
    for name, first, end, internal in (
        ("places", "0", "FGV_CALLS_END", False),
        ("internal_places", "FGV_INTERNAL_FIRST", "FGV_INTERNAL_END", True),
    ):
        yield f"static const uint16_t {name}[{end}{f' - {first}' if internal else ''}] = {{"
        for place, call in enumerate(table.records, 1):
            if (call.codec == "internal") == internal:
                yield f"    [FGV_CALL_{call.name}{f' - {first}' if internal else ''}] = {place},"
        yield "};"
        yield ""
    yield _LOOKUP.strip("\n")


_LOOKUP = """
const struct fgw_service *fgw_service_find(uint16_t number)
{
    uint16_t place = 0;
    if (number < FGV_CALLS_END)
        place = places[number];
    else if (number >= FGV_INTERNAL_FIRST && number < FGV_INTERNAL_END)
        place = internal_places[number - FGV_INTERNAL_FIRST];
    return place == 0 ? NULL : &fgw_services[place - 1];
}
"""


def _offset(call: Call, base: str) -> str:
    offset = call.handle_offset(base)
    return "FGW_NO_HANDLE" if offset is None else str(offset)
