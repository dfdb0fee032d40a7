"""The arrows of the design, and no others: who may import, and in C include, whom.

Between packages these are the ARROWS below. Inside a package they point down its floors, which floors.toml lists and floors.py reads.
And where the two halves of a call stand: in files of the same name, in the guest and in the worker.

Wrong when: a module is imported by a name computed at run time. None is.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cuda_api import table
from tests.floors import C_SUFFIXES, DATA, ROOT, Package, imported, mistakes, packages

ARROWS: dict[str, set[str]] = {
    "cuda_api": set(),
    "ivshmem": set(),
    "scheduler": set(),
    "frontend_guest": {"ivshmem", "cuda_api"},
    "backend_host": {"ivshmem", "cuda_api", "scheduler"},
    "softgpu": {"cuda_api"},
    "gloop": set(),
}
#: The guest's file of a call and the worker's, where their names differ, and why. Without a reason they are the same.
OTHER_NAMES = {
    ("capture_rules", "capture"): "the guest keeps CUDA's rules about captures below what knows graphs",
    ("code", "module"): "the guest has a file for modules, one for libraries, and this for both",
    ("function", "module"): "the guest knows functions one by one",
    ("function_queries", "module"): "the guest knows what may be asked about them",
    ("graph_exec", "graph"): "graph.c would be too long",
    ("host_function", "capture"): "the guest puts a captured function where it keeps the others",
    ("managed_variable", "module"): "the guest copies these variables to the device and back",
    ("occupancy", "launch"): "the guest keeps the answers",
    ("pool_cache", "pool_memory"): "the guest keeps freed memory",
    ("reservation", "virtual_memory"): "virtual_memory.c would be too long",
    ("shared_event", "memory"): "the table of events is registered as memory is, and no memory of the program's",
}
# benchmarks, dashboards, manual and tests may look at everything; nobody of the above may look at them.
HOUSES = {*ARROWS, "benchmarks", "dashboards", "manual", "tests"}


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


def test_metrics_are_known_to_the_daemon_s_start_alone() -> None:
    """What they tell is there without them: a host that wants none runs nothing of theirs."""
    tellers = ROOT / "backend_host/metrics"
    knowing = {
        (path.relative_to(ROOT).as_posix(), name)
        for package in ARROWS
        for path in files_of(package, {".py", ".pyi"})
        if not path.is_relative_to(tellers)
        for name in imported(ast.parse(path.read_text()), list(path.relative_to(ROOT).parent.parts))
        if name.startswith("backend_host.metrics")
    }
    assert {(path, name.split(".")[2]) for path, name in knowing} == {
        ("backend_host/config.py", "address"),
        ("backend_host/daemon.py", "serving"),
    }


def test_what_the_rules_would_catch() -> None:
    source = "import os, backend_host.cli\ndef f():\n    from scheduler.policy import x\n    from . import y\n"
    assert list(python_imports(source, "ivshmem")) == [(1, "os"), (1, "backend_host"), (3, "scheduler"), (4, "ivshmem")]
    text = '#include <stdio.h>\n# include "cuda_api/types.h"\n#include "../../softgpu/driver/x.h"\n#include "local.h"\n'
    assert [name for _, name in c_includes(text)] == ["", "cuda_api", "softgpu", ""]


def test_every_part_of_the_house_is_there() -> None:
    assert all((ROOT / package).is_dir() for package in ARROWS)


def halves_of_calls(package: str, pattern: str) -> dict[str, set[str]]:
    """By call, the hand-written files, without their folders, in which the pattern finds its name."""
    halves: dict[str, set[str]] = {}
    for path in files_of(package, {".c"}):
        for name in re.findall(pattern, path.read_text(), re.MULTILINE) if path.parent.name != "generated" else ():
            halves.setdefault(name, set()).add(path.stem)
    return halves


def test_both_halves_of_a_call_stand_in_files_of_the_same_name() -> None:
    guest = halves_of_calls("frontend_guest", r"\bstruct fgv_request_(\w+)")
    worker = halves_of_calls("backend_host/worker", r"^CUresult fg[vw]_serve_(\w+)\(")
    by_hand = [call.name for call in table.read().records if call.codec in ("hand", "internal")]
    assert [name for name in by_hand if len(worker.get(name, ())) != 1 or not guest.get(name)] == []
    found = {(one, other) for name in by_hand for one in guest[name] for other in worker[name]}
    assert {(one, other) for one, other in found if one != other} == set(OTHER_NAMES)


@pytest.mark.parametrize("package", packages(ROOT, DATA), ids=lambda package: package.folder)
def test_arrows_point_down_the_floors(package: Package) -> None:
    assert mistakes(package) == []


CLEAN = {
    "low/a.h": "int fgv_a(void);\nint fgv_b(void); /* defined above, which is no arrow */\n",
    "low/a.c": '#include "a.h"\nstatic int fgv_c(void)\n{\n    return 1;\n}\nint fgv_a(void)\n{\n    return fgv_c();\n}\n',
    "high/b.c": '#include "low/a.h"\nint fgv_variable = 3;\nint fgv_b(void)\n{\n    return fgv_a();\n}\n',
    "high/c.c": '#include "a.h"\nint fgv_c(void)\n{\n    return fgv_b();\n}\n',
    "low/d.py": "import os\n",
    "high/e.py": "from house.low import d\nfrom ..low.d import os\n",
    "generated/g.h": '#include "high/b.h"\n',
}
FLOORS = {"low": ["low/*"], "high": ["high/*"]}


@pytest.mark.parametrize(
    ("planted", "largest_circle", "expected"),
    [
        ({}, 0, []),
        (
            {"low/a.c": '#include "../high/b.h"\n', "high/b.h": ""},
            2,
            ["house/low/a.c (floor low) includes house/high/b.h (floor high)"],
        ),
        (
            {"low/a.c": "int fgv_a(void)\n{\n    extern int fgv_b(void);\n    return fgv_b();\n}\n"},
            2,
            ["house/low/a.c (floor low) uses fgv_b of house/high/b.c (floor high)"],
        ),
        (
            {"low/f.h": "extern int fgv_variable;\n#define F() (fgv_variable + 1)\n"},
            0,
            ["house/low/f.h (floor low) uses fgv_variable of house/high/b.c (floor high)"],
        ),
        (
            {"low/a.c": 'void a(struct fgv_b *fgv)\n{\n    fgv->fgv_b = 1; // fgv_b()\n    puts("fgv_b");\n}\n'},
            0,
            [],
        ),
        (
            {"low/d.py": "def f():\n    from ..high.e import d\n"},
            2,
            ["house/low/d.py (floor low) imports house/high/e.py (floor high)"],
        ),
        (
            {"low/d.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import house.high.e\n"},
            2,
            ["house/low/d.py (floor low) imports house/high/e.py (floor high)"],
        ),
        (
            {
                "low/f.c": "int fgv_f(void)\n{\n    return fgv_a();\n}\n",
                "low/a.c": "int fgv_a(void)\n{\n    fgv_f();\n}\n",
            },
            0,
            ["house: largest circle 2, told 0 (house/low/a, house/low/f)"],
        ),
        ({}, 2, ["house: largest circle 0, told 2 ()"]),
        ({"middle/f.c": ""}, 0, ["house/middle/f.c stands on no floor"]),
    ],
)
def test_what_the_floors_would_catch(
    tmp_path: Path, planted: dict[str, str], largest_circle: int, expected: list[str]
) -> None:
    for name, text in {**CLEAN, **planted}.items():
        (tmp_path / "house" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "house" / name).write_text(text)
    assert mistakes(Package(tmp_path, "house", FLOORS, largest_circle)) == expected


def test_a_floor_names_files_that_are_there_and_no_other_floor_has(tmp_path: Path) -> None:
    (tmp_path / "house").mkdir()
    (tmp_path / "house" / "a.c").write_text("")
    floors = {"low": ["a.*"], "high": ["*.c", "b.c"]}
    assert mistakes(Package(tmp_path, "house", floors)) == [
        "house/a.c stands on low and high",
        "house has no file b.c (floor high)",
    ]
