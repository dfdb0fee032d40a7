"""The file behind a region: size, owner, mode, and what is refused."""

import os
import stat
import uuid
from collections.abc import Iterator

import pytest

from backend_host.vm.errors import VmError
from backend_host.vm.region_file import (
    RegionOwner,
    prepare_region_file,
    region_name,
    region_path,
    remove_region_file,
)

NOBODY = RegionOwner(65534, 65534)


@pytest.fixture
def name() -> Iterator[str]:
    made = region_name(str(uuid.uuid4()))
    yield made
    remove_region_file(made)


def test_new_file_is_reserved_and_private(name: str) -> None:
    status = prepare_region_file(name, 1 << 20).stat()
    assert status.st_size == 1 << 20
    assert status.st_blocks * 512 >= 1 << 20
    assert stat.S_IMODE(status.st_mode) == 0o600
    assert status.st_uid == os.geteuid()


def test_right_size_keeps_contents_and_file(name: str) -> None:
    path = prepare_region_file(name, 1 << 20)
    with path.open("r+b") as file:
        file.write(b"kept")
    inode = path.stat().st_ino
    assert prepare_region_file(name, 1 << 20).stat().st_ino == inode
    assert path.read_bytes()[:4] == b"kept"


def test_other_size_gives_a_new_file(name: str) -> None:
    path = prepare_region_file(name, 1 << 20)
    with path.open("r+b") as old:
        prepare_region_file(name, 2 << 20)
        assert os.fstat(old.fileno()).st_size == 1 << 20
    assert path.stat().st_size == 2 << 20


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_root_shares_with_the_group_of_qemu(name: str) -> None:
    path = prepare_region_file(name, 1 << 20, NOBODY)
    for _ in range(2):
        status = path.stat()
        assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (0, NOBODY.gid, 0o660)
        os.chown(path, NOBODY.uid, NOBODY.gid)
        path.chmod(0o644)
        prepare_region_file(name, 1 << 20, NOBODY)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's file")
def test_foreign_file_is_refused_and_stays(name: str) -> None:
    path = prepare_region_file(name, 1 << 20)
    os.chown(path, 12345, 12345)
    with pytest.raises(VmError, match=r"belongs to somebody else \(user 12345\)"):
        prepare_region_file(name, 1 << 20, NOBODY)
    assert path.exists()


def test_links_are_refused(name: str) -> None:
    region_path(name).symlink_to("/etc/passwd")
    with pytest.raises(VmError, match="cannot be opened"):
        prepare_region_file(name, 1 << 20)


def test_no_room_leaves_no_file(name: str) -> None:
    with pytest.raises(VmError, match=r"left and the region needs .* remount,size="):
        prepare_region_file(name, 1 << 60)
    assert not region_path(name).exists()


@pytest.mark.parametrize("bad", ["", "..", "../x", "a/b", ".hidden", "a" * 300])
def test_names_stay_in_the_folder(bad: str) -> None:
    with pytest.raises(VmError, match="is no name for shared memory"):
        region_path(bad)


def test_removing_twice_is_no_error(name: str) -> None:
    prepare_region_file(name, 1 << 20)
    remove_region_file(name)
    remove_region_file(name)
    assert not region_path(name).exists()
