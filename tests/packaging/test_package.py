"""The packages that `make packages` made. Their content, and the host's as dpkg installs it: it serves programs, without the sources, and goes.

dpkg runs on this machine's own file system, of which a namespace sees all and changes nothing: what is written goes to memory. `/run` and
`/dev/shm` are empty there, so that no other daemon is met; the checkout is hidden.
"""

import os
import re
import shutil
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from backend_host.config import PACKAGE_ROOT
from tests.end_to_end.host import WALLS

VERSION = tomllib.loads((PACKAGE_ROOT / "pyproject.toml").read_text())["project"]["version"]
HOST = PACKAGE_ROOT / f"build/packages/fairgv-host_{VERSION}_amd64.deb"
GUEST = PACKAGE_ROOT / f"build/packages/fairgv-guest_{VERSION}_amd64.deb"
PROGRAM = PACKAGE_ROOT / "build/programs/vector_add"
COMMANDS = ("fairgv-host", "fairgv-run", "fairgv-sim")
FILES = {
    "etc/fairgv/config.toml",
    "usr/lib/systemd/system/fairgv-nvidia.service",
    "usr/lib/systemd/system/fairgv.service",
    "usr/lib/systemd/system/fairgv.socket",
    "usr/lib/sysusers.d/fairgv.conf",
    "usr/share/doc/fairgv-host/CHANGELOG.md.gz",
    "usr/share/doc/fairgv-host/changelog.gz",
    "usr/share/doc/fairgv-host/copyright",
    "usr/share/fairgv/dashboards/alerts.yaml",
    "usr/share/fairgv/dashboards/hosts.json",
    "usr/share/fairgv/dashboards/vgpu.json",
    "usr/share/fairgv/proxmox/fairgv-hookscript",
    "usr/share/lintian/overrides/fairgv-host",
    "usr/share/man/man5/fairgv.toml.5.gz",
    *(f"usr/bin/{name}" for name in COMMANDS),
    *(f"usr/share/bash-completion/completions/{name}" for name in COMMANDS),
    *(f"usr/share/fish/vendor_completions.d/{name}.fish" for name in COMMANDS),
    *(f"usr/share/man/man1/{name}.1.gz" for name in COMMANDS),
    *(f"usr/share/zsh/vendor-completions/_{name}" for name in COMMANDS),
}
READ = {f"cuda_api/include/cuda_api/{name}.h" for name in ("device_attributes", "enums", "results")}
"""Headers that the daemon reads."""
FOLDERS = ("usr/lib/fairgv/", "usr/share/doc/fairgv-host/docs/")
"""All that is elsewhere is in FILES."""
LIMIT_S = 280
NAMESPACE = """
set -e
memory=$(mktemp -d)
mount -t tmpfs tmpfs "$memory"
for folder in usr etc var; do
    mkdir -p "$memory/$folder/upper" "$memory/$folder/work"
    mount -t overlay overlay -o "lowerdir=/$folder,upperdir=$memory/$folder/upper,workdir=$memory/$folder/work" "/$folder"
done
for folder in /run /dev/shm; do
    mount -t tmpfs -o mode=1777 tmpfs "$folder"
done
dpkg --install "$PACKAGE" >"$memory/said" 2>&1 || { cat "$memory/said"; exit 1; }
mount -t tmpfs tmpfs "$CHECKOUT"
cd /
"""
pytestmark = [
    pytest.mark.package,
    pytest.mark.skipif(not HOST.exists() or not GUEST.exists(), reason="make packages has made none"),
]


def dpkg_deb(*arguments: str | Path) -> str:
    return subprocess.run(["dpkg-deb", *arguments], capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The host's package, unpacked."""
    folder = tmp_path_factory.mktemp("tree")
    dpkg_deb("--extract", HOST, folder)
    return folder


def files_of(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]


def test_what_is_where(tree: Path) -> None:
    outside = {str(path.relative_to(tree)) for path in files_of(tree)}
    assert {name for name in outside if not name.startswith(FOLDERS)} == FILES
    code = tree / "usr/lib/fairgv"
    assert str((code / ".venv/bin/python").readlink()) == f"../../../../bin/python3.{sys.version_info.minor}"
    [modules] = {path.suffix for path in code.rglob("_worker.*")} - {".pyc"}
    assert modules == ".so"
    ours = [path.relative_to(code) for path in files_of(code) if ".venv" not in path.parts]
    assert {str(path) for path in ours if path.suffix in (".c", ".h", ".o")} == READ


def test_nothing_tells_of_the_machine_that_built_it(tree: Path) -> None:
    places = [f"{PACKAGE_ROOT}/".encode(), f"{sys.base_prefix}/".encode()]
    told = [path for path in files_of(tree) if any(place in path.read_bytes() for place in places if place != b"/usr/")]
    assert told == []


def test_it_is_root_s_to_write(tree: Path) -> None:
    modes = {path: path.lstat().st_mode for path in tree.rglob("*") if not path.is_symlink()}
    assert [path for path, mode in modes.items() if mode & (stat.S_IWGRP | stat.S_IWOTH | stat.S_ISUID)] == []
    assert [path for path, mode in modes.items() if not mode & stat.S_IROTH] == []
    lines = dpkg_deb("--contents", HOST).splitlines()
    assert {line.split()[1] for line in lines} == {"root/root"}


def test_what_it_depends_on() -> None:
    depends = dpkg_deb("--field", HOST, "Depends")
    names = {re.split(r"[ (]", each.strip())[0] for each in depends.split(",")}
    assert names >= {f"python3.{sys.version_info.minor}", "systemd", "libc6"}
    assert "@" not in dpkg_deb("--field", HOST).replace("fairgv@localhost", "")
    assert dpkg_deb("--info", HOST, "conffiles") == "/etc/fairgv/config.toml\n"


def test_the_guest_s_is_one_too() -> None:
    assert dpkg_deb("--field", GUEST, "Package", "Version").splitlines() == [
        "Package: fairgv-guest",
        f"Version: {VERSION}",
    ]


def installed(steps: str, tmp_path: Path) -> str:
    """What the steps say, in a shell of a namespace where the package is installed."""
    if os.geteuid() != 0:
        pytest.skip("dpkg installs as root alone")
    shutil.copy(PROGRAM, tmp_path / "program")
    shutil.copy(HOST, tmp_path / "host.deb")
    environment = {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "DEBIAN_FRONTEND": "noninteractive",
        "PACKAGE": str(tmp_path / "host.deb"),
        "PROGRAM": str(tmp_path / "program"),
        "CHECKOUT": str(PACKAGE_ROOT),
        "START": " ".join(["--device", "soft", *(f"--allow-missing-wall={wall}" for wall in WALLS.allow_missing)]),
    }
    command = ["unshare", "--mount", "--net", "--ipc", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c"]
    done = subprocess.run(
        [*command, NAMESPACE + steps],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_the_system_s_daemon_serves_a_program(tmp_path: Path) -> None:
    """With the file that the package brings, in the places of a daemon of root."""
    said = installed(
        """
        fairgv-host --version
        fairgv-host config check /etc/fairgv/config.toml
        sed -i '1i metrics = "127.0.0.1:9400"' /etc/fairgv/config.toml
        ip link set lo up
        fairgv-host start --config /etc/fairgv/config.toml $START
        fairgv-run -- "$PROGRAM"
        curl -s 127.0.0.1:9400/metrics | grep ^fairgv_build_info
        fairgv-host list
        fairgv-host config show
        fairgv-host stop
        """,
        tmp_path,
    )
    assert f"fairgv-host {VERSION}\n" in said
    assert "all 0 keys are right" in said
    assert " 0 wrong\n" in said
    assert f'fairgv_build_info{{version="{VERSION}"' in said
    assert '"/usr/lib/fairgv/build/softgpu/libcuda.so.1"' in said


def test_a_private_daemon_serves_a_program(tmp_path: Path) -> None:
    assert " 0 wrong\n" in installed('fairgv-run --private --device soft -- "$PROGRAM"', tmp_path)


def test_the_groups_are_there_and_a_purge_leaves_nothing_else(tmp_path: Path) -> None:
    said = installed(
        """
        fairgv-sim --help >/dev/null
        getent group fairgv fairgv-admin | cut -d : -f 1
        echo "nr_warm_workers = 2" >/etc/fairgv/config.toml
        dpkg --install "$PACKAGE" >/dev/null
        cat /etc/fairgv/config.toml
        dpkg --remove fairgv-host >/dev/null
        ls /etc/fairgv
        [ ! -e /usr/lib/fairgv ]
        dpkg --purge fairgv-host >/dev/null
        find /usr /etc /var -xdev -name '*fairgv*' -not -path '*/deb-systemd-helper*'
        """,
        tmp_path,
    )
    assert said.splitlines() == ["fairgv", "fairgv-admin", "nr_warm_workers = 2", "config.toml"]
