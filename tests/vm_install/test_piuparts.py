"""Both .debs through piuparts: installed, upgraded from the version before, removed and purged in a fresh Debian, where nothing stays.

No systemd runs there, as in an image that is being made. The version before is the package itself: what is upgraded to has a higher version.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.vm_install.image import codename, make_base
from tests.vm_install.packages import GUEST, HOST, as_later, depends

pytestmark = [
    pytest.mark.install,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(os.geteuid() != 0, reason="piuparts runs as root alone"),
]


def make_repository(deb: Path, folder: Path) -> Path:
    """A folder that apt takes the package from."""
    folder.mkdir()
    shutil.copy(deb, folder)
    listing = subprocess.run(["dpkg-scanpackages", "."], cwd=folder, capture_output=True, text=True, check=True)
    (folder / "Packages").write_text(listing.stdout)
    return folder


def make_chroot(repository: Path, folder: Path) -> Path:
    """A fresh system that knows this one place of packages, and no network."""
    folder.mkdir()
    base = make_base(depends(HOST))
    subprocess.run(["tar", "--extract", "--numeric-owner", "-f", base, "-C", folder], check=True)
    (folder / "etc/apt/sources.list").write_text(f"deb [trusted=yes] file:{repository} ./\n")
    return folder


@pytest.mark.parametrize("deb", [HOST, GUEST], ids=["host", "guest"])
def test_it_comes_and_is_upgraded_and_goes(deb: Path, tmp_path: Path) -> None:
    repository = make_repository(deb, tmp_path / "repository")
    chroot = make_chroot(repository, tmp_path / "chroot")
    options = ["--no-eatmydata", "--keep-sources-list", "--skip-minimize", f"--bindmount={repository}"]
    done = subprocess.run(
        ["piuparts", *options, f"--existing-chroot={chroot}", f"--distribution={codename()}", as_later(deb, tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-8000:]
    assert "PASS: Installation and purging test." in said
    assert "PASS: Installation, upgrade and purging tests." in said
