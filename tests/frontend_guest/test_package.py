"""The guest package's files, and `fairgv-guest check` where there is no device. A guest that has one is in tests/vm/test_kernel_module.py."""

import os
import re
import stat
import subprocess
import tarfile
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

from backend_host.config import PACKAGE_ROOT

BUILD = PACKAGE_ROOT / "frontend_guest/package/build"
LIBRARIES = PACKAGE_ROOT / "build/guest"
OLDEST_GLIBC = (2, 28)
TERMINAL = 80


def build(folder: Path) -> tuple[Path, Path]:
    subprocess.run([BUILD, LIBRARIES, folder], check=True, capture_output=True)
    [deb], [tar] = folder.glob("*.deb"), folder.glob("*.tar.gz")
    return deb, tar


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return build(tmp_path_factory.mktemp("package"))


@pytest.fixture(scope="module")
def tree(package: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The .deb's content, unpacked."""
    folder = tmp_path_factory.mktemp("tree")
    subprocess.run(["dpkg-deb", "--extract", package[0], folder], check=True)
    return folder


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_same_sources_give_the_same_bytes(package: tuple[Path, Path], tmp_path: Path) -> None:
    again = build(tmp_path)
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in package]


def test_both_have_the_same_files(package: tuple[Path, Path], tree: Path, tmp_path: Path) -> None:
    with tarfile.open(package[1]) as archive:
        archive.extractall(tmp_path, filter="data")
        assert {(member.uid, member.gid) for member in archive} == {(0, 0)}
    [top] = tmp_path.iterdir()
    assert files_of(top / "files") == files_of(tree)
    assert os.access(top / "install", os.X_OK)


def test_nothing_is_left_to_fill_in(tree: Path) -> None:
    texts = [text for text in files_of(tree).values() if not text.startswith(b"\x7fELF")]
    assert not any(b"@VERSION@" in text for text in texts)
    [source] = tree.glob("usr/src/fairgv-*")
    version = source.name.removeprefix("fairgv-")
    assert f'PACKAGE_VERSION="{version}"' in (source / "dkms.conf").read_text()
    assert f'MODULE_VERSION("{version}")' in (source / "module.c").read_text()


def test_nobody_but_root_can_write_what_is_installed(tree: Path) -> None:
    modes = {path: path.stat().st_mode for path in tree.rglob("*")}
    assert not [path for path, mode in modes.items() if mode & (stat.S_IWGRP | stat.S_IWOTH | stat.S_ISUID)]


@pytest.mark.parametrize("program", ["probe", "status"])
def test_programs_run_wherever_the_library_does(tree: Path, program: str) -> None:
    with (tree / "usr/lib/fairgv" / program).open("rb") as file:
        section = ELFFile(file).get_section_by_name(".gnu.version_r")
        assert isinstance(section, GNUVerNeedSection)
        names = [each.name for _, versions in section.iter_versions() for each in versions]
    versions = [tuple(map(int, name.removeprefix("GLIBC_").split("."))) for name in names]
    assert versions
    assert max(versions) <= OLDEST_GLIBC


@pytest.mark.parametrize("shell", ["sh", "busybox"])
def test_check_where_nothing_is_there(tree: Path, shell: str) -> None:
    """Of this machine, which is a host."""
    command = ["busybox", "sh"] if shell == "busybox" else ["sh"]
    answer = subprocess.run(
        [*command, tree / "usr/bin/fairgv-guest", "check"],
        env={"PATH": "/usr/bin:/bin", "FAIRGV_GUEST_FOLDER": str(tree / "usr/lib/fairgv")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (answer.returncode, answer.stderr) == (1, "")
    assert re.search("^missing:  this virtual machine has no shared memory device", answer.stdout, re.MULTILINE)
    assert "missing:  the GPU cannot be used" in answer.stdout
    assert "no FairGV device on the PCI bus" in answer.stdout
    assert "see what is missing above" in answer.stdout.splitlines()[-1]


def test_status_where_nothing_is_there(tree: Path) -> None:
    answer = subprocess.run(
        [tree / "usr/bin/fairgv-guest", "status"],
        env={"PATH": "/usr/bin:/bin", "FAIRGV_GUEST_FOLDER": str(tree / "usr/lib/fairgv")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (answer.returncode, answer.stdout) == (1, "")
    assert "no FairGV device on the PCI bus" in answer.stderr


def test_what_it_does_not_know_it_explains(tree: Path) -> None:
    answer = subprocess.run([tree / "usr/bin/fairgv-guest", "chekc"], capture_output=True, text=True, check=False)
    assert answer.returncode == 2
    assert answer.stderr.startswith("fairgv-guest: there is no command chekc\n")
    assert "fairgv-guest check" in answer.stderr


@pytest.mark.parametrize("words", [[], ["check", "all"]])
def test_too_few_words_and_too_many(tree: Path, words: list[str]) -> None:
    answer = subprocess.run([tree / "usr/bin/fairgv-guest", *words], capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert "fairgv-guest check" in answer.stderr


@pytest.mark.parametrize(
    ("option", "said"), [("--help", "fairgv-guest module [KERNEL]"), ("--version", "fairgv-guest 0")]
)
def test_what_is_asked_for_is_no_mistake(tree: Path, option: str, said: str) -> None:
    answer = subprocess.run([tree / "usr/bin/fairgv-guest", option], capture_output=True, text=True, check=True)
    assert said in answer.stdout
    assert all(len(line) <= TERMINAL for line in answer.stdout.splitlines())
    assert answer.stderr == ""


def test_a_package_that_is_not_whole(tree: Path, tmp_path: Path) -> None:
    answer = subprocess.run(
        [tree / "usr/bin/fairgv-guest", "status"],
        env={**os.environ, "FAIRGV_GUEST_FOLDER": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (answer.returncode, answer.stdout) == (1, "")
    assert answer.stderr == f"fairgv-guest: {tmp_path}/status is missing: install this package again\n"


@pytest.mark.parametrize("name", ["fairgv-guest", "setup", "install", "build"])
def test_scripts_are_posix(name: str) -> None:
    """dash, which is what /bin/sh is on Debian and Ubuntu, reads them."""
    script = PACKAGE_ROOT / "frontend_guest/package" / name
    assert script.read_text().startswith("#!/bin/sh\n")
    subprocess.run(["sh", "-n", script], check=True)
