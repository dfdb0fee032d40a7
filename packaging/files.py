"""What a host's package installs, whichever kind of package it is: deb.py and rpm.py put it into one.

In /usr/lib/fairgv it has the shape of a checkout, so that the code finds its parts in one way: our packages, libraries in build,
and in .venv an environment of the distribution's own Python with the packages that we need. Those are copied from the environment that this
runs in: what was tested is what is shipped, and nothing is fetched. Our native modules are compiled anew by the distribution's Python, as one
from elsewhere leaves its own place in them.

Wrong when: the daemon imports what is none of HOUSES or of the project's dependencies. `make test-packages` starts it from the package.
"""

import gzip
import os
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VERSION = PROJECT["version"]
PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
HOUSES = ("backend_host", "cuda_api", "ivshmem", "scheduler", "softgpu")
COMMANDS = ("fairgv-host", "fairgv-run", "fairgv-sim")
"""Not fairgv-bench: it compiles its programs with nvcc, from a checkout."""
NOT_SHIPPED = {"numpy": "fairgv-bench alone has it", "setuptools": "it builds our modules"}
PLACE, DOCUMENTS = "usr/lib/fairgv", "usr/share/doc/fairgv-host"
READ = {f"cuda_api/include/cuda_api/{name}.h" for name in ("device_attributes", "enums", "results")}
"""Headers that Python reads as it runs: names of values, for metrics say."""
_SOURCES = {".c", ".h", ".S", ".pyi"}
_OF_INSTALLERS = {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"}
_COMMAND = """\
#!/{place}/.venv/bin/python -I
import sys
from {module} import {function}
sys.exit({function}())
"""


class CannotBuildError(Exception):
    """What is missing, and the remedy."""


@dataclass(frozen=True)
class Tree:
    """All files in a folder. `binaries`: those that are linked to libraries; `copied`: packages of others; `date`: of all files, in seconds."""

    files: Path
    binaries: list[Path]
    copied: list[Distribution]
    date: int


def make_tree(work: Path, zsh: str) -> Tree:
    """In a folder of `work`. `zsh` is where its completions are in this kind of distribution. Raises CannotBuildError."""
    python = distribution_python()
    os.environ["SOURCE_DATE_EPOCH"] = date = os.environ.get("SOURCE_DATE_EPOCH") or date_of_sources()
    os.umask(0o022)
    files = work / "files"
    put_code(files / PLACE)
    site = files / PLACE / ".venv/lib" / PYTHON / "site-packages"
    copied = dependencies()
    put_environment(files / PLACE, site, copied)
    compile_modules(files / PLACE, python)
    put_commands(files)
    put_configuration(files, work, zsh)
    put_pages(files)
    binaries = strip(files)
    put_bytecode(files)
    return Tree(files, binaries, copied, int(date))


def settle(tree: Tree) -> None:
    """Last: every file has the one date."""
    for path in [*tree.files.rglob("*"), tree.files]:
        os.utime(path, (tree.date, tree.date), follow_symlinks=False)


def distribution_python() -> str:
    """The one of this version that the distribution has. Raises CannotBuildError."""
    python = f"/usr/bin/{PYTHON}"
    if not os.access(python, os.X_OK):
        raise CannotBuildError(
            f"this distribution has no {python}, which the package would need: make .venv anew with its own (rm -r .venv; "
            "make packages PYTHON=/usr/bin/python3)"
        )
    return python


def date_of_sources() -> str:
    """Seconds since 1970, of the newest commit: what files and pages have for a time."""
    done = subprocess.run(["git", "-C", ROOT, "log", "-1", "--format=%ct"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "0"


def run(*command: str | Path, **options: str | Path | dict[str, str]) -> str:
    """Its output. Ends with what it said when it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}:\n{done.stdout}{done.stderr}")
    return str(done.stdout)


def put_code(root: Path) -> None:
    """Our packages, and the libraries that programs and workers load."""
    for house in HOUSES:
        shutil.copytree(ROOT / house, root / house, ignore=shutil.ignore_patterns("__pycache__", "*.so", "Makefile"))
    device = ROOT / "build/softgpu-package"
    places = [f"PYTHON=/{PLACE}/.venv/bin/python", f"INSTALLED=/{PLACE}", f"CFLAGS=-O2 -g -ffile-prefix-map={ROOT}=."]
    run("make", "-s", "-C", ROOT / "softgpu", f"BUILD={device}", *places)
    put(device / "libcuda.so.1", root / "build/softgpu/libcuda.so.1")
    for library in ("libcuda.so.1", "libnvidia-ml.so.1"):
        put(ROOT / "build/guest" / library, root / "build/guest" / library)


def put(source: Path, target: Path, mode: int = 0o644) -> None:
    """A file, in folders that are made."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(mode)


def dependencies() -> list[Distribution]:
    """What the commands need, and what that needs."""
    todo = [Requirement(text) for text in PROJECT["dependencies"]]
    seen = set[str]()
    found: dict[str, Distribution] = {}
    while todo:
        requirement = todo.pop()
        asked = f"{requirement.name}[{','.join(sorted(requirement.extras))}]"
        if requirement.name in NOT_SHIPPED or asked in seen:
            continue
        seen.add(asked)
        found[requirement.name] = distribution(requirement.name)
        for each in map(Requirement, found[requirement.name].requires or ()):
            extras = ("", *requirement.extras)
            if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in extras):
                todo.append(each)
    return list(found.values())


def put_environment(root: Path, site: Path, copied: list[Distribution]) -> None:
    """What `python -m venv` makes, and pip: the packages, ours by a path. Debian's own are seen behind them, for python3-libvirt."""
    for each in copied:
        for file in each.files or ():
            if ".." not in file.parts and "__pycache__" not in file.parts and file.name not in _OF_INSTALLERS:
                put(Path(str(file.locate())), site / file)
    (site / "fairgv.pth").write_text("../../../..\n")
    about = site / f"fairgv-{VERSION}.dist-info" / "METADATA"
    about.parent.mkdir()
    about.write_text(f"Metadata-Version: 2.1\nName: fairgv\nVersion: {VERSION}\n")
    (root / ".venv/bin").mkdir()
    (root / ".venv/bin/python").symlink_to(f"../../../../bin/{PYTHON}")
    (root / ".venv/pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = true\n")


def compile_modules(root: Path, python: str) -> None:
    """Those of C, in the folder that they will be in; then their sources go."""
    tools = next(path for path in map(Path, sys.path) if path.name == "site-packages")
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": f"{root}:{tools}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "CFLAGS": f"-ffile-prefix-map={root}=.",
    }
    for module in ("ivshmem.build_ffi", "backend_host.worker.build_ffi"):
        run(python, "-P", "-m", module, cwd=root, env=environment)
    for house in HOUSES:
        for path in sorted((root / house).rglob("*"), reverse=True):
            if path.suffix in _SOURCES:
                if str(path.relative_to(root)) not in READ:
                    path.unlink()
            elif path.is_dir() and not any(path.iterdir()):
                path.rmdir()


def put_commands(files: Path) -> None:
    """Each starts our Python, and hears of no Python of its user's."""
    for name in COMMANDS:
        module, function = PROJECT["scripts"][name].split(":")
        command = files / "usr/bin" / name
        command.parent.mkdir(parents=True, exist_ok=True)
        command.write_text(_COMMAND.format(place=PLACE, module=module, function=function))
        command.chmod(0o755)


def put_configuration(files: Path, work: Path, zsh: str) -> None:
    """Units, groups, the configuration, and boards, alerts and Proxmox's hook for who wants them."""
    units = ROOT / "packaging/systemd"
    for unit in ("fairgv.service", "fairgv.socket", "fairgv-nvidia.service"):
        put(units / unit, files / "usr/lib/systemd/system" / unit)
    put(units / "fairgv.sysusers.conf", files / "usr/lib/sysusers.d/fairgv.conf")
    run(sys.executable, "-m", "manual", work / "manual", cwd=ROOT)
    put(work / "manual/config.toml", files / "etc/fairgv/config.toml")
    for name in ("alerts.yaml", "hosts.json", "vgpu.json"):
        put(ROOT / "dashboards" / name, files / "usr/share/fairgv/dashboards" / name)
    put(ROOT / "packaging/proxmox/fairgv-hookscript", files / "usr/share/fairgv/proxmox/fairgv-hookscript", 0o755)
    for name in COMMANDS:
        pages = f"man/man1/{name}.1"
        put_packed(work / "manual" / pages, files / f"usr/share/{pages}.gz")
        completions = work / "manual/completions"
        put(completions / "bash" / name, files / "usr/share/bash-completion/completions" / name)
        put(completions / f"zsh/_{name}", files / zsh / f"_{name}")
        put(completions / f"fish/{name}.fish", files / f"usr/share/fish/vendor_completions.d/{name}.fish")
    put_packed(work / "manual/man/man5/fairgv.toml.5", files / "usr/share/man/man5/fairgv.toml.5.gz")


def put_packed(source: Path, target: Path) -> None:
    """As policy has it for what is read by people."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(gzip.compress(source.read_bytes(), mtime=0))


def put_pages(files: Path) -> None:
    """Pages, which messages name, and what changed."""
    folder = files / DOCUMENTS
    put_packed(ROOT / "CHANGELOG.md", folder / "CHANGELOG.md.gz")
    for page in (ROOT / "docs").glob("*.md"):
        put(page, folder / "docs" / page.name)


def license_of(copied: Distribution) -> str:
    """Its name, in whichever of three ways its authors say it."""
    about = copied.metadata
    plain = [*(about.get_all("License-Expression") or ()), *(about.get_all("License") or ())]
    classes = [line for line in about.get_all("Classifier") or () if line.startswith("License")]
    return next((line for text in (*plain, *classes) for line in text.splitlines()), "see there").rpartition(" :: ")[2]


def strip(files: Path) -> list[Path]:
    """Takes debug information out of all libraries, and returns them."""
    binaries = [path for path in files.rglob("*") if path.is_file() and not path.is_symlink() and is_binary(path)]
    run("strip", "--strip-unneeded", "--remove-section=.comment", *binaries)
    return binaries


def is_binary(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def put_bytecode(files: Path) -> None:
    """The daemon may not write where its code is. It holds for the sources whatever their times, and names them where they will be."""
    how = ("--invalidation-mode", "unchecked-hash", "-s", str(files), "-p", "/")
    run(f"/usr/bin/{PYTHON}", "-m", "compileall", "-q", *how, files / PLACE)
