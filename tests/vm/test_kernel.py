"""Which kernel is taken, and what is said when none can be."""

import gzip
import lzma
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard

from backend_host.vm.errors import VmError
from backend_host.vm.kernel import ELF, KERNEL_VARIABLE, MUST_BE_BUILT_IN, Kernel, find_kernel, read_modules


@pytest.fixture(autouse=True)
def no_named_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KERNEL_VARIABLE, raising=False)


def make_kernel(folder: Path, release: str, *, without: str = "", unix: str = "y") -> Path:
    image = folder / f"vmlinuz-{release}"
    image.write_bytes(b"kernel")
    lines = [f"CONFIG_{symbol}={'n' if symbol == without else 'y'}" for symbol in MUST_BE_BUILT_IN]
    (folder / f"config-{release}").write_text("\n".join([*lines, f"CONFIG_UNIX={unix}", "# CONFIG_X is not set"]))
    return image


def make_image(folder: Path, packed: bytes, config: dict[str, str]) -> Kernel:
    """With two sectors of setup, and what is packed 16 bytes behind them."""
    head = bytearray(3 * 512 + 16)
    head[0x1F1], head[0x202:0x206] = 2, b"HdrS"
    struct.pack_into("<II", head, 0x248, 16, len(packed))
    image = folder / "image"
    image.write_bytes(bytes(head) + packed + b"behind it")
    return Kernel(image, "6.1.0", config, folder)


def test_newest_by_number(tmp_path: Path) -> None:
    for release in ("6.1.0-9-amd64", "6.1.0-56-amd64", "5.10.0-99-amd64"):
        make_kernel(tmp_path, release)
    assert find_kernel([tmp_path]).release == "6.1.0-56-amd64"


def test_unusable_ones_are_passed_over(tmp_path: Path) -> None:
    make_kernel(tmp_path, "6.1.0")
    make_kernel(tmp_path, "6.5.0", without="SERIAL_8250_CONSOLE")
    assert find_kernel([tmp_path]).release == "6.1.0"


def test_named_kernel_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_kernel(tmp_path, "6.1.0")
    named = tmp_path / "mine"
    named.write_bytes(b"kernel")
    monkeypatch.setenv(KERNEL_VARIABLE, str(named))
    assert find_kernel([tmp_path]).image == named


@pytest.mark.parametrize("pack", [lzma.compress, gzip.compress, zstandard.compress])
def test_what_an_image_holds(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    kernel = make_image(tmp_path, pack(ELF + b"the kernel") + b"size", config={"PVH": "y"})
    assert kernel.unpacked() == ELF + b"the kernel"
    assert replace(kernel, config={}).unpacked() is None, "it has no other way in"
    assert make_image(tmp_path, pack(b"no kernel"), config={"PVH": "y"}).unpacked() is None


def test_what_is_packed_otherwise_is_left_as_it_is(tmp_path: Path) -> None:
    assert make_image(tmp_path, b"\x02!L\x18" + ELF, config={"PVH": "y"}).unpacked() is None
    assert Kernel(make_kernel(tmp_path, "6.1.0"), "6.1.0", {"PVH": "y"}, tmp_path).unpacked() is None


def test_refusals_name_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(VmError, match="install linux-image-amd64"):
        find_kernel([tmp_path])
    image = make_kernel(tmp_path, "6.1.0", without="DEVTMPFS")
    with pytest.raises(VmError, match=r"is built without DEVTMPFS.*FAIRGV_GUEST_KERNEL"):
        find_kernel([tmp_path])
    monkeypatch.setattr("os.access", lambda path, _mode: path != image)
    with pytest.raises(VmError, match=r"not readable.*sudo install"):
        find_kernel([tmp_path])


def test_modules_come_in_order(tmp_path: Path) -> None:
    make_kernel(tmp_path, "6.1.0", unix="m")
    kernel = find_kernel([tmp_path], tmp_path)
    assert kernel.needed_modules() == ["unix"]
    folder = tmp_path / "6.1.0"
    folder.mkdir()
    (folder / "modules.dep").write_text(
        "net/unix.ko: net/scm-core.ko net/base.ko\nnet/scm-core.ko: net/base.ko\nnet/base.ko:\n"
    )
    (folder / "net").mkdir()
    for name in ("unix", "scm-core", "base"):
        (folder / f"net/{name}.ko").write_text(name)
    modules = read_modules(kernel, ["unix"])
    assert modules == [("base.ko", b"base"), ("scm_core.ko", b"scm-core"), ("unix.ko", b"unix")]
    with pytest.raises(VmError, match="fairgv is not in"):
        read_modules(kernel, ["fairgv"])
