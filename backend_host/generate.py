"""`python -m backend_host.generate` writes every file that is made from counters.toml, turn/phase.h and kinds.c; `--check` only says which are
stale."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from backend_host import counters as table
from backend_host import kinds, phases
from backend_host.counters import Counter, CountersError
from backend_host.kinds import KindsError
from cuda_api import layout, outputs
from cuda_api import table as calls
from cuda_api.generators.text import c_file, guarded, origin

PACKAGE = Path(__file__).parent
ORIGIN = origin("backend_host.generate", "counters.toml")
FIRST_OFFSET = 16
"""Of the counters in the slot, which begins with what is no counter."""

HEADER = """
What a worker counts: members of its slot in the control page, and a reading of them.
"""

SOURCE = """
Reads a worker's counters.
"""

_PYTHON = '''
"""What workers count: see backend_host/counters.toml."""

from dataclasses import dataclass, field

from cuda_api.generated.values import {imports}
'''

_CLASSES = (
    ("WorkerCounters", "What a worker counted since its slot was taken.", lambda counter: True),
    ("ClientCounters", "What is shown of one program.", lambda counter: counter.is_shown),
    ("TotalCounters", "What is shown of all programs of a vGPU together.", lambda counter: counter.is_total),
)


def header(counters: tuple[Counter, ...]) -> Iterator[str]:
    yield from ("#include <stdatomic.h>", "#include <stdint.h>", "", "struct fgw_worker_slot;", "")
    yield "/* Pages whose counters lie elsewhere are of another version. */"
    yield f"#define FGW_COUNTERS_LAYOUT UINT64_C({table.layout_hash(counters):#018x})"
    for counter in counters:
        if counter.each:
            yield f"#define FGV_{counter.name.upper()} {counter.room}u"
    for counter in counters:
        if counter.bounds_ns:
            bounds = ", ".join(f"UINT64_C({bound})" for bound in counter.bounds_ns)
            yield f"#define FGV_{counter.name.upper()}_BOUNDS_NS {{{bounds}}}"
    yield from ("", "/* Members of struct fgw_worker_slot, as below. */", "#define FGW_COUNTERS \\")
    *most, last = counters
    yield from (f"    _Atomic {counter.field.declaration()} \\" for counter in most)
    yield f"    _Atomic {last.field.declaration().removesuffix(';')}"
    yield from ("", "/* cffi: begin */", "struct fgw_counters {")
    yield from (f"    {counter.field.declaration()} /* {counter.help} */" for counter in counters)
    yield from ("};", "/* cffi: end */", "")
    yield "void fgw_counters_read(struct fgw_worker_slot *slot, struct fgw_counters *counters);"


def source(counters: tuple[Counter, ...]) -> Iterator[str]:
    yield from ('#include "generated/counters.h"', "", "#include <stddef.h>", "", '#include "page/layout.h"', "")
    for offset, field in layout.lay_out([counter.field for counter in counters]).fields:
        place = f"offsetof(struct fgw_worker_slot, {field.name})"
        yield f'_Static_assert({place} == {FIRST_OFFSET + offset}, "{field.name}");'
    yield from ("", "void fgw_counters_read(struct fgw_worker_slot *slot, struct fgw_counters *counters)", "{")
    for counter in counters:
        if counter.nr:
            yield f"    for (uint32_t i = 0; i < {counter.nr}; i++) {{"
            yield f"        counters->{counter.name}[i] = atomic_load(&slot->{counter.name}[i]);"
            yield "    }"
        else:
            yield f"    counters->{counter.name} = atomic_load(&slot->{counter.name});"
    yield "}"


def python(counters: tuple[Counter, ...]) -> str:
    each = [counter for counter in counters if counter.each]
    imports = sorted({"Value", *(counter.each.class_name for counter in each if counter.each)})
    lines = [f"# {ORIGIN}", _PYTHON.strip("\n").format(imports=", ".join(imports))]
    lines += ["", "EACH: dict[str, tuple[str, type[Value]]] = {"]
    for counter in each:
        if counter.each:
            lines.append(f'    "{counter.shown_name}": ("{counter.name}", {counter.each.class_name}),')
    lines += [
        "}",
        '"""Of those that there are many of: the member of struct fgw_counters, and what each of its numbers is."""',
    ]
    lines += ["", "BOUNDS: dict[str, tuple[str, ...]] = {"]
    for counter in counters:
        if counter.bounds_ns:
            lines += [f'    "{counter.name}": (', *(f'        "{word}",' for word in counter.words), "    ),"]
    lines += ["}", '"""Of those of times by their length: the longest that each of its numbers counts, in ns."""']
    for name, about, has in _CLASSES:
        lines += ["", "", "@dataclass(frozen=True)", f"class {name}:", f'    """{about}"""', ""]
        for counter in filter(has, counters):
            lines += _attribute(counter)
    return "\n".join(lines) + "\n"


def _attribute(counter: Counter) -> Iterator[str]:
    kind = "dict[str, int] = field(default_factory=dict)" if counter.nr else "int = 0"
    yield f"    {counter.shown_name}: {kind}"
    yield f'    """{counter.help}"""'


def texts() -> dict[str, str]:
    """Path from the root of the source tree -> text."""
    counters = table.read(calls.read().values)
    made = {
        "backend_host/worker/generated/counters.h": guarded(
            "BACKEND_HOST_GENERATED_COUNTERS_H", HEADER, header(counters), ORIGIN
        ),
        "backend_host/worker/generated/counters.c": c_file(SOURCE, source(counters), ORIGIN),
        "backend_host/generated/counters.py": python(counters),
    }
    seal = outputs.seal([table.COUNTERS_TOML, PACKAGE / "counters.py", PACKAGE / "generate.py"])
    pages = {f"docs/{kinds.PAGE.name}": kinds.page(kinds.PAGE.read_text())}
    return {**outputs.sealed(made, seal), **phases.texts(), **pages}


def main(arguments: list[str] | None = None) -> int:
    errors = (CountersError, KindsError)
    return outputs.command("backend_host.generate", "counters.toml or kinds.c", texts, errors, arguments)


if __name__ == "__main__":
    sys.exit(main())
