"""What `doctor` says of a host, for hosts of every kind: each check is given a reading and asked for its verdict."""

import dataclasses
import errno
import stat
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from backend_host.doctor import confinement, daemon, device, domains, machine, memory, walls
from backend_host.doctor.confinement import AppArmorReading, SelinuxReading
from backend_host.doctor.daemon import DaemonReading, StateDirReading
from backend_host.doctor.device import DeviceReading, SpaceReading
from backend_host.doctor.domains import GuestsReading, Hook, LibvirtReading
from backend_host.doctor.machine import KvmReading, QemuReading
from backend_host.doctor.memory import MemlockReading, ShmReading, UserfaultfdReading
from backend_host.doctor.verdict import State, Verdict
from backend_host.doctor.walls import CgroupReading, TenantsReading
from backend_host.nvml.child import NO_PACKAGE
from backend_host.vm.region_file import RegionOwner
from backend_host.walls.settings import Finding

Case = tuple[Callable[..., Verdict], Any, str, str, str]
"""Check, reading, the verdict's state, and a part of its text and of its remedy."""
PLAIN, BELL = "ivshmem-plain", "ivshmem-doorbell"
GIB = 1 << 30
ROOM = ShmReading(8 * GIB, 4 * GIB, {"fairgv-a": GIB}, {}, GIB)
SOFT = DeviceReading("auto", "soft", ("softgpu",), why_soft="libcuda.so.1: it is not there")
CUDA = DeviceReading("auto", "cuda", ("H200", "H200"), "580.95.05")
LOADED = {
    "LoadState": "loaded",
    "ActiveState": "active",
    "UnitFileState": "enabled",
    "KillMode": "process",
    "Result": "success",
}
OURS = StateDirReading("/run/fairgv", 0, True, 0, stat.S_IFDIR | 0o711)
TENANTS = TenantsReading(True, (5000, 5009), {}, {}, [(0, 4294967294)])
RULE = "  /dev/shm/fairgv-* rw,\n"
LABEL = "system_u:object_r:svirt_image_t:s0"

MACHINES: list[Case] = [
    (machine.kvm, KvmReading(True, True), "pass", "makes virtual machines", ""),
    (machine.kvm, KvmReading(False, True), "fail", "no /dev/kvm", "modprobe kvm_intel"),
    (machine.kvm, KvmReading(False, False), "fail", "no virtualization", "firmware"),
    (machine.kvm, KvmReading(True, True, errno.EACCES, False), "warn", "Permission denied", "usermod -aG kvm"),
    (machine.kvm, KvmReading(True, True, errno.EPERM), "fail", "not permitted", "container"),
    (machine.kvm, KvmReading(True, False, errno.ENODEV), "fail", "No such device", "dmesg"),
    (machine.qemu, QemuReading(trouble="it is not installed"), "fail", "it is not installed", "qemu-system-x86"),
    (machine.qemu, QemuReading("7.2", frozenset()), "fail", "without ivshmem-plain", "<emulator>"),
    (
        machine.qemu,
        QemuReading("9.1", frozenset(), is_of_rhel=True),
        "fail",
        "RHEL and its relatives has no ivshmem",
        "Debian",
    ),
    (machine.qemu, QemuReading("7.2", frozenset({PLAIN})), "warn", "no ivshmem-doorbell", "--doorbell"),
    (machine.qemu, QemuReading("7.2", frozenset({PLAIN, BELL})), "pass", f"{PLAIN} and {BELL}", ""),
    (machine.qemu, QemuReading("7.2", frozenset({PLAIN, BELL, "fairgv-memory"})), "pass", "and fairgv-memory", ""),
    (domains.libvirt, LibvirtReading("u", version=9_000_001, regions={"a": 1}), "pass", "9.0.1 at u, domains: 0", ""),
    (domains.libvirt, LibvirtReading("u", qemu=RegionOwner(64, 104), us=0), "pass", "libvirt", ""),
    (domains.libvirt, LibvirtReading("u", qemu=RegionOwner(5, 104), us=5), "pass", "libvirt", ""),
    (
        domains.libvirt,
        LibvirtReading("u", qemu=RegionOwner(64, 104), us=5, groups=frozenset({5, 104})),
        "pass",
        "libvirt",
        "",
    ),
    (domains.libvirt, LibvirtReading("u", qemu=RegionOwner(64, 104), us=5), "fail", "runs as user 64", "in group 104"),
    (domains.libvirt, LibvirtReading("u", "No module", is_missing=True), "fail", "No module", "libvirt-python"),
    (domains.libvirt, LibvirtReading("u", "denied", is_denied=True), "fail", "denied", "usermod -aG libvirt"),
    (domains.libvirt, LibvirtReading("u", "no socket"), "fail", "u are not served: no socket", "systemctl"),
    (domains.hooks, [], "pass", "none", ""),
    (domains.hooks, [Hook("/h/qemu", True)], "pass", "/h/qemu", ""),
    (domains.hooks, [Hook("/h/daemon", True), Hook("/h/qemu", False)], "warn", "not run /h/qemu", "chmod +x /h/qemu"),
    (domains.guests, GuestsReading(False, "suspend"), "pass", "not enabled", ""),
    (domains.guests, GuestsReading(True, "shutdown"), "pass", "shuts domains down", ""),
    (domains.guests, GuestsReading(True, "suspend"), "warn", "would save", "ON_SHUTDOWN=shutdown"),
    (domains.guests, GuestsReading(True, ""), "warn", "would save", "ON_SHUTDOWN=shutdown"),
    (confinement.apparmor, AppArmorReading(False, ""), "pass", "does not confine", ""),
    (confinement.apparmor, AppArmorReading(True, "# /dev/shm/fairgv-* rw,"), "warn", "none that is attached", "local"),
    (confinement.apparmor, AppArmorReading(True, f"/dev/kvm rw,\n{RULE}"), "pass", "at any time", ""),
    (confinement.apparmor, AppArmorReading(True, "/dev/shm/fairgv-* r,"), "warn", "none that is attached", "rw,"),
    (confinement.selinux, SelinuxReading(False), "pass", "does not confine", ""),
    (confinement.selinux, SelinuxReading(True, False, True, {"/r": "tmpfs_t"}), "pass", "permissive", ""),
    (confinement.selinux, SelinuxReading(True, True, True, {"/r": LABEL}), "warn", "not tried", "ausearch"),
    (confinement.selinux, SelinuxReading(True, True, True, {"/r": ""}), "fail", "may not open /r", "chcon -t svirt"),
    (confinement.selinux, SelinuxReading(True, True, False, {}), "fail", "only root", "as root"),
]

DEVICES: list[Case] = [
    (device.device, CUDA, "pass", "2 x H200, NVIDIA's driver 580.95.05", ""),
    (device.device, dataclasses.replace(CUDA, driver="535.1.2"), "warn", "tried with 580", "580 or newer"),
    (device.device, SOFT, "warn", "as no GPU is served: libcuda.so.1: it is not there", 'device = "soft"'),
    (device.device, dataclasses.replace(SOFT, driver="580.1"), "warn", "on the CPU", "nvidia-smi"),
    (device.device, dataclasses.replace(SOFT, asked="soft"), "pass", "on the CPU", ""),
    (device.device, dataclasses.replace(SOFT, is_served=True), "pass", "on the CPU", ""),
    (device.device, DeviceReading("cuda", trouble="no device"), "fail", "no device", "install NVIDIA's driver"),
    (device.monitor, None, "pass", "only NVIDIA's devices", ""),
    (device.monitor, "", "pass", "NVML answers", ""),
    (device.monitor, "it hangs", "warn", "are unknown: it hangs", "libnvidia-ml.so.1: see nvidia-smi"),
    (device.monitor, NO_PACKAGE, "warn", "nvidia-ml-py is not installed", "-m pip install nvidia-ml-py"),
    (device.mps, [], "pass", "does not run", ""),
    (device.space, SpaceReading("off"), "pass", "each vGPU takes turns", ""),
    (device.space, SpaceReading("mps", ("", "")), "pass", "at the same time", ""),
    (
        device.space,
        SpaceReading("mps", ("", "no MPS here")),
        "warn",
        "take turns as all do: no MPS here",
        'space = "off"',
    ),
    (device.mps, [7, 8], "warn", "process 7, 8", "quit"),
]

MEMORY: list[Case] = [
    (memory.shm, ROOM, "pass", "4 GiB of 8 GiB free; regions have 1 GiB; room for 4 of 1 GiB", ""),
    (memory.shm, dataclasses.replace(ROOM, region_bytes=1 << 24), "pass", "room for 99+ of 16 MiB", ""),
    (memory.shm, dataclasses.replace(ROOM, to_come={"b": GIB}), "pass", "are off need 1 GiB; room for 3 of 1 GiB", ""),
    (memory.shm, dataclasses.replace(ROOM, to_come={"b": 4 * GIB}), "warn", "no room for another", "size=9217M"),
    (memory.shm, dataclasses.replace(ROOM, to_come={"b": 6 * GIB}), "fail", "need 6 GiB", "size=10241M"),
    (memory.shm, ShmReading(0, 0, {}, {}, GIB, "not there"), "fail", "not there", "mount -t tmpfs"),
    (memory.memlock, MemlockReading(-1, False, "qemu:///session", GIB), "pass", "any amount", ""),
    (memory.memlock, MemlockReading(0, True, "qemu:///session", GIB), "pass", "any amount", ""),
    (memory.memlock, MemlockReading(1 << 23, False, "qemu:///system", GIB), "pass", "8 MiB; FairGV locks none", ""),
    (
        memory.memlock,
        MemlockReading(1 << 23, False, "qemu:///session?socket=/s", GIB),
        "warn",
        "8 MiB, less",
        "limits.conf",
    ),
    (memory.memlock, MemlockReading(GIB, False, "qemu:///session", GIB), "pass", "1 GiB", ""),
    (memory.userfaultfd, UserfaultfdReading(False), "warn", "may not have it", "/dev/userfaultfd"),
    (memory.userfaultfd, UserfaultfdReading(True, 0xFFFF), "pass", "system calls", ""),
    (memory.userfaultfd, UserfaultfdReading(True, 0x0FFF), "warn", "too old", "5.19"),
]

DAEMONS: list[Case] = [
    (daemon.state_dir, OURS, "pass", "/run/fairgv, user 0, mode 711", ""),
    (daemon.state_dir, StateDirReading("/s", 5, is_there=False), "pass", "made at the start", ""),
    (daemon.state_dir, StateDirReading("/s", 5, trouble="no way"), "fail", "/s: no way", "--state-dir"),
    (daemon.state_dir, dataclasses.replace(OURS, mode=stat.S_IFREG | 0o600), "fail", "no directory", "remove"),
    (daemon.state_dir, dataclasses.replace(OURS, owner=9), "fail", "user 9, not 0", "chown 0 /run/fairgv"),
    (daemon.state_dir, dataclasses.replace(OURS, mode=stat.S_IFDIR | 0o775), "fail", "mode 775", "chmod go-w"),
    (daemon.daemon, DaemonReading(), "warn", "does not run", "fairgv-host start"),
    (
        daemon.daemon,
        DaemonReading(trouble="refused", has_socket=True),
        "warn",
        "does not answer: refused",
        "daemon.log",
    ),
    (
        daemon.daemon,
        DaemonReading({"pid": 7, "uptime_ns": 10**9, "vgpus": [1, 2]}),
        "pass",
        "process 7, up 1 s, vGPUs: 2",
        "",
    ),
    (
        daemon.daemon,
        DaemonReading({"pid": 7, "uptime_ns": 10**9, "vgpus": [], "waits_for": "3 programs are served"}),
        "warn",
        "vGPUs: 0; 3 programs are served",
        "fairgv-host stop",
    ),
    (
        daemon.daemon,
        DaemonReading(
            {"pid": 7, "uptime_ns": 10**9, "vgpus": [], "troubles": ["requests take all of it: give one less"]}
        ),
        "warn",
        "requests take all of it: give one less",
        "as it says there; settings that were mended hold after: fairgv-host reload",
    ),
    (daemon.unit, None, "pass", "systemd does not run", ""),
    (daemon.unit, {"Error": "no bus"}, "warn", "no bus", "systemctl status"),
    (daemon.unit, {"LoadState": "not-found", "ActiveState": "inactive"}, "warn", "(not-found)", "KillMode=process"),
    (daemon.unit, LOADED, "pass", "active, enabled", ""),
    (daemon.unit, {**LOADED, "ActiveState": "failed", "Result": "timeout"}, "fail", "(timeout)", "journalctl -u"),
    (daemon.unit, {**LOADED, "KillMode": "control-group"}, "warn", "KillMode=control-group", "systemctl edit"),
    (daemon.unit, {**LOADED, "UnitFileState": "disabled"}, "warn", "active, disabled", "enable --now"),
    (daemon.unit, {**LOADED, "ActiveState": "inactive"}, "warn", "inactive, enabled", "enable --now"),
]

TENANT_CASES: list[tuple[Mapping[str, Any], str, str]] = [
    ({}, "pass", "5000-5009, 0 of 10 given away"),
    ({"is_root": False, "taken": {"a": 5000}}, "pass", "needs none"),
    ({"taken": {"alice": 5003}}, "fail", "alice (5003)"),
    ({"mapped": [(0, 5008)]}, "fail", "not all ids of this user namespace"),
    ({"subordinate": {"/etc/subuid": [(0, 4999), (5009, 6000)]}}, "fail", "by /etc/subuid"),
    ({"subordinate": {"/etc/subuid": [(0, 4999), (5010, 6000)]}}, "pass", "5000-5009"),
    ({"nr_folders": 10}, "warn", "all 10 are given away"),
]


def said(verdict: Verdict) -> None:
    """Whoever has to do something is told what; nobody else is."""
    assert (verdict.remedy == "") == (verdict.state is State.PASS)
    assert verdict.text


@pytest.mark.parametrize(
    ("check", "reading", "state", "text", "remedy"),
    [*MACHINES, *DEVICES, *MEMORY, *DAEMONS],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_verdicts(check: Callable[[Any], Verdict], reading: Any, state: str, text: str, remedy: str) -> None:
    verdict = check(reading)
    said(verdict)
    assert verdict.state == state, verdict
    assert text in verdict.text
    assert remedy in verdict.remedy


def test_where_nvml_comes_from(tmp_path: Path) -> None:
    """The Python of a package's environment is the distribution's, whose modules it sees; a checkout's sees none but its own."""
    python = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    packaged = f"as root: {python} -m pip install --break-system-packages nvidia-ml-py"
    assert device.how_to_get_nvml(tmp_path) == packaged
    (tmp_path / "Makefile").touch()
    assert device.how_to_get_nvml(tmp_path) == f"{sys.executable} -m pip install nvidia-ml-py"


@pytest.mark.parametrize(("changes", "state", "text"), TENANT_CASES)
def test_users_of_tenants(changes: Mapping[str, Any], state: str, text: str) -> None:
    verdict = walls.tenants(dataclasses.replace(TENANTS, **changes), [])
    said(verdict)
    assert verdict.state == state
    excused = walls.tenants(dataclasses.replace(TENANTS, **changes), ["user"])
    assert excused.state == ("warn" if state == "fail" else state)
    assert text in verdict.text


def test_walls() -> None:
    missing = Finding("net", "it is used up", "more of it")
    verdicts = [walls.wall(Finding("net"), []), walls.wall(missing, ["net"]), walls.wall(missing, ["pid"])]
    for verdict in verdicts:
        said(verdict)
        assert verdict.check == "wall net"
    assert [verdict.state for verdict in verdicts] == ["pass", "warn", "fail"]
    assert "--allow-missing-wall net" in verdicts[-1].remedy


@pytest.mark.parametrize(
    ("reading", "excused", "state", "text"),
    [
        (CgroupReading(frozenset({"cpu", "memory", "pids", "io"})), [], "pass", "version 2 has memory, pids, cpu"),
        (CgroupReading(frozenset({"cpu"}), frozenset({"cpu", "memory", "pids"})), [], "pass", "version 1 has"),
        (CgroupReading(frozenset({"cpu", "pids"}), frozenset({"cpu"})), [], "fail", "version 2 lacks memory"),
        (CgroupReading(), ["cgroup"], "warn", "version 2 lacks cpu, memory, pids"),
    ],
)
def test_cgroups(reading: CgroupReading, excused: list[str], state: str, text: str) -> None:
    verdict = walls.cgroups(reading, excused)
    said(verdict)
    assert verdict.state == state
    assert text in verdict.text


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12\nGCC version:  gcc 12.2.0\n",
            "535.183.01",
        ),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (x@y)\n", "580.95.05"),
        ("something else 1.2 \n", ""),
    ],
)
def test_versions_of_the_driver(text: str, version: str) -> None:
    assert device.driver_version(text) == version


def test_ranges_of_others() -> None:
    text = "# alice:1:2\nalice:100000:65536\n1000:5000:1\nbob:7:0\nbroken:x:1\n"
    assert walls.subordinate_ranges(text) == [(100000, 165535), (5000, 5000)]
