"""frontend_guest/generated: the guest's stubs of generated calls, and the prototypes of their hand-written hooks.

A stub checks what CUDA checks at once (NULL pointers, handles), then fills one record in place. Between fgv_call_begin
and fgv_call_post or fgv_call_wait nothing can fail: a record that was begun is always sent.
"""

from __future__ import annotations

from collections.abc import Iterator

from cuda_api.c_types import HANDLES, HOST_NUMBERED, STRUCTS
from cuda_api.call import Call
from cuda_api.generators.text import c_file, guarded, out_of_range, wrap
from cuda_api.prototype import Parameter
from cuda_api.table import Table

STUBS = """
The guest's half of the calls that the table describes completely. The other calls are written by hand beside this
folder.
"""

HOOKS = """
What the guest does about a call whose stub is generated. The stub calls fgv_after_x once the record was sent (async) or
answered without an error (sync); result is CUDA_SUCCESS. A handle that the call destroys is still known then.
It asks fgv_before_x once the arguments are checked: true when the call is answered already.
"""


def generate(table: Table) -> str:
    body = ["#include <stdbool.h>", "#include <stddef.h>", "#include <string.h>", ""]
    body += ['#include "call/call.h"', '#include "context/capture_rules.h"', '#include "context/stream.h"']
    body += ['#include "cuda_api/prototypes.h"', '#include "cuda_api/wire.h"', '#include "hooks.h"']
    body += ['#include "memory/memory.h"']
    body += [_REFUSE.strip("\n")]
    for call in table.calls:
        if call.has_stub:
            body += ["", *_Stub(call).lines()]
    return c_file(STUBS, body)


_REFUSE = """

/* A bad argument, unless the call could not be made at all: CUDA looks at that first. */
static CUresult refuse(CUresult error)
{
    CUresult before = fgv_call_allowed();
    return before != CUDA_SUCCESS ? before : error;
}

/* What the device looks at itself, behind the errors of earlier work. */
static CUresult refuse_healthy(CUresult error)
{
    CUresult before = fgv_call_healthy();
    return before != CUDA_SUCCESS ? before : error;
}
"""


def generate_hooks(table: Table) -> str:
    body = ["#include <stdbool.h>", "", '#include "cuda_api/types.h"', ""]
    for call in table.calls:
        if call.before and call.prototype is not None:
            body.append(wrap(f"bool fgv_before_{call.name}({call.prototype.parameter_list()}, CUresult *answer);"))
        if call.hook and call.prototype is not None:
            text = f"void fgv_after_{call.name}(CUresult result, {call.prototype.parameter_list()});"
            body.append(wrap(text))
    return guarded("FRONTEND_GUEST_GENERATED_HOOKS_H", HOOKS, body)


class _Stub:
    def __init__(self, call: Call) -> None:
        self.call = call
        self.is_declared = False
        self.new = [p for p in call.parameters if call.rule(p) == "new"]
        self.outs = [p for p in call.parameters if call.rule(p).startswith("out")]
        self.streams = [
            p for p in call.parameters if p.base == "CUstream" and not p.is_pointer and p.name != call.destroys
        ]

    def result(self) -> str:
        """Where a result goes: the first use declares it."""
        text = "result" if self.is_declared else "CUresult result"
        self.is_declared = True
        return text

    def lines(self) -> Iterator[str]:
        assert self.call.prototype is not None
        yield wrap(self.call.prototype.declaration())
        yield "{"
        if self.call.unsafe:
            yield "    if (fgv_capture_forbids())"
            yield "        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;"
        yield from self.checks()
        yield from self.doubts()
        yield from self.begin()
        yield from self.fill()
        yield from self.send()
        yield "}"

    def checks(self) -> Iterator[str]:
        required = [p for p in self.call.parameters if p.is_pointer and "nullable" not in self.call.rule(p)]
        if required:
            yield wrap(f"if ({' || '.join(f'{p.name} == NULL' for p in required)})", "    ", 8)
            yield "        return refuse(CUDA_ERROR_INVALID_VALUE);"
        for name, ranges in self.call.allowed.items():
            yield wrap(f"if ({out_of_range(f'(unsigned int){name}', ranges)})", "    ")
            yield "        return refuse(CUDA_ERROR_INVALID_VALUE);"
        for p in self.streams:
            yield f"    uint64_t {p.name}_wire = fgv_stream_wire({p.name});"
            yield f"    if ({p.name}_wire == FGV_STREAM_INVALID)"
            yield "        return refuse(CUDA_ERROR_INVALID_HANDLE);"
        for p in self.call.parameters:
            if p.base in HOST_NUMBERED and not p.is_pointer:
                yield f"    if ({p.name} == NULL)"
                yield "        return refuse(CUDA_ERROR_INVALID_VALUE);"
            elif p.base in HANDLES and not p.is_pointer and p not in self.streams:
                check = f"fgv_handle_check(FGV_HANDLE_{HANDLES[p.base]}, (uint64_t)(uintptr_t){p.name})"
                if self.call.rule(p) == "nullable":
                    check = f"{p.name} == NULL ? CUDA_SUCCESS : {check}"
                yield wrap(f"{self.result()} = {check};", "    ")
                yield "    if (result != CUDA_SUCCESS)"
                yield "        return refuse(result);"
        if self.call.before and self.call.prototype is not None:
            yield "    CUresult answer;"
            yield wrap(f"if (fgv_before_{self.call.name}({self.call.prototype.arguments()}, &answer))", "    ", 8)
            yield "        return answer;"
        for p in self.new:
            yield f"    uint64_t {p.name}_new;"
            yield f"    {self.result()} = fgv_handle_new(FGV_HANDLE_{HANDLES[p.base]}, &{p.name}_new);"
            yield "    if (result != CUDA_SUCCESS)"
            yield "        return result;"

    def doubts(self) -> Iterator[str]:
        """Whether the driver may refuse the call at once: then it waits for the answer. Of parts of a slab the driver knows nothing."""
        conditions = []
        overruns = []
        for name, (element_bytes, *sides) in self.call.within.items():
            width, height, pitch = (*sides, *("1", "1", "0")[len(sides) :])
            box = f"{name}, {element_bytes}, {width}, {height}, {pitch}"
            conditions.append(f"!fgv_memory_has({box})")
            overruns.append(f"fgv_memory_overruns({box})")
        for name, ranges in self.call.doubtful.items():
            conditions.append(f"!({out_of_range(f'(unsigned int){name}', ranges)})")
        if conditions:
            yield wrap(f"bool is_doubtful = {' || '.join(conditions)};", "    ")
        if overruns:
            yield wrap(f"if (is_doubtful && ({' || '.join(overruns)}))", "    ")
            yield "        return refuse_healthy(CUDA_ERROR_INVALID_VALUE);"

    def begin(self) -> Iterator[str]:
        name = self.call.name
        begin = "fgv_call_begin_anywhere" if self.call.contextless else "fgv_call_begin"
        yield "    struct fgv_call call;"
        if self.call.request.size_bytes:
            yield wrap(
                f"struct fgv_request_{name} *request = {begin}(&call, FGV_CALL_{name}, sizeof *request, 0);",
                "    ",
            )
            yield from self.refuse("request == NULL", "call.error")
        else:
            yield from self.refuse(f"{begin}(&call, FGV_CALL_{name}, 0, 0) == NULL", "call.error")

    def refuse(self, condition: str, error: str) -> Iterator[str]:
        drops = [f"fgv_handle_drop(FGV_HANDLE_{HANDLES[p.base]}, {p.name}_new);" for p in self.new]
        if not drops:
            yield f"    if ({condition})"
            yield f"        return {error};"
            return
        yield f"    if ({condition}) {{"
        for drop in drops:
            yield f"        {drop}"
        yield f"        return {error};"
        yield "    }"

    def fill(self) -> Iterator[str]:
        parameters = {p.name: p for p in self.call.parameters}
        for _, field in self.call.request.fields:
            parameter = parameters.get(field.name)
            if parameter is None:
                yield f"    memset(request->{field.name}, 0, sizeof request->{field.name});"
            elif parameter.base in STRUCTS:
                yield f"    memcpy(request->{field.name}, {field.name}, sizeof request->{field.name});"
            else:
                yield f"    request->{field.name} = {self.wire_value(parameter)};"

    def wire_value(self, p: Parameter) -> str:
        if self.call.rule(p) == "new":
            return f"{p.name}_new"
        if p in self.streams:
            return f"{p.name}_wire"
        if p.base in HANDLES:
            return f"(uint64_t)(uintptr_t){p.name}"
        return f"{'*' if p.is_pointer else ''}{p.name}"

    def send(self) -> Iterator[str]:
        call = self.call
        send = "fgv_call_post(&call)" if call.answer == "async" else "fgv_call_wait(&call, NULL, 0)"
        if call.within or call.doubtful:
            send = "is_doubtful ? fgv_call_wait(&call, NULL, 0) : fgv_call_post(&call)"
        if call.reply.size_bytes:
            yield f"    struct fgv_reply_{call.name} reply;"
            send = "fgv_call_wait(&call, &reply, sizeof reply)"
        after = list(self.after())
        if not after:
            yield f"    return {send};"
            return
        yield f"    {self.result()} = {send};"
        yield from self.refuse("result != CUDA_SUCCESS", "result")
        yield from after

    def after(self) -> Iterator[str]:
        """What follows a success."""
        call = self.call
        for p in self.outs:
            if call.rule(p) == "out nullable":
                yield f"    if ({p.name} != NULL)"
                yield f"        *{p.name} = reply.{p.name};"
            elif p.base in STRUCTS:
                yield f"    memcpy({p.name}, reply.{p.name}, sizeof reply.{p.name});"
            else:
                yield f"    *{p.name} = reply.{p.name};"
        for p in self.new:
            yield f"    *{p.name} = ({p.base})(uintptr_t){p.name}_new;"
        if call.hook and call.prototype is not None:
            yield wrap(f"fgv_after_{call.name}(result, {call.prototype.arguments()});", "    ")
        for p in call.parameters:
            if p.name == call.destroys and p.base not in HOST_NUMBERED:
                yield f"    fgv_handle_drop(FGV_HANDLE_{HANDLES[p.base]}, (uint64_t)(uintptr_t){p.name});"
        if call.settles:
            *others, last = call.settles.split()
            for name in others:
                yield f"    result = fgv_memory_settle({name});"
                yield "    if (result != CUDA_SUCCESS)"
                yield "        return result;"
            yield f"    return fgv_memory_settle({last});"
        elif self.outs or self.new or call.hook or call.destroys:
            yield "    return result;"
