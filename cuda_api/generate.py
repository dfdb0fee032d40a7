"""`python -m cuda_api.generate` writes every file that is made from calls.toml and refused.toml; `--check` only says which are stale.

Each file carries a seal, a hash of the tables and of the generators. A file is stale when it differs in any byte from
what would be written, so a hand-made change is stale too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from cuda_api import outputs as files
from cuda_api import refused as refused_module
from cuda_api import table as table_module
from cuda_api.generators import (
    coverage,
    driver,
    exports,
    handlers,
    loans,
    procs,
    prototypes,
    refusals,
    stubs,
    twins,
    values,
    wire,
)
from cuda_api.table import Table, TableError

PACKAGE = Path(__file__).parent

OUTPUTS: dict[str, Callable[[Table], str]] = {
    "cuda_api/include/cuda_api/prototypes.h": prototypes.generate,
    "cuda_api/include/cuda_api/wire.h": wire.generate,
    "cuda_api/include/cuda_api/driver.h": driver.generate,
    "cuda_api/include/cuda_api/values.h": values.generate,
    "cuda_api/include/cuda_api/variants.h": values.generate_variants,
    "cuda_api/generated/values.py": values.generate_python,
    "cuda_api/generated/call_info.c": wire.generate_call_info,
    "frontend_guest/generated/stubs.c": stubs.generate,
    "frontend_guest/generated/hooks.h": stubs.generate_hooks,
    "frontend_guest/generated/exports.c": exports.generate,
    "frontend_guest/generated/loans.c": loans.generate,
    "frontend_guest/generated/loans.h": loans.generate_header,
    "frontend_guest/generated/twins.c": partial(twins.generate, is_strict=True),
    "frontend_guest/generated/procs.c": procs.generate,
    "softgpu/driver/generated/twins.c": partial(twins.generate, is_strict=False),
    "softgpu/driver/generated/procs.c": procs.generate_lenient,
    "backend_host/worker/generated/driver.c": driver.generate_loader,
    "backend_host/worker/generated/handlers.c": handlers.generate,
    "cuda_api/common/generated/refusals.c": refusals.generate,
    "docs/coverage.md": coverage.generate,
}


def seal() -> str:
    """A hash of table, headers and generators."""
    modules = ("c_types", "call", "generate", "layout", "prototype", "refused", "table", "value")
    headers = ("enums.h", "device_attributes.h", "results.h")
    tables = (table_module.CALLS_TOML, refused_module.REFUSED_TOML)
    inputs = [*tables, *PACKAGE.glob("generators/*.py"), *(PACKAGE / f"{name}.py" for name in modules)]
    return files.seal([*inputs, *(PACKAGE / "include" / "cuda_api" / name for name in headers)])


def outputs() -> dict[str, str]:
    """Path from the root of the source tree -> text."""
    table = table_module.read()
    return files.sealed({path: generate(table) for path, generate in OUTPUTS.items()}, seal())


def main(arguments: list[str] | None = None) -> int:
    return files.command("cuda_api.generate", "calls.toml and refused.toml", outputs, TableError, arguments)


if __name__ == "__main__":
    sys.exit(main())
