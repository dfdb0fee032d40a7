"""cuda_api/values.h, cuda_api/variants.h and cuda_api/generated/values.py: what two ends agree on beside calls and records."""

from __future__ import annotations

from collections.abc import Iterator

from cuda_api.generators.text import COLUMNS, ORIGIN, comment, guarded, struct
from cuda_api.table import Table
from cuda_api.value import Value

RING = """
What guest and worker agree on beside calls and records: see [values] in the table.
"""

VARIANTS = """
What those who make variants of kernels in Python, and the worker that launches them, agree on: see [values] in the
table.
"""

_PYTHON = '''
"""
What two ends agree on beside calls and records: see [values] in the table.

Of a struct its class has the offsets of its members and its size, in bytes.
"""

from enum import IntEnum


class Value(IntEnum):
    """A member of an enumeration of the table."""

    @property
    def text(self) -> str:
        """In words, for people."""
        return self.name.lower().replace("_", " ")
'''


def generate(table: Table) -> str:
    return guarded("CUDA_API_VALUES_H", RING, _header(table, "ring"))


def generate_variants(table: Table) -> str:
    return guarded("CUDA_API_VARIANTS_H", VARIANTS, _header(table, "variants"))


def _header(table: Table, ends: str) -> Iterator[str]:
    yield "#include <stddef.h>"
    yield "#include <stdint.h>"
    for value in table.values:
        if value.ends == ends:
            yield from ("", _sentence(value.about), *_c(value))


def _sentence(text: str) -> str:
    line = f"/* {text} */"
    return line if len(line) <= COLUMNS else comment(text)


def _c(value: Value) -> Iterator[str]:
    if value.enum:
        yield f"enum fgv_{value.name} {{"
        yield from (f"    {value.c_name}_{member.upper()} = {number}," for member, number in value.enum)
        yield "};"
    elif value.struct.size_bytes:
        yield from struct(f"fgv_{value.name}", value.struct)
    else:
        text = f"{value.constant}u" if isinstance(value.constant, int) else f'"{value.constant}"'
        yield f"#define {value.c_name} {text}"


def generate_python(table: Table) -> str:
    lines = [f"# {ORIGIN}", _PYTHON.strip("\n")]
    was_class = True
    for value in table.values:
        is_class = value.constant is None
        lines += [*([""] * (2 if is_class or was_class else 1)), *_python(value)]
        was_class = is_class
    return "\n".join(lines) + "\n"


def _python(value: Value) -> Iterator[str]:
    if value.enum:
        yield f"class {value.class_name}(Value):"
        yield f'    """{value.about}"""'
        yield ""
        yield from (f"    {member.upper()} = {number}" for member, number in value.enum)
    elif value.struct.size_bytes:
        yield f"class {value.class_name}:"
        yield f'    """{value.about}"""'
        yield ""
        yield from (f"    {field.name.upper()} = {offset}" for offset, field in value.struct.fields)
        yield f"    SIZE = {value.struct.size_bytes}"
    else:
        text = str(value.constant) if isinstance(value.constant, int) else f'"{value.constant}"'
        yield f"{value.name.upper()} = {text}"
        yield f'"""{value.about}"""'
