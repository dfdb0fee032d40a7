"""cuda_api/wire.h: the records of requests and replies; cuda_api/generated/call_info.c: facts about each number."""

from __future__ import annotations

from collections.abc import Iterator

from cuda_api.c_types import HANDLES
from cuda_api.call import Call
from cuda_api.generators.text import c_file, guarded, struct, table_row
from cuda_api.table import Table

WIRE = """
What travels between guest and worker. A request is a struct fgv_wire_header, then the call's fgv_request_<call>, then
its payload where it has one. A reply is the call's fgv_reply_<call>; the CUresult travels beside it. Calls without
members have no struct. Handles are the guest's numbers of them, everything is little endian, and reserved and padding
members are zero.
"""

CALL_INFO = """
What is known of each call number, for counters and for bounds. Made from the same table on both sides.
"""

_HEADER = """
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda_api/values.h"

/* Both ends compare it before they talk: different tables must not meet. */
#define FGV_TABLE_HASH UINT64_C({hash:#018x})

enum fgv_handle_kind {{
{kinds}
    FGV_HANDLE_KINDS, /* number of kinds, 0 (none) included */
}};

/* A stream on the wire is the guest's number of it, or 0, the legacy default stream. No stream has this number: */
#define FGV_STREAM_INVALID UINT64_MAX

/* context: the low 32 bits of the guest's number of the calling thread's current context, 0 for none. flags: 0. */
struct fgv_wire_header {{
    uint16_t call;
    uint16_t flags;
    uint32_t context;
}};
_Static_assert(sizeof(struct fgv_wire_header) == 8, "header");

enum fgv_answer {{ FGV_ANSWER_LOCAL, FGV_ANSWER_ASYNC, FGV_ANSWER_SYNC }};
enum fgv_cost {{ FGV_COST_NONE, FGV_COST_COPY, FGV_COST_COMPUTE }};
enum fgv_order {{ FGV_ORDER_FREE, FGV_ORDER_STREAM }};
enum fgv_waits {{ FGV_WAITS_NONE, FGV_WAITS_STREAM, FGV_WAITS_EVENT, FGV_WAITS_CONTEXT }};

/* request_bytes: the struct fgv_request_<call> alone, without header and payload. */
struct fgv_call_info {{
    const char *name;
    uint16_t number;
    uint8_t answer, cost, order, waits;
    uint32_t request_bytes, reply_bytes;
    bool has_payload, needs_context;
}};

/* NULL for a number that no call has. */
const struct fgv_call_info *fgv_call_info(uint16_t number);

#define FGV_CALLS_END {calls_end}
#define FGV_INTERNAL_FIRST 0xf000
#define FGV_INTERNAL_END {internal_end:#x}

enum fgv_call_number {{
{numbers}
}};
"""


def generate(table: Table) -> str:
    kinds = [f"    FGV_HANDLE_{kind}{' = 1' if i == 0 else ''}," for i, kind in enumerate(HANDLES.values())]
    numbers = [f"    FGV_CALL_{call.name} = {_number(call)}," for call in table.calls]
    header = _HEADER.format(
        hash=table.hash,
        kinds="\n".join(kinds),
        numbers="\n".join(numbers),
        calls_end=max(call.number for call in table.symbols) + 1,
        internal_end=max(call.number for call in table.calls) + 1,
    )
    body = [header.strip("\n")]
    for call in table.records:
        for kind, members in (("request", call.request), ("reply", call.reply)):
            if members.size_bytes:
                body += ["", *struct(f"fgv_{kind}_{call.name}", members)]
    return guarded("CUDA_API_WIRE_H", WIRE, body)


def _number(call: Call) -> str:
    return f"{call.number:#x}" if call.codec == "internal" else str(call.number)


def generate_call_info(table: Table) -> str:
    symbols = [call for call in table.calls if call.codec != "internal"]
    internal = [call for call in table.calls if call.codec == "internal"]
    body = ['#include "cuda_api/wire.h"', ""]
    body += ["static const struct fgv_call_info calls[FGV_CALLS_END] = {", *_infos(symbols, ""), "};", ""]
    body += [
        "static const struct fgv_call_info internal_records[FGV_INTERNAL_END - FGV_INTERNAL_FIRST] = {",
        *_infos(internal, " - FGV_INTERNAL_FIRST"),
        "};",
    ]
    body += [_LOOKUP.strip("\n")]
    return c_file(CALL_INFO, body)


_LOOKUP = """

const struct fgv_call_info *fgv_call_info(uint16_t number)
{
    const struct fgv_call_info *info = NULL;
    if (number < FGV_CALLS_END)
        info = &calls[number];
    else if (number >= FGV_INTERNAL_FIRST && number < FGV_INTERNAL_END)
        info = &internal_records[number - FGV_INTERNAL_FIRST];
    return info != NULL && info->name != NULL ? info : NULL;
}
"""


def _infos(calls: list[Call], minus: str) -> Iterator[str]:
    for call in calls:
        number = f"FGV_CALL_{call.name}"
        words = (("ANSWER", call.answer or "local"), ("COST", call.cost), ("ORDER", call.order), ("WAITS", call.waits))
        parts = [f'"{call.name}"', number, *(f"FGV_{kind}_{word.upper()}" for kind, word in words)]
        parts += [str(call.request.size_bytes), str(call.reply.size_bytes), str(call.payload).lower()]
        parts.append(str(call.has_record and not call.contextless).lower())
        yield table_row(parts, f"[{number}{minus}] = ")
