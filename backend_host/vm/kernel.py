"""Finds a Linux kernel of this host that a small guest can boot, and the modules such a guest would miss.

The guest has no disk and no initramfs of the distribution: what is not built into the kernel must be carried along.
Distribution kernels build in all that is needed here; the few exceptions are known by their configuration symbol.

Wrong when: the host's kernel was built for another machine type than the guest's (x86-64 alone is handled).
"""

import gzip
import lzma
import os
import re
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zstandard

from backend_host.config import PACKAGE_ROOT
from backend_host.vm.errors import VmError

COPIES = PACKAGE_ROOT / "build/kernel"
KERNEL_VARIABLE = "FAIRGV_GUEST_KERNEL"
MUST_BE_BUILT_IN = (
    "BLK_DEV_INITRD",
    "BINFMT_ELF",
    "PROC_FS",
    "SYSFS",
    "TMPFS",
    "DEVTMPFS",
    "PCI",
    "SERIAL_8250_CONSOLE",
)
MAY_BE_MODULE = {"UNIX": "unix"}
ELF = b"\x7fELF"
PACKED_BY: Mapping[bytes, Callable[[], Any]] = {
    b"\xfd7zXZ": lzma.LZMADecompressor,
    b"\x1f\x8b": lambda: zlib.decompressobj(wbits=31),
    b"\x28\xb5\x2f\xfd": lambda: zstandard.ZstdDecompressor().decompressobj(),
}
"""How a kernel's image begins inside, to what unpacks it."""


@dataclass(frozen=True)
class Kernel:
    """A kernel image and its release, e.g. 6.1.0-56-amd64; `config` is empty where the distribution ships none."""

    image: Path
    release: str
    config: dict[str, str]
    modules_root: Path

    def missing_features(self) -> list[str]:
        """Configuration symbols without which a guest with nothing but an initramfs cannot run. Empty when unknown."""
        if not self.config:
            return []
        return [symbol for symbol in MUST_BE_BUILT_IN if self.config.get(symbol) != "y"]

    def needed_modules(self) -> list[str]:
        """Modules to carry along, because this kernel does not have them built in."""
        return [module for symbol, module in MAY_BE_MODULE.items() if self.config.get(symbol) == "m"]

    def unpacked(self) -> bytes | None:
        """
        The kernel as an ELF file, which QEMU enters without the image's own unpacking: an emulated CPU takes longer for that than for all the
        rest of a boot. None where this kernel cannot be entered so, or is packed in another way (Documentation/arch/x86/boot.rst in Linux).
        """
        image = self.image.read_bytes()
        if self.config.get("PVH") != "y" or image[0x202:0x206] != b"HdrS" or len(image) < 0x250:
            return None
        nr_sectors, (offset, nr_bytes) = image[0x1F1] or 4, struct.unpack_from("<II", image, 0x248)
        packed = image[(nr_sectors + 1) * 512 + offset :][:nr_bytes]
        for beginning, unpacker in PACKED_BY.items():
            if packed.startswith(beginning):
                content = bytes(unpacker().decompress(packed))
                return content if content.startswith(ELF) else None
        return None


def find_kernel(
    directories: Sequence[Path] = (Path("/boot"), COPIES), modules_root: Path = Path("/lib/modules")
) -> Kernel:
    """The newest kernel image that this user may read and that can boot from an initramfs alone.

    `FAIRGV_GUEST_KERNEL` names another image. Ubuntu keeps its images readable for root only: a copy in `build/kernel`
    does as well, and the error says how to make it.
    """
    named = os.environ.get(KERNEL_VARIABLE)
    images = [Path(named)] if named else [image for folder in directories for image in folder.glob("vmlinuz-*")]
    if not images:
        places = ", ".join(str(directory) for directory in directories)
        raise VmError(
            f"no Linux kernel for guests in {places}: install linux-image-amd64 (Debian), linux-image-generic (Ubuntu)"
        )
    images.sort(key=lambda image: _version_key(image.name), reverse=True)
    refused = []
    for image in images:
        if not os.access(image, os.R_OK):
            refused.append(f"{image} is not readable for this user (sudo install -Dm 0644 -t {COPIES} {image})")
            continue
        kernel = _describe(image, modules_root)
        missing = kernel.missing_features()
        if not missing:
            return kernel
        refused.append(f"{image} is built without {', '.join(missing)}")
    raise VmError(f"no usable Linux kernel for guests: {'; '.join(refused)}; or name another one in {KERNEL_VARIABLE}")


def read_modules(kernel: Kernel, names: Sequence[str]) -> list[tuple[str, bytes]]:
    """File name and content of each module, what it depends on first, unpacked and ready for insmod."""
    if not names:
        return []
    folder = kernel.modules_root / kernel.release
    try:
        lines = (folder / "modules.dep").read_text().splitlines()
    except OSError as error:
        raise VmError(
            f"the guest kernel needs modules ({', '.join(names)}) and {folder} is not readable: {error}"
        ) from error
    dependencies = {path: rest.split() for path, _, rest in (line.partition(":") for line in lines)}
    by_name = {_module_name(path): path for path in dependencies}
    ordered: dict[str, None] = {}
    for name in names:
        path = by_name.get(name.replace("-", "_"))
        if path is None:
            raise VmError(
                f"the kernel module {name} is not in {folder}: reinstall the package of kernel {kernel.release}"
            )
        for each in [*reversed(dependencies[path]), path]:
            ordered.setdefault(each)
    return [(f"{_module_name(path)}.ko", _unpack(folder / path)) for path in ordered]


def _describe(image: Path, modules_root: Path) -> Kernel:
    release = image.name.removeprefix("vmlinuz-")
    for place in (
        image.parent / f"config-{release}",
        Path(f"/boot/config-{release}"),
        modules_root / release / "config",
    ):
        if os.access(place, os.R_OK):
            return Kernel(image, release, _parse_config(place.read_text()), modules_root)
    return Kernel(image, release, {}, modules_root)


def _parse_config(text: str) -> dict[str, str]:
    return {match[1]: match[2] for match in re.finditer(r"^CONFIG_(\w+)=([ym])$", text, re.MULTILINE)}


def _version_key(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.findall(r"\d+|[^\d]+", name)]


def _module_name(path: str) -> str:
    return Path(path).name.split(".ko")[0].replace("-", "_")


def _unpack(path: Path) -> bytes:
    content = path.read_bytes()
    match path.suffix:
        case ".xz":
            return lzma.decompress(content)
        case ".gz":
            return gzip.decompress(content)
        case ".zst":
            return zstandard.ZstdDecompressor().stream_reader(content).read()
        case _:
            return content
