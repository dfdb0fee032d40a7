"""The .debs of `make packages`, and the same under a higher version: what an upgrade installs."""

import re
import subprocess
import tomllib
from pathlib import Path

from backend_host.config import PACKAGE_ROOT

FOLDER = PACKAGE_ROOT / "build/packages"
VERSION = tomllib.loads((PACKAGE_ROOT / "pyproject.toml").read_text())["project"]["version"]
HOST = FOLDER / f"fairgv-host_{VERSION}_amd64.deb"
GUEST = FOLDER / f"fairgv-guest_{VERSION}_amd64.deb"
LATER = f"{VERSION}.1"


def depends(deb: Path) -> tuple[str, ...]:
    """Names of the packages that it cannot do without, and of what the software device links with, which it recommends."""
    said = subprocess.run(["dpkg-deb", "--field", deb, "Depends"], capture_output=True, text=True, check=True).stdout
    return (*(re.split(r"[ (|]", each.strip())[0] for each in said.split(",")), "binutils", "libc6-dev")


def as_later(deb: Path, folder: Path) -> Path:
    """Writes the package as one of LATER: its control file says so, and so do its commands."""
    tree = folder / "later"
    subprocess.run(["dpkg-deb", "--raw-extract", deb, tree], check=True)
    control = tree / "DEBIAN/control"
    control.write_text(control.read_text().replace(f"\nVersion: {VERSION}\n", f"\nVersion: {LATER}\n"))
    for about in tree.glob(f"usr/lib/fairgv/.venv/lib/*/site-packages/fairgv-{VERSION}.dist-info"):
        metadata = about / "METADATA"
        metadata.write_text(metadata.read_text().replace(f"Version: {VERSION}\n", f"Version: {LATER}\n"))
        about.rename(about.with_name(f"fairgv-{LATER}.dist-info"))
    later = folder / deb.name.replace(VERSION, LATER)
    subprocess.run(
        ["dpkg-deb", "--root-owner-group", "-Znone", "--build", tree, later], check=True, capture_output=True
    )
    return later
