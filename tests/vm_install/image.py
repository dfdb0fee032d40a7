"""The disk of a fresh Debian that a test boots: what mmdebstrap makes of this host's sources of packages, a shell on the console, and files.

The base is made once, with what our packages depend on, and kept in build/vm-install until its list changes: the machine has no network, so apt
installs there from files alone. The kernel is the host's, as in all guests of tests. It has its drivers of disks as modules, so a small
initramfs loads those and goes on to systemd.

Wrong when: the host's distribution is another one than Debian, or /tmp has not room for three copies of the base (600 MB each).
"""

import hashlib
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath

from backend_host.config import PACKAGE_ROOT
from backend_host.vm.initramfs import KERNEL_PARAMETERS, GuestCommand, GuestImage, build_image
from backend_host.vm.kernel import find_kernel, read_modules

CACHE = PACKAGE_ROOT / "build/vm-install"
ALWAYS = ("busybox-static", "dbus", "systemd-sysv", "util-linux")
MODULES = ("virtio_pci", "virtio_blk", "crc32c_generic", "ext4")
DISK_BYTES = 2 << 30
_AGENT = """\
[Unit]
Description=The console, for a test

[Service]
ExecStart=/bin/busybox sh /usr/lib/test-agent
Environment=HOME=/root LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin
KillMode=process

[Install]
WantedBy=multi-user.target
"""
_SWITCH = """\
#!/bin/busybox sh
b=/bin/busybox
$b mount -t devtmpfs dev /dev
for m in {modules}; do $b insmod /disk/$m; done
$b mkdir -p /root
$b mount -t ext4 /dev/vda /root
$b umount /dev
exec $b switch_root /root /sbin/init
"""
_SWITCH_PLACE = PurePosixPath("/switch")
_NO_GETTY = "systemd.mask=serial-getty@ttyS0.service"
"""The console is the test's."""


def codename() -> str:
    """Of the release that this host has."""
    [found] = re.findall(r"^VERSION_CODENAME=(\w+)$", Path("/etc/os-release").read_text(), re.MULTILINE)
    return str(found)


def sources() -> str:
    """Where this host's apt has Debian's packages of its release from, whatever else it asks."""
    form = "deb $(REPO_URI) $(RELEASE) $(COMPONENT)"
    command = ["apt-get", "indextargets", "--format", form, "Identifier: Packages", "Origin: Debian"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return "".join(f"{line}\n" for line in sorted(set(lines)))


def make_base(packages: tuple[str, ...]) -> Path:
    """A tar file of a fresh system with these packages, and no list of what else there is."""
    names = sorted({*ALWAYS, *packages})
    said = sources()
    mark = hashlib.sha256("\n".join([said, *names]).encode()).hexdigest()[:16]
    base = CACHE / f"base-{mark}.tar"
    if not base.exists():
        shutil.rmtree(CACHE, ignore_errors=True)
        CACHE.mkdir(parents=True)
        unfinished = CACHE / "unfinished.tar"
        command = ["mmdebstrap", "--quiet", "--mode=root", "--variant=minbase", f"--include={','.join(names)}"]
        subprocess.run([*command, codename(), str(unfinished), "-"], input=said, text=True, check=True)
        unfinished.rename(base)
    return base


def make_disk(base: Path, folder: Path, files: Mapping[PurePosixPath, Path], command: GuestCommand) -> GuestImage:
    """Writes `disk.img` and what boots it into `folder`. `command` is what the console runs, and all of the image's."""
    tree = folder / "tree"
    tree.mkdir()
    subprocess.run(["tar", "--extract", "--numeric-owner", "-f", base, "-C", tree], check=True)
    for place, source in files.items():
        target = tree / place.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
    image = _boot(folder, command)
    _put_agent(tree, image)
    make = ["mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", "-d", str(tree), str(folder / "disk.img")]
    subprocess.run([*make, f"{DISK_BYTES >> 20}M"], check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(tree)
    return image


def _put_agent(tree: Path, image: GuestImage) -> None:
    """A service that reports as the init of `initramfs.py` does, and then is the shell that the test types into."""
    [command] = image.commands
    script = command.arguments[-1]
    marks = "".join(f'echo; echo "{image.marker} {word}"\n' for word in ("ready", "begin 0"))
    (tree / "usr/lib/test-agent").write_text(f"exec >/dev/console 2>&1 </dev/null\n{marks}{script}")
    units = tree / "etc/systemd/system"
    (units / "test-agent.service").write_text(_AGENT)
    (units / "multi-user.target.wants").mkdir(exist_ok=True)
    (units / "multi-user.target.wants/test-agent.service").symlink_to("../test-agent.service")
    (tree / "etc/hostname").write_text("host\n")


def _boot(folder: Path, command: GuestCommand) -> GuestImage:
    kernel = find_kernel()
    modules = read_modules(kernel, MODULES)
    switch = folder / "switch"
    switch.write_text(_SWITCH.format(modules=" ".join(name for name, _ in modules)))
    switch.chmod(0o755)
    files = {_SWITCH_PLACE: switch}
    for name, content in modules:
        (folder / name).write_bytes(content)
        files[PurePosixPath("/disk") / name] = folder / name
    image = build_image(folder, [command], files, kernel=kernel)
    parameters = f"{KERNEL_PARAMETERS} rdinit={_SWITCH_PLACE} systemd.show_status=false {_NO_GETTY}"
    return replace(image, kernel_parameters=parameters)
