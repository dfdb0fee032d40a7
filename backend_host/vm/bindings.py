"""Where libvirt's module for Python comes from, for a host that lacks it.

A package of FairGV has an environment of its own that sees the distribution's modules, where pip has no business. That of a checkout sees none
but its own: the module is built into it, against libvirt's headers.

Wrong when: the environment is another Python's than the distribution's, which packages are not made of.
"""

import shutil
import sys
from pathlib import Path

from backend_host.config import PACKAGE_ROOT


def how_to_get(root: Path = PACKAGE_ROOT, *, has_dnf: bool | None = None) -> str:
    """What to do, as a command or two. `root`: of this installation."""
    if has_dnf is None:
        has_dnf = shutil.which("dnf") is not None
    install = "dnf install" if has_dnf else "apt install"
    if not (root / "Makefile").exists():
        return f"{install} python3-libvirt"
    headers = (
        "gcc libvirt-devel pkgconf-pkg-config python3-devel" if has_dnf else "gcc libvirt-dev pkg-config python3-dev"
    )
    return f"{install} {headers}, then: {sys.executable} -m pip install libvirt-python"
