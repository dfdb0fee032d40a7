"""Makes a host's package for distributions with rpm: FOLDER/fairgv-host-VERSION-1.x86_64.rpm, by `build.py rpm FOLDER`.

rpmbuild reads what our binaries need out of them, and is told nothing else of them: what they offer, the guest's libcuda.so.1 above all, is
for nobody else.

Wrong when: it is installed on another distribution than it was made on; glibc's version is among what it needs, Python's modules are not.
"""

import shutil
from pathlib import Path

from files import DOCUMENTS, HERE, PYTHON, ROOT, VERSION, make_tree, put, run, settle

DATA = HERE / "rpm"
_FOLDERS = ("etc/fairgv", "usr/lib/fairgv", "usr/share/doc/fairgv-host", "usr/share/fairgv")
"""Those that are the package's own: all in them is, too."""


def build(work: Path, to: Path) -> Path:
    """The package's path. Raises CannotBuildError."""
    tree = make_tree(work, "usr/share/zsh/site-functions")
    put(ROOT / "LICENSE", tree.files / DOCUMENTS / "LICENSE")
    settle(tree)
    (work / "list").write_text("".join(f"{line}\n" for line in listed(tree.files)))
    values = {"version": VERSION, "python": PYTHON, "tree": tree.files, "list": work / "list"}
    defined = [word for name, value in values.items() for word in ("--define", f"fairgv_{name} {value}")]
    top = work / "rpmbuild"
    run("rpmbuild", "-bb", "--quiet", "--define", f"_topdir {top}", *defined, DATA / "fairgv-host.spec")
    [made] = top.glob("RPMS/*/*.rpm")
    package = to / made.name
    shutil.move(made, package)
    return package


def listed(files: Path) -> list[str]:
    """What the package has, as a spec's list of files: its own folders whole, and files in folders of others."""
    others = [path for path in files.rglob("*") if not path.is_dir() or path.is_symlink()]
    loose = [path.relative_to(files) for path in others if not str(path.relative_to(files)).startswith(_FOLDERS)]
    return [
        *(f"/{folder}" for folder in _FOLDERS if folder != "etc/fairgv"),
        "%dir /etc/fairgv",
        "%config(noreplace) /etc/fairgv/config.toml",
        *(f'"/{path}"' for path in sorted(loose)),
    ]
