"""The image of a guest: what is in it, and that it runs programs and tells how they ended."""

import subprocess
from pathlib import Path, PurePosixPath

import pytest

from backend_host.vm.accelerator import AcceleratorChoice
from backend_host.vm.errors import VmError
from backend_host.vm.guest import Guest, follow_guests
from backend_host.vm.initramfs import GUEST_LIBRARY_PATH, GuestCommand, build_image
from backend_host.vm.kernel import find_kernel
from backend_host.vm.private_libvirt import PrivateLibvirt

pytestmark = pytest.mark.vm

BOOT_LIMIT_S = 120


def names_in(image: Path) -> list[str]:
    listing = subprocess.run(["cpio", "-it", "--quiet"], input=image.read_bytes(), capture_output=True, check=True)
    return listing.stdout.decode().splitlines()


def shell(script: str, **more: object) -> GuestCommand:
    return GuestCommand("shell", None, ("/bin/busybox", "sh", "-c", script), **more)  # type: ignore[arg-type]


def test_contents(tmp_path: Path, ivshmem_word: Path) -> None:
    library = tmp_path / "ours.so"
    library.write_bytes(b"library")
    image = build_image(tmp_path, [GuestCommand("word", ivshmem_word)], {GUEST_LIBRARY_PATH: library})
    names = names_in(image.initramfs)
    assert {"init", "bin/busybox", "bin/sh", "dev/console", "programs/ivshmem_word"} <= set(names)
    assert str(GUEST_LIBRARY_PATH)[1:] in names
    assert any(name.endswith("/libc.so.6") for name in names)
    assert len(names) == len(set(names))
    kernel = find_kernel()
    assert image.kernel.read_bytes() == (kernel.unpacked() or kernel.image.read_bytes())
    assert image.kernel.parent == tmp_path


def test_same_bytes_but_for_the_marker(tmp_path: Path) -> None:
    contents = set()
    markers = set()
    for _ in range(2):
        image = build_image(tmp_path, [shell("true")], copy_kernel=False)
        markers.add(image.marker)
        contents.add(image.initramfs.read_bytes().replace(image.marker.encode(), b"MARKER"))
    assert len(markers) == 2
    assert len(contents) == 1


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(VmError, match="/nowhere/program, which cannot be read"):
        build_image(tmp_path, [GuestCommand("none", Path("/nowhere/program"))])


def test_library_that_only_the_guest_has(tmp_path: Path) -> None:
    """Programs linked with -lcuda find the library we give; without it the missing one is named."""
    (tmp_path / "empty.c").write_text("int f(void) { return 0; }\n")
    (tmp_path / "main.c").write_text("int f(void); int main(void) { return f(); }\n")
    library, program = tmp_path / "libonly_in_guest.so", tmp_path / "program"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, tmp_path / "empty.c"], check=True)
    subprocess.run(["cc", "-o", program, tmp_path / "main.c", library.name, f"-L{tmp_path}"], check=True, cwd=tmp_path)
    library.rename(tmp_path / "elsewhere")
    command = GuestCommand("program", program)
    with pytest.raises(VmError, match=r"needs libonly_in_guest\.so, which is not on this host"):
        build_image(tmp_path, [command])
    place = PurePosixPath("/usr/lib") / library.name
    assert str(place)[1:] in names_in(build_image(tmp_path, [command], {place: tmp_path / "elsewhere"}).initramfs)


def test_guest_runs_commands(instance: PrivateLibvirt, choice: AcceleratorChoice, ivshmem_word: Path) -> None:
    folder = instance.folder / "runs-commands"
    folder.mkdir()
    folder.chmod(0o755)
    commands = [
        shell("echo out; echo err >&2; echo $A; exit 7", environment={"A": "it's $HOME"}),
        shell("printf 'no newline'"),
        shell("kill -SEGV $$"),
        shell("sleep 1000", timeout_s=1),
        GuestCommand("word", ivshmem_word, ("one argument is not enough",)),
    ]
    image = build_image(folder, commands)
    with Guest(instance, "runs-commands", image, choice) as guest:
        guest.start()
        follow_guests([guest], BOOT_LIMIT_S)
        results = guest.results()
        assert guest.output.is_done
    assert [result.exit_code for result in results] == [7, 0, 139, 143, 2]
    assert [result.output for result in results[:2]] == ["out\nerr\nit's $HOME", "no newline"]
    assert not (instance.folder / "runs-commands.sock").exists()
