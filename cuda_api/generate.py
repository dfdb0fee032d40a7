"""`python -m cuda_api.generate` writes every file that is made from calls.toml; `--check` only says which are stale.

Each file carries a seal, a hash of the table and of the generators. A file is stale when it differs in any byte from
what would be written, so a hand-made change is stale too.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from cuda_api import table as table_module
from cuda_api.generators import (
    coverage,
    driver,
    exports,
    handlers,
    loans,
    procs,
    prototypes,
    stubs,
    twins,
    values,
    wire,
)
from cuda_api.table import Table, TableError

PACKAGE = Path(__file__).parent
ROOT = PACKAGE.parent

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
    "docs/coverage.md": coverage.generate,
}


def seal() -> str:
    """A hash of everything that the outputs depend on: table, headers, generators."""
    inputs = [table_module.CALLS_TOML, *PACKAGE.glob("generators/*.py")]
    inputs += [
        PACKAGE / f"{name}.py" for name in ("c_types", "call", "generate", "layout", "prototype", "table", "value")
    ]
    inputs += [PACKAGE / "include" / "cuda_api" / name for name in ("enums.h", "device_attributes.h", "results.h")]
    digest = hashlib.sha256()
    for path in sorted(inputs):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def outputs() -> dict[str, str]:
    """Path from the root of the source tree -> text."""
    table = table_module.read()
    mark = seal()
    return {path: generate(table).replace("{seal}", mark, 1) for path, generate in OUTPUTS.items()}


def stale(root: Path = ROOT) -> dict[str, str]:
    """The files that differ from what the table says, with what they should be."""
    return {path: text for path, text in outputs().items() if not _holds(root / path, text)}


def _holds(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text() == text


def write(root: Path = ROOT) -> list[str]:
    """Writes the stale files and names them."""
    texts = stale(root)
    for name, text in texts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return list(texts)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m cuda_api.generate", description="Make files from the table of driver calls."
    )
    parser.add_argument("--check", action="store_true", help="write nothing, fail when a file is stale")
    options = parser.parse_args(arguments)
    try:
        names = list(stale()) if options.check else write()
    except TableError as error:
        print(f"calls.toml: {error}", file=sys.stderr)
        return 1
    for name in names:
        print(f"stale: {name}" if options.check else f"wrote {name}", file=sys.stderr if options.check else sys.stdout)
    return 1 if options.check and names else 0


if __name__ == "__main__":
    sys.exit(main())
