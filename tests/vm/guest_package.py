"""The guest package and the kernel module as files of a guest's image, and the ordinary user who is to profit from them."""

import re
import subprocess
from pathlib import Path, PurePosixPath

from backend_host.config import PACKAGE_ROOT

USER = "cuda"
MODULE = PurePosixPath("/fairgv.ko")


def prepare() -> str:
    """What root types in a guest that has been booted: a user, and the group that the installation would make."""
    return f"""\
mkdir -p /etc; echo root:x:0:0::/:/bin/sh >/etc/passwd; echo {USER}:x:1000:1000::/tmp:/bin/sh >>/etc/passwd; \
echo fairgv:x:500:{USER} >/etc/group"""


def module_for(release: str, folder: Path) -> Path:
    """Built with the headers of the distribution's kernel."""
    source = PACKAGE_ROOT / "frontend_guest/kmod"
    command = ["make", "-s", "-C", str(source), f"KERNEL={release}", f"BUILD={folder}"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    ours = {path.name for path in source.glob("*.[ch]")}
    assert not [name for name in ours if name in answer.stderr], answer.stderr  # no warning; others are the kernel's
    return folder / "fairgv.ko"


def package_files(folder: Path) -> dict[PurePosixPath, Path]:
    """What the package installs, and ldconfig, which a real system has."""
    build = PACKAGE_ROOT / "frontend_guest/package/build"
    subprocess.run([build, PACKAGE_ROOT / "build/guest", folder], check=True, capture_output=True)
    [package] = folder.glob("*.deb")
    tree = folder / "tree"
    subprocess.run(["dpkg-deb", "--extract", package, tree], check=True)
    found = {PurePosixPath("/") / path.relative_to(tree): path for path in tree.rglob("*") if path.is_file()}
    assert PurePosixPath("/usr/bin/fairgv-guest") in found
    return {
        **found,
        PurePosixPath("/bin/ldconfig"): Path("/sbin/ldconfig"),
        PurePosixPath("/sbin/ldconfig"): Path("/sbin/ldconfig"),
    }


def is_well(messages: str) -> bool:
    """Whether the kernel's messages have nothing that it says when a module has done wrong."""
    return not re.search(r"BUG|WARNING|Oops|Call Trace|refcount|list_del|Busy inodes", messages)
