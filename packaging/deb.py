"""Makes a host's package for Debian and Ubuntu of the files of files.py, for `build.py deb FOLDER`: FOLDER/fairgv-host_VERSION_amd64.deb."""

import gzip
import time
from pathlib import Path

from files import DOCUMENTS, HERE, PLACE, PYTHON, VERSION, Tree, license_of, make_tree, put, run, settle

DATA = HERE / "debian"
_COPIED = """
Files: {place}/.venv/*/{name}*
Copyright: its authors
License: {license}
 Version {version} as its authors publish it. What they say of copyright and licence is in
 /{place}/.venv/lib/{python}/site-packages/{folder}.
"""


def build(work: Path, to: Path) -> Path:
    """The package's path. Raises CannotBuildError."""
    tree = make_tree(work, "usr/share/zsh/vendor-completions")
    put_documents(tree)
    put_control(tree.files, depends(tree.binaries, work))
    settle(tree)
    package = to / f"fairgv-host_{VERSION}_amd64.deb"
    run("dpkg-deb", "--root-owner-group", "-Zxz", "-z3", "--build", tree.files, package)
    return package


def put_documents(tree: Tree) -> None:
    """Copyright, also of what is copied, and changes as Debian's tools read them."""
    folder = tree.files / DOCUMENTS
    text = (DATA / "copyright").read_text()
    for each in sorted(tree.copied, key=lambda each: each.name.lower()):
        where = next(file.parent.name for file in each.files or () if file.name == "METADATA")
        said = {"name": each.name, "version": each.version, "license": license_of(each)}
        text += _COPIED.format(place=PLACE, python=PYTHON, folder=where, **said)
    (folder / "copyright").write_text(text)
    when = time.strftime("%a, %d %b %Y %H:%M:%S +0000", time.gmtime(tree.date))
    entry = f"fairgv ({VERSION}) unstable; urgency=medium\n\n  * CHANGELOG.md has what changed.\n\n -- FairGV <fairgv@localhost>  {when}\n"
    (folder / "changelog.gz").write_bytes(gzip.compress(entry.encode(), mtime=0))
    put(DATA / "lintian-overrides", tree.files / "usr/share/lintian/overrides/fairgv-host")


def depends(binaries: list[Path], work: Path) -> str:
    """On the Python that all is compiled for, systemd, and the libraries that binaries are linked to."""
    (work / "debian").mkdir()
    (work / "debian/control").write_text("Source: fairgv\n\nPackage: fairgv-host\nArchitecture: amd64\n")
    said = run("dpkg-shlibdeps", "-O", "--warnings=0", *(f"-e{path}" for path in binaries), cwd=work)
    return f"{PYTHON}, systemd, {said.strip().removeprefix('shlibs:Depends=')}"


def put_control(files: Path, depends: str) -> None:
    """Last, as it has the size of all."""
    size = sum(path.lstat().st_size for path in files.rglob("*") if not path.is_dir()) // 1024
    folder = files / "DEBIAN"
    folder.mkdir()
    text = (DATA / "control").read_text()
    for name, value in (("VERSION", VERSION), ("DEPENDS", depends), ("SIZE", str(size))):
        text = text.replace(f"@{name}@", value)
    (folder / "control").write_text(text)
    (folder / "conffiles").write_text("/etc/fairgv/config.toml\n")
    for script in ("postinst", "prerm", "postrm"):
        put(DATA / script, folder / script, 0o755)
