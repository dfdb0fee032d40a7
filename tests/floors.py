"""Floors inside a package: a file knows files of its own floor and of floors below, never above. floors.toml has the data.

What a file knows are its arrows. Python: imports, wherever they stand. C: quoted includes, and names: whoever writes the name of a function or
variable that another file of the package defines with external linkage has an arrow to that file, whatever header or bare `extern` declares
it. A declaration by itself is no arrow, the call is. A .c and the .h of its name are one file.

    .venv/bin/python -m tests.floors frontend_guest        the circles of a folder with the arrows that tie them, and what goes up

Wrong when, all of C, which is read as text:
* a definition does not start at column 0, or a macro makes it or its name (`a##b`): that name is not seen.
* two files define a name: nobody has an arrow to either. Packages of two libraries do so.
* a name that another file defines also names a local variable or a macro: an arrow too many.
* an include without its folder fits several files, none of them beside the file that includes it: an arrow to each.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from os.path import normpath
from pathlib import Path, PurePosixPath
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(__file__).with_name("floors.toml")
C_SUFFIXES = {".c", ".h", ".cu", ".cuh", ".cc", ".cpp", ".S", ".inc"}
PYTHON_SUFFIXES = {".py", ".pyi"}

_COMMENT_OR_STRING = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.DOTALL)
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)
_ATTRIBUTE = re.compile(r"__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)\s*")
_HEAD = r"^(?!typedef\b)(?=[A-Za-z_])(?P<words>(?:\w+[\s*]+)+)(?P<name>\w+)\s*"
_FUNCTION = re.compile(_HEAD + r"\([^;{}]*\)\s*(?P<end>[{;])", re.MULTILINE)
_VARIABLE = re.compile(_HEAD + r"(?:\[[^\]\n]*\]\s*)*(?P<end>[=;])", re.MULTILINE)
_GLOBAL = re.compile(r"^\s*\.globl\s+(\w+)", re.MULTILINE)
_NO_NAME = re.compile(r"(?:\b(?:struct|union|enum)\s+|\.\s*|->\s*)[A-Za-z_]\w*")
_NAME = re.compile(r"[A-Za-z_]\w*")


class Arrow(NamedTuple):
    """From one file of a package to another; `verb` says how: includes, imports, uses a name of."""

    source: str
    target: str
    verb: str


@dataclass(frozen=True)
class Package:
    """`floors` are named from the bottom; each has patterns of the files that stand on it, relative to the folder."""

    root: Path
    folder: str
    floors: Mapping[str, list[str]] = field(default_factory=dict)
    largest_circle: int = 0
    left_out: Collection[str] = ("generated/*",)


def packages(root: Path, data: Path) -> list[Package]:
    return [Package(root, folder, **entry) for folder, entry in tomllib.loads(data.read_text()).items()]


def files_of(package: Package) -> list[str]:
    """Relative to the root, but for those that are left out."""
    folder = package.root / package.folder
    paths = (
        path for path in sorted(folder.rglob("*")) if path.suffix in C_SUFFIXES | PYTHON_SUFFIXES and path.is_file()
    )
    return [
        path.relative_to(package.root).as_posix()
        for path in paths
        if not _fits(path.relative_to(folder).as_posix(), package.left_out)
    ]


def _fits(path: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(path, pattern) for pattern in patterns)


def unit_of(file: str) -> str:
    """What counts as one file: a .c and its .h do."""
    path = PurePosixPath(file)
    return file if path.suffix in PYTHON_SUFFIXES else path.with_suffix("").as_posix()


def arrows(package: Package) -> set[Arrow]:
    """Of all files of the package, to others of it."""
    files = files_of(package)
    python = [file for file in files if PurePosixPath(file).suffix in PYTHON_SUFFIXES]
    found = {*_imports(package.root, python), *_of_c(package.root, [file for file in files if file not in python])}
    return {arrow for arrow in found if unit_of(arrow.source) != unit_of(arrow.target)}


def _imports(root: Path, files: list[str]) -> Iterator[Arrow]:
    modules = {_module_of(file): file for file in files}
    for file in files:
        for name in imported(ast.parse((root / file).read_text()), _package_of(file)):
            known = name if name in modules else name.rpartition(".")[0]
            if known in modules:
                yield Arrow(file, modules[known], "imports")


def _module_of(file: str) -> str:
    return ".".join(PurePosixPath(file).with_suffix("").parts).removesuffix(".__init__")


def _package_of(file: str) -> list[str]:
    return list(PurePosixPath(file).parent.parts)


def imported(tree: ast.AST, package: list[str]) -> Iterator[str]:
    """Full names of all that is imported: modules, and names of modules."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{module}.{alias.name}" for alias in node.names)


class _Text:
    """A C file without comments and strings: what it includes, defines and writes."""

    def __init__(self, text: str) -> None:
        text = _COMMENT_OR_STRING.sub(lambda found: found[0] if found[0][0] == '"' else " ", text)
        self.includes = set(_INCLUDE.findall(text))
        text = _ATTRIBUTE.sub("", _COMMENT_OR_STRING.sub('""', text))
        self.external = set(_GLOBAL.findall(text))
        self.static: set[str] = set()
        for found in (*_FUNCTION.finditer(text), *_VARIABLE.finditer(text)):
            words = found["words"].split()
            if "static" in words:
                self.static.add(found["name"])
            elif not _is_declaration(found, words):
                self.external.add(found["name"])
        text = _FUNCTION.sub(lambda found: "" if found["end"] == ";" else found[0], text)
        text = _VARIABLE.sub(lambda found: "" if "extern" in found["words"] else found[0], text)
        self.written = set(_NAME.findall(_NO_NAME.sub("", text)))


def _is_declaration(found: re.Match[str], words: list[str]) -> bool:
    is_function = found.re is _FUNCTION
    return found["end"] == ";" and (is_function or "extern" in words or words[-1] in ("struct", "union", "enum"))


def _of_c(root: Path, files: list[str]) -> Iterator[Arrow]:
    texts = {file: _Text((root / file).read_text(errors="replace")) for file in files}
    homes: dict[str, list[str]] = defaultdict(list)
    for file, text in texts.items():
        for name in text.external:
            homes[name].append(file)
    home = {name: files[0] for name, files in homes.items() if len(files) == 1}
    for file, text in texts.items():
        for include in text.includes:
            yield from (Arrow(file, target, "includes") for target in _included(file, include, texts))
        for name in text.written & home.keys() - text.static:
            yield Arrow(file, home[name], f"uses {name} of")


def _included(file: str, include: str, files: Collection[str]) -> list[str]:
    """The file beside the one that includes it, or all whose path ends so: whatever the folders are that the build looks in."""
    beside = normpath(PurePosixPath(file).parent / include)
    return [beside] if beside in files else [other for other in files if f"/{other}".endswith(f"/{include}")]


def circles(arrows: Iterable[Arrow]) -> list[list[str]]:
    """Files that reach each other, as `unit_of` counts them; the largest circle first."""
    nexts: dict[str, set[str]] = defaultdict(set)
    for arrow in arrows:
        nexts[unit_of(arrow.source)].add(unit_of(arrow.target))
    reached = {unit: _reached(unit, nexts) for unit in list(nexts)}
    found = {
        tuple(sorted(other for other in theirs if unit in reached.get(other, ())))
        for unit, theirs in reached.items()
        if unit in theirs
    }
    return sorted((list(circle) for circle in found), key=lambda circle: (-len(circle), circle))


def _reached(unit: str, nexts: Mapping[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    ahead = [unit]
    while ahead:
        fresh = nexts.get(ahead.pop(), set()) - reached
        reached |= fresh
        ahead += fresh
    return reached


def mistakes(package: Package) -> list[str]:
    """All that is wrong: files that do not stand on one floor, floors without their files, arrows that go up, circles."""
    floors, wrong = _stand(package)
    found = arrows(package)
    return [*wrong, *upward(found, floors, list(package.floors)), *_circles_not_as_told(package, circles(found))]


def _stand(package: Package) -> tuple[dict[str, str], list[str]]:
    """The floor of each file, and what is wrong with them."""
    floors: dict[str, str] = {}
    wrong: list[str] = []
    unused = {(floor, pattern) for floor, patterns in package.floors.items() for pattern in patterns}
    for file in files_of(package):
        inside = file.removeprefix(f"{package.folder}/")
        on = [floor for floor, patterns in package.floors.items() if _fits(inside, patterns)]
        unused = {(floor, pattern) for floor, pattern in unused if not fnmatchcase(inside, pattern)}
        if len(on) == 1:
            floors[file] = on[0]
        else:
            wrong.append(f"{file} stands on {' and '.join(on) or 'no floor'}")
    return floors, wrong + [
        f"{package.folder} has no file {pattern} (floor {floor})" for floor, pattern in sorted(unused)
    ]


def upward(found: Iterable[Arrow], floors: Mapping[str, str], order: list[str]) -> list[str]:
    """Files without a floor are left out."""
    return [
        f"{source} (floor {floors[source]}) {verb} {target} (floor {floors[target]})"
        for source, target, verb in sorted(found)
        if source in floors and target in floors and order.index(floors[source]) < order.index(floors[target])
    ]


def _circles_not_as_told(package: Package, found: list[list[str]]) -> list[str]:
    """A circle smaller than told is wrong too, so that it does not grow back unseen."""
    largest = found[0] if found else []
    if len(largest) == package.largest_circle:
        return []
    return [f"{package.folder}: largest circle {len(largest)}, told {package.largest_circle} ({', '.join(largest)})"]


def main(folder: str) -> None:
    """Prints circles, each with its arrows, and what goes up where floors.toml knows the folder."""
    package = {package.folder: package for package in packages(ROOT, DATA)}.get(folder, Package(ROOT, folder))
    found = arrows(package)
    for circle in circles(found):
        print(f"circle of {len(circle)}: {', '.join(circle)}")
        for source, target, verb in sorted(found):
            if unit_of(source) in circle and unit_of(target) in circle:
                print(f"    {source} {verb} {target}")
    print(*mistakes(package) if package.floors else (), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1].rstrip("/"))
