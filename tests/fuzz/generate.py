"""Writes what the fuzzer of the worker takes from the table of calls: a stand-in for each driver call that no stand_*.c has by hand,
and where numbers of handles stand in each request.

A generated stand-in asks whether it is to fail, checks that each handle is alive and of its kind, and then makes or ends what the prototype
says. Wrong when: a call keeps an object that it was given in a struct; such calls are by hand.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from cuda_api.c_types import HANDLES, Field, enumerations
from cuda_api.call import Call
from cuda_api.prototype import Parameter
from cuda_api.table import Table, read

HERE = Path(__file__).parent
BY_HAND = re.compile(r"^STAND_IN\((cu\w+)", re.MULTILINE)
ENDS = re.compile(r"cu\w*(?:Destroy|Unload)\w*")
SCALARS = {"int", "unsigned int", "size_t", "cuuint64_t", "unsigned long long", "CUdeviceptr", "CUdevice", "float"}
#: Members of requests by hand that are numbers of handles, by their names; 0 stands for any.
NAMED = {
    "stream": "STREAM",
    "event": "EVENT",
    "module": "MODULE",
    "library": "LIBRARY",
    "function": "FUNCTION",
    "kernel": "KERNEL",
    "graph": "GRAPH",
    "node": "GRAPH_NODE",
    "exec": "GRAPH_EXEC",
    "link": "LINK",
    "pool": "MEMORY_POOL",
    "mipmap": "MIPMAPPED_ARRAY",
    "array": "ARRAY",
    "handle": "",
    "original": "GRAPH",
    "child": "GRAPH",
    "blob": "",
}
#: Members of requests that tell how long the payload is, or a part of it.
SIZES = frozenset({"name_bytes", "nr_parameter_bytes", "bytes"})


def kind_of(base: str) -> str:
    return f"FGV_HANDLE_{HANDLES[base]}"


def check(parameter: Parameter) -> Iterator[str]:
    if parameter.base in HANDLES and parameter.depth == 0:
        yield f"    stand_need({kind_of(parameter.base)}, (const void *)(uintptr_t){parameter.name});"


def effect(call: Call, parameter: Parameter, index: int) -> Iterator[str]:
    name, base = parameter.name, parameter.base
    is_first = parameter == call.parameters[0]
    if parameter.depth != 1 or parameter.is_const or not (is_first or base in SCALARS):
        return  # what stands behind the first may be an array that is read
    if base in HANDLES:
        yield f"    *{name} = ({base})(uintptr_t)stand_make({kind_of(base)}, NULL);"
    elif base in SCALARS or base in enumerations():
        yield f"    if ({name}) {{"
        yield f"        *{name} = ({base})stand_number({index});"
        yield "    }"
    elif base not in ("void", "char"):
        yield f"    if ({name}) {{"
        yield f"        memset({name}, 0, sizeof(*{name}));"
        yield "    }"


def stand_in(call: Call, index: int) -> Iterator[str]:
    assert call.prototype is not None
    handles = [p for p in call.parameters if p.base in HANDLES and p.depth == 0]
    yield f"static {call.prototype.declaration()}"
    yield "{"
    for p in call.parameters:
        yield f"    (void){p.name};"
        yield from check(p)
    ended = handles[0] if ENDS.fullmatch(call.name) and handles else None
    if ended:
        yield f"    if ((uintptr_t){ended.name} <= 2) {{"
        yield "        return CUDA_ERROR_INVALID_HANDLE;"
        yield "    }"
    yield f'    const CUresult result = stand_call({index}, "{call.name}");'
    yield "    if (result != CUDA_SUCCESS) {"
    if ended:
        yield f"        stand_excuse((void *)(uintptr_t){ended.name});"
    yield "        return result;"
    yield "    }"
    for p in call.parameters:
        yield from effect(call, p, index)
    if ended:
        yield f"    stand_end((void *)(uintptr_t){ended.name});"
    yield "    return CUDA_SUCCESS;"
    yield "}"
    yield ""


def calls_of(table: Table) -> list[Call]:
    return [call for call in table.symbols if call.codec != "alias"]


def stand_ins(table: Table, by_hand: set[str]) -> Iterator[str]:
    yield '#include "stand_in.h"'
    yield "#include <string.h>"
    for index, call in enumerate(calls_of(table)):
        if call.name not in by_hand:
            yield from stand_in(call, index)
    yield "unsigned int fgv_driver_load(struct fgv_driver *driver, void *library)"
    yield "{"
    yield "    (void)library;"
    yield "    *driver = (struct fgv_driver){"
    for call in calls_of(table):
        yield f"        .{call.name} = {'stand_' if call.name in by_hand else ''}{call.name},"
    yield "    };"
    yield "    return 0;"
    yield "}"


def kind_of_field(call: Call, field: Field) -> str | None:
    """The kind of handle that a member names, "" for any, None where it is no number of one."""
    if call.payload and field.wire == "uint32_t" and field.name in SIZES:
        return "PAYLOAD"
    if field.wire != "uint64_t" or field.inner_bytes:
        return None
    for parameter in call.parameters if call.codec == "generated" else ():
        if parameter.name == field.name:
            return HANDLES.get(parameter.base)
    return NAMED.get(field.name)


def requests(table: Table) -> Iterator[str]:
    yield '#include "worker.h"'
    yield "static const struct fuzz_field fuzz_fields[] = {"
    starts: list[str] = []
    nr = 0
    for call in table.records:
        start = nr
        for offset, field in call.request.fields:
            if field.name.startswith("padding") or field.name == "reserved":
                continue
            kind = kind_of_field(call, field)
            number = (
                "FUZZ_PAYLOAD"
                if kind == "PAYLOAD"
                else "FUZZ_NUMBER"
                if kind is None
                else f"FGV_HANDLE_{kind}"
                if kind
                else "FUZZ_ANY"
            )
            count = field.count or 1
            bytes_each = field.size_bytes // count
            yield f"    {{{offset}, {bytes_each}, {count}, {number}}}, /* {call.name}.{field.name} */"
            nr += 1
        starts.append(
            f'    {{{call.number}, {call.request.size_bytes}, {start}, {nr}, {int(call.payload)}, "{call.name}"}},'
        )
    yield "};"
    yield "static const struct fuzz_call fuzz_calls[] = {"
    yield from starts
    yield "};"


def _write(path: Path, text: str) -> None:
    """Leaves a file alone that says the same, so that nothing is built again for it."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def main(folder: Path) -> None:
    table = read()
    by_hand = {name for path in HERE.glob("stand_*.c") for name in BY_HAND.findall(path.read_text())}
    unknown = by_hand - {call.name for call in calls_of(table)}
    assert not unknown, unknown
    _write(folder / "stand_ins.c", "\n".join(stand_ins(table, by_hand)) + "\n")
    _write(folder / "requests.h", "\n".join(requests(table)) + "\n")
    indices = [f"#define STAND_{call.name} {i}" for i, call in enumerate(calls_of(table))]
    shared = [
        f"CUresult stand_{call.prototype.name}({call.prototype.parameter_list()});"
        for call in calls_of(table)
        if call.prototype and call.name in by_hand
    ]
    _write(folder / "stand_in_calls.h", "\n".join([*indices, *shared]) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
