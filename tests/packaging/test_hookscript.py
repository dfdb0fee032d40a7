"""Proxmox's hookscript: what it asks the daemon for, by a configuration as `qm config` prints it. `qm` and `fairgv-host` are recorders here."""

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

HOOK = Path(__file__).resolve().parents[2] / "packaging/proxmox/fairgv-hookscript"
MIB = 32
VMID = str(700_000 + os.getpid())
FILE = Path(f"/dev/shm/pve-shm-{VMID}")
CONFIG = "boot: order=scsi0\ncores: 2\nivshmem: {ivshmem}\nmemory: 2048\nname: web\ntags: {tags}\n"


@dataclass
class Proxmox:
    """A host with one machine."""

    folder: Path

    def configure(self, ivshmem: str = f"size={MIB}", tags: str = "prod") -> None:
        self.write("qm", f'[ "$*" = "config {VMID}" ] && cat "{self.folder}/config"')
        (self.folder / "config").write_text(CONFIG.format(ivshmem=ivshmem, tags=tags))

    def write(self, name: str, line: str, status: int = 0) -> None:
        tool = self.folder / name
        tool.write_text(f"#!/bin/sh\n{line}\nexit {status}\n")
        tool.chmod(0o755)

    def hook(self, phase: str, *, status: int = 0) -> tuple[list[str], str]:
        """What it called, and what it said; it always succeeds."""
        calls = self.folder / "calls"
        calls.write_text("")
        self.write("fairgv-host", f'echo "$*" >>"{calls}"', status)
        environment = {"PATH": f"{self.folder}:/usr/bin:/bin"}
        done = subprocess.run(
            ["/bin/sh", HOOK, VMID, phase], env=environment, capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, "a machine starts and stops whatever we say"
        return calls.read_text().splitlines(), done.stderr


@pytest.fixture
def proxmox(tmp_path: Path) -> Iterator[Proxmox]:
    proxmox = Proxmox(tmp_path)
    proxmox.configure()
    yield proxmox
    FILE.unlink(missing_ok=True)


def test_a_machine_has_its_vgpu_before_it_starts(proxmox: Proxmox) -> None:
    calls, said = proxmox.hook("pre-start")
    assert calls == [f"detach vm{VMID}", f"attach --shm {FILE} vm{VMID}"]
    assert said == ""
    status = FILE.stat()
    assert (status.st_size, status.st_mode & 0o777) == (MIB << 20, 0o600), "QEMU takes it as it is"
    assert proxmox.hook("pre-start")[0] == calls, "after a start that failed"
    assert proxmox.hook("post-stop") == ([f"detach vm{VMID}"], "")


@pytest.mark.parametrize("phase", ["post-start", "pre-stop", "something-new"])
def test_other_phases(proxmox: Proxmox, phase: str) -> None:
    assert proxmox.hook(phase) == ([], "")


def test_tags_are_options(proxmox: Proxmox) -> None:
    proxmox.configure(
        tags="fairgv-weight-2;prod;fairgv-memory-4g;fairgv-limit-50.5;fairgv-doorbell-1;x-fairgv-weight-9"
    )
    calls, _ = proxmox.hook("pre-start")
    assert calls[-1] == f"attach --shm {FILE} vm{VMID} --weight=2 --memory=4g --limit=50.5"


def test_a_name_of_its_own(proxmox: Proxmox) -> None:
    name = f"test-{VMID}"
    path = FILE.with_name(f"pve-shm-{name}")
    proxmox.configure(ivshmem=f"size={MIB},name={name}")
    try:
        assert proxmox.hook("pre-start")[0][-1] == f"attach --shm {path} vm{VMID}"
        assert path.exists()
    finally:
        path.unlink(missing_ok=True)


def test_a_machine_without_shared_memory(proxmox: Proxmox) -> None:
    (proxmox.folder / "config").write_text("cores: 2\n")
    calls, said = proxmox.hook("pre-start")
    assert calls == []
    assert f"qm set {VMID} -ivshmem size=256" in said


def test_without_a_daemon_it_starts_all_the_same(proxmox: Proxmox) -> None:
    _, said = proxmox.hook("pre-start", status=1)
    assert "starts without a GPU" in said


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_that_somebody_else_put_there(proxmox: Proxmox) -> None:
    FILE.touch()
    os.chown(FILE, 65534, 65534)
    calls, said = proxmox.hook("pre-start")
    assert calls == []
    assert "somebody else's" in said


def test_a_link_that_somebody_put_there(proxmox: Proxmox, tmp_path: Path) -> None:
    for target in (tmp_path / "nothing", tmp_path / "config"):
        FILE.symlink_to(target)
        assert proxmox.hook("pre-start")[0] == []
        assert not (tmp_path / "nothing").exists()
        FILE.unlink()


def test_it_is_posix() -> None:
    subprocess.run(["sh", "-n", HOOK], check=True)
    assert HOOK.stat().st_mode & 0o111
