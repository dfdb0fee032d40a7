"""Builds the disk-less guest that the demo and the tests boot: the host's kernel, busybox, and programs with their
libraries.

An initramfs in the kernel's `newc` format, written here because the format is a header of hexadecimal numbers per file
and that is less than driving the cpio program through a staging folder that would have to belong to root. It is not
compressed: QEMU copies it into the guest's memory in no time, and unpacking would be done by an emulated CPU.

The guest's init runs the commands one after another. Their output goes to the serial console between marker lines that
carry a token drawn for each image, so that nothing a program prints can be taken for a marker (`guest_output.py` reads
them).

Wrong when: a program opens further libraries by itself at run time (dlopen): ldd does not see them, name them in
`files`.
"""

import os
import re
import secrets
import shlex
import shutil
import stat
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from backend_host.vm.errors import VmError
from backend_host.vm.kernel import Kernel, find_kernel, read_modules

GUEST_LIBRARY_PATH = PurePosixPath("/usr/lib/x86_64-linux-gnu/libcuda.so.1")
PROGRAM_FOLDER = PurePosixPath("/programs")
MODULE_FOLDER = PurePosixPath("/modules")
IVSHMEM_VENDOR, IVSHMEM_DEVICE = 0x1AF4, 0x1110

# What is switched off costs an emulated CPU seconds; `panic=-1` ends a guest that failed instead of leaving it there. A kernel that checks its
# timer takes the time that an emulated CPU had to wait for a real one for a broken timer, and panics.
KERNEL_PARAMETERS = (
    "console=ttyS0 quiet loglevel=1 panic=-1 mitigations=off audit=0 random.trust_cpu=on no_timer_check"
    " cryptomgr.notests"
)

_INIT = """\
#!/bin/busybox sh
b=/bin/busybox
$b mount -t proc proc /proc
$b mount -t sysfs sys /sys
$b mount -t devtmpfs dev /dev 2>/dev/null
$b mkdir -p /dev/shm /tmp /run
$b mount -t tmpfs tmp /dev/shm
$b mount -t tmpfs tmp /tmp
for m in {modules}; do $b insmod $m; done
for d in /sys/bus/pci/devices/*; do
    read vendor < $d/vendor; read device < $d/device
    [ $vendor$device = {vendor:#06x}{device:#06x} ] && echo 1 > $d/enable
done
export PATH=/bin HOME=/tmp LD_LIBRARY_PATH={library_path}
echo
echo "{marker} ready"
{commands}
echo "{marker} done"
$b poweroff -f
"""


@dataclass(frozen=True)
class GuestCommand:
    """One command line that the guest runs. A `program` of the host is copied into the guest and prepended to
    `arguments`.

    Without one, the first argument names something that the guest has (`/bin/busybox`).
    """

    name: str
    program: Path | None = None
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    timeout_s: int = 240

    def argv(self) -> list[str]:
        """The command line as the guest runs it."""
        first = [str(PROGRAM_FOLDER / self.program.name)] if self.program else []
        return [*first, *self.arguments]


@dataclass(frozen=True)
class GuestImage:
    """What QEMU boots. `marker` begins each line by which the guest reports."""

    kernel: Path
    initramfs: Path
    kernel_parameters: str
    marker: str
    commands: tuple[GuestCommand, ...]


def build_image(
    folder: Path,
    commands: Sequence[GuestCommand] = (),
    files: Mapping[PurePosixPath, Path] | None = None,
    *,
    library_folders: Sequence[Path] = (),
    kernel: Kernel | None = None,
    copy_kernel: bool = True,
) -> GuestImage:
    """Writes `initramfs` (and a copy of the kernel, which may be readable for this user alone, unpacked where it can be) into `folder`.

    `files` are further files: where in the guest, from where on the host. `library_folders` is searched for libraries
    first. Raises VmError when busybox, a kernel, a program or one of its libraries is missing.
    """
    kernel = kernel or find_kernel()
    marker = f"@fairgv-{secrets.token_hex(8)}"
    content = _Content(dict(files or {}), library_folders)
    content.add_executable(PurePosixPath("/bin/busybox"), _find_busybox())
    content.archive.link(PurePosixPath("/bin/sh"), "busybox")
    for program in {command.program for command in commands if command.program}:
        content.add_executable(PROGRAM_FOLDER / program.name, program)
    modules = read_modules(kernel, kernel.needed_modules())
    for name, module in modules:
        content.archive.file(MODULE_FOLDER / name, module)
    init = _INIT.format(
        modules=" ".join(str(MODULE_FOLDER / name) for name, _ in modules),
        vendor=IVSHMEM_VENDOR,
        device=IVSHMEM_DEVICE,
        library_path=":".join(sorted(content.library_folders)),
        marker=marker,
        commands="\n".join(_command_lines(marker, number, command) for number, command in enumerate(commands)),
    )
    content.archive.file(PurePosixPath("/init"), init.encode(), is_executable=True)
    initramfs = folder / "initramfs.cpio"
    initramfs.write_bytes(content.archive.finish())
    image = kernel.image
    if copy_kernel:
        image = folder / "kernel"
        if unpacked := kernel.unpacked():
            image.write_bytes(unpacked)
        else:
            shutil.copyfile(kernel.image, image)
    return GuestImage(image, initramfs, KERNEL_PARAMETERS, marker, tuple(commands))


def _command_lines(marker: str, number: int, command: GuestCommand) -> str:
    environment = " ".join(f"{name}={shlex.quote(value)}" for name, value in command.environment.items())
    line = shlex.join(["/bin/busybox", "timeout", str(command.timeout_s), *command.argv()])
    return "\n".join(
        [
            f'echo "{marker} begin {number}"',
            f"{environment} {line} </dev/null 2>&1".strip(),
            f'$b printf "\\n{marker} end {number} %d\\n" $?',
        ]
    )


def _find_busybox() -> Path:
    for name in ("busybox", "busybox-static"):
        found = shutil.which(name, path="/usr/bin:/bin:/usr/sbin:/sbin")
        if found and _libraries(Path(found), ()) == {}:
            return Path(found)
    raise VmError("a statically linked busybox is needed for guests: install the package busybox-static")


def _libraries(program: Path, folders: Sequence[Path]) -> dict[str, Path | None]:
    """Libraries that the loader would map for an ELF file, by name; None for one that it does not find."""
    environment = dict(os.environ, LC_ALL="C", LD_LIBRARY_PATH=":".join(str(folder) for folder in folders))
    answer = subprocess.run(["ldd", str(program)], capture_output=True, text=True, env=environment, check=False)
    found: dict[str, Path | None] = {}
    for line in answer.stdout.splitlines():
        if match := re.match(r"\s+(\S+) => not found", line):
            found[match[1]] = None
        elif match := re.match(r"\s+(?:\S+ => )?(/\S+) \(0x", line):
            found[PurePosixPath(match[1]).name] = Path(match[1])
    return found


class _Content:
    """The guest's files, each with the libraries it needs. A library given by the caller wins over the host's of that
    name.
    """

    def __init__(self, files: dict[PurePosixPath, Path], library_folders: Sequence[Path]) -> None:
        self.archive = _Archive()
        self.library_folders = {"/lib", "/usr/lib"} | {str(path.parent) for path in files if ".so" in path.name}
        self._search = library_folders
        self._given = {path.name for path in files}
        for guest_path, host_path in files.items():
            self.add_executable(guest_path, host_path)

    def add_executable(self, guest_path: PurePosixPath, host_path: Path) -> None:
        try:
            content = host_path.read_bytes()
            is_executable = bool(host_path.stat().st_mode & stat.S_IXUSR)
        except OSError as error:
            raise VmError(f"the guest needs {host_path}, which cannot be read: {error.strerror}") from error
        self.archive.file(guest_path, content, is_executable=is_executable)
        if not content.startswith(b"\x7fELF"):
            return
        for name, library in _libraries(host_path, self._search).items():
            if name in self._given:
                continue
            if library is None:
                raise VmError(f"{host_path} needs {name}, which is not on this host: install it or give its folder")
            self.library_folders.add(str(library.parent))
            self.archive.file(PurePosixPath(library), library.read_bytes(), is_executable=True)


class _Archive:
    """A cpio archive in `newc` format (Documentation/driver-api/early-userspace/buffer-format.rst in Linux)."""

    def __init__(self) -> None:
        self._entries: list[bytes] = []
        self._names: set[PurePosixPath] = set()
        for name in ("/proc", "/sys", "/dev", "/tmp"):
            self._folder(PurePosixPath(name))
        # The kernel opens the console for init before anything mounts /dev.
        self._entry(PurePosixPath("/dev/console"), stat.S_IFCHR | 0o600, b"", device=(5, 1))

    def file(self, path: PurePosixPath, content: bytes, *, is_executable: bool = False) -> None:
        if path not in self._names:
            self._folder(path.parent)
            self._entry(path, stat.S_IFREG | (0o755 if is_executable else 0o644), content)

    def link(self, path: PurePosixPath, target: str) -> None:
        self._folder(path.parent)
        self._entry(path, stat.S_IFLNK | 0o777, target.encode())

    def finish(self) -> bytes:
        self._entry(PurePosixPath("/TRAILER!!!"), 0, b"")
        return b"".join(self._entries)

    def _folder(self, path: PurePosixPath) -> None:
        if path not in self._names and path != path.parent:
            self._folder(path.parent)
            self._entry(path, stat.S_IFDIR | 0o755, b"")

    def _entry(self, path: PurePosixPath, mode: int, content: bytes, device: tuple[int, int] = (0, 0)) -> None:
        self._names.add(path)
        name = str(path)[1:].encode() + b"\0"
        inode = len(self._entries) + 1
        numbers = (inode, mode, 0, 0, 1, 0, len(content), 0, 0, *device, len(name), 0)
        header = b"070701" + b"".join(b"%08X" % number for number in numbers)
        self._entries.append(_padded(header + name) + _padded(content))


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)
