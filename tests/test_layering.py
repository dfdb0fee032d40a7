"""The arrows of the design, and no others: who may import, and in C include, whom.

Wrong when: a module is imported by a name computed at run time. None is.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ARROWS: dict[str, set[str]] = {
    "cuda_api": set(),
    "ivshmem": set(),
    "scheduler": set(),
    "frontend_guest": {"ivshmem", "cuda_api"},
    "backend_host": {"ivshmem", "cuda_api", "scheduler"},
    "softgpu": {"cuda_api"},
}
C_SUFFIXES = {".c", ".h", ".cu", ".cc", ".cpp", ".S", ".inc"}
# benchmarks and tests may look at everything; nobody may look at them.
HOUSES = {*ARROWS, "benchmarks", "tests"}


def python_imports(source: str, package: str) -> Iterator[tuple[int, str]]:
    """Line and first name of each absolute import; a relative one that leaves its package counts as the package it stands in."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, package if node.level else (node.module or "").partition(".")[0]


def c_includes(text: str) -> Iterator[tuple[int, str]]:
    """Line and the first folder of each include; one that climbs (`../x/y.h`) counts as the folder it climbs into."""
    for number, line in enumerate(text.splitlines(), 1):
        found = re.match(r'\s*#\s*include\s*["<]([^">]+)[">]', line)
        if found:
            folders = [part for part in Path(found[1]).parts[:-1] if part not in ("..", ".")]
            yield number, folders[0] if folders else ""


def files_of(package: str, suffixes: set[str]) -> list[Path]:
    return [path for path in sorted((ROOT / package).rglob("*")) if path.suffix in suffixes and path.is_file()]


@pytest.mark.parametrize("package", ARROWS)
def test_python_imports_follow_the_arrows(package: str) -> None:
    allowed = ARROWS[package] | {package}
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in files_of(package, {".py", ".pyi"})
        for line, name in python_imports(path.read_text(), package)
        if name in HOUSES - allowed
    ]
    assert wrong == []


@pytest.mark.parametrize("package", ARROWS)
def test_c_includes_follow_the_arrows(package: str) -> None:
    allowed = ARROWS[package] | {package}
    wrong = [
        f"{path.relative_to(ROOT)}:{line} includes {name}/"
        for path in files_of(package, C_SUFFIXES)
        for line, name in c_includes(path.read_text(errors="replace"))
        if name in HOUSES - allowed
    ]
    assert wrong == []


def test_production_does_without_the_simulator() -> None:
    simulator = ROOT / "scheduler" / "simulator"
    wrong = [
        str(path.relative_to(ROOT))
        for package in ARROWS
        for path in files_of(package, {".py", ".pyi"})
        if not path.is_relative_to(simulator) and "scheduler.simulator" in path.read_text()
    ]
    assert wrong == []


def test_what_the_rules_would_catch() -> None:
    source = "import os, backend_host.cli\ndef f():\n    from scheduler.policy import x\n    from . import y\n"
    assert list(python_imports(source, "ivshmem")) == [(1, "os"), (1, "backend_host"), (3, "scheduler"), (4, "ivshmem")]
    text = '#include <stdio.h>\n# include "cuda_api/types.h"\n#include "../../softgpu/driver/x.h"\n#include "local.h"\n'
    assert [name for _, name in c_includes(text)] == ["", "cuda_api", "softgpu", ""]


def test_every_part_of_the_house_is_there() -> None:
    assert all((ROOT / package).is_dir() for package in ARROWS)
