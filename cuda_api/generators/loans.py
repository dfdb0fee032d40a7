"""frontend_guest/generated/loans.c and .h: what programs call when they call something that names its context."""

from __future__ import annotations

from collections.abc import Iterator

from cuda_api.c_types import HANDLES
from cuda_api.call import ADDRESS_LENDERS, Call
from cuda_api.generators.text import c_file, choice, guarded, wrap
from cuda_api.prototype import Parameter, Prototype
from cuda_api.table import Table

DESCRIPTION = """
Calls of a thread without a current context that name a stream, an event, a module, a function, an array or memory: for
the time of the call the context of that is the thread's, as with CUDA.
"""

#: Apart, so that the common way is a compare and a jump with every parameter where it is.
_HEAD = "#define COLD static __attribute__((noinline, cold))"


def generate(table: Table) -> str:
    body = ['#include "loans.h"', "", "#include <stddef.h>", "", '#include "face/loan.h"', "", _HEAD]
    for name, prototype, lender in _lent(table):
        lent = choice(prototype, f"lent_{name}", "fgv_loan_is_due()", f"lending_{name}", name)
        body += ["", *_lending(name, prototype, lender), "", *lent]
    return c_file(DESCRIPTION, body)


def _lending(name: str, prototype: Prototype, lender: Parameter) -> Iterator[str]:
    arguments = prototype.arguments()
    yield wrap(f"COLD {prototype.declaration(f'lending_{name}')}")
    yield "{"
    yield wrap(f"if (!{_take(lender)})", "    ")
    yield wrap(f"return {name}({arguments});", "        ")
    yield wrap(f"return fgv_loan_return({name}({arguments}));", "    ")
    yield "}"


def generate_header(table: Table) -> str:
    declarations = [wrap(f"{prototype.declaration(f'lent_{name}')};") for name, prototype, _ in _lent(table)]
    body = ['#include "cuda_api/prototypes.h"', "", *declarations]
    return guarded("FRONTEND_GUEST_GENERATED_LOANS_H", DESCRIPTION, body)


def lender_of(table: Table, call: Call) -> Parameter | None:
    """Of an alias, what stands where the other call has its lender."""
    if call.codec != "alias":
        return call.lending()
    target = table.by_name[call.of]
    lender = target.lending()
    return call.parameters[target.parameters.index(lender)] if lender else None


def entry(table: Table, call: Call, suffix: str = "") -> str:
    """The function that a program gets for a call; suffix: its twin's for the per-thread default stream."""
    return f"{'lent_' if lender_of(table, call) else ''}{call.name}{suffix}"


def _lent(table: Table) -> Iterator[tuple[str, Prototype, Parameter]]:
    for call in table.symbols:
        lender = lender_of(table, call)
        if call.prototype and lender:
            yield call.name, call.prototype, lender
            if call.per_thread:
                yield call.name + call.per_thread, call.prototype, lender


def _take(lender: Parameter) -> str:
    if (lender.base, lender.depth) in ADDRESS_LENDERS:
        return f"fgv_loan_take_at((uint64_t)(uintptr_t){lender.name})"
    if lender.base == "CUlaunchConfig":
        stream = f"{lender.name} == NULL ? 0 : (uint64_t)(uintptr_t){lender.name}->hStream"
        return f"fgv_loan_take(FGV_HANDLE_STREAM, {stream})"
    return f"fgv_loan_take(FGV_HANDLE_{HANDLES[lender.base]}, (uint64_t)(uintptr_t){lender.name})"
