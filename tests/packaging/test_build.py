"""What packaging/files.py chooses, without a build: what is not shipped is not imported, and what is shipped is installed here."""

import ast
import importlib.util
import itertools
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "packaging/debian"
BY_MODULE = {
    "elftools": "pyelftools",
    "posix_ipc": "posix-ipc",
    "prometheus_client": "prometheus-client",
}
"""Distributions by the module that they bring, where the name is another one."""
DONE_WITHOUT = {
    "libvirt": "python3-libvirt is recommended",
    "matplotlib": "fairgv-sim --plot says what it lacks",
    "numpy": "python -m scheduler.space says what it lacks",
    "pynvml": "fairgv-host doctor says what is unknown without it",
}
OF_BUILDS = {"build_ffi.py", "generate.py", "demo.py"}
"""Files that no command of the package runs."""
READ_BY_GENERATE = {"phases.py", "kinds.py"}
"""Modules that generate.py alone imports."""


@pytest.fixture(scope="module")
def build() -> ModuleType:
    spec = importlib.util.spec_from_file_location("files_of_package", FOLDER.parent / "files.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def imports(path: Path) -> set[str]:
    """First names of a file's absolute imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add((node.module or "").partition(".")[0])
    return found


def test_all_that_is_imported_is_shipped(build: ModuleType) -> None:
    files = [path for house in build.HOUSES for path in (ROOT / house).rglob("*.py") if path.name not in OF_BUILDS]
    names = set[str]().union(*map(imports, files)) - sys.stdlib_module_names - {*build.HOUSES} - DONE_WITHOUT.keys()
    shipped = {re.sub(r"[-_.]+", "-", found.name).lower() for found in build.dependencies()}
    assert {BY_MODULE.get(name, name) for name in names} - shipped == set()
    assert "llvmlite" in names


def test_what_is_not_shipped_is_a_dependency_that_a_checkout_has(build: ModuleType) -> None:
    named = {re.split(r"[^\w-]", text)[0] for text in build.PROJECT["dependencies"]}
    assert build.NOT_SHIPPED.keys() - named == set()
    assert {found.name for found in build.dependencies()} & build.NOT_SHIPPED.keys() == set()


def test_a_python_that_the_distribution_lacks_is_told(build: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "PYTHON", "python3.99")
    with pytest.raises(build.CannotBuildError, match=r"no /usr/bin/python3\.99.*rm -r \.venv"):
        build.distribution_python()


def test_each_header_that_python_reads_is_shipped(build: ModuleType) -> None:
    """By its name in the code: what makes parts of the tree reads others, and is no part of a command."""
    read = [ROOT / name for name in build.READ]
    assert all(path.exists() for path in read)
    for house in build.HOUSES:
        for path in (ROOT / house).rglob("*.py"):
            if path.name in OF_BUILDS | READ_BY_GENERATE or "generators" in path.parts:
                continue
            names = re.findall(r'"(?:[\w/]*/)?(\w+\.h)"', path.read_text())
            assert set(names) <= {each.name for each in read}, path


def test_every_command_is_the_project_s(build: ModuleType) -> None:
    assert set(build.COMMANDS) <= build.PROJECT["scripts"].keys()


def test_overrides_have_a_reason() -> None:
    lines = (FOLDER / "lintian-overrides").read_text().splitlines()
    reasons = [line.startswith("#") for line in lines]
    assert reasons[0]
    assert not any(before and now for before, now in itertools.pairwise(reasons))
    assert not reasons[-1]
