"""Tenants: their ids outlive the daemon, and what a tenant puts into its folder hurts nobody else, nor the daemon, which is root."""

import contextlib
import errno
import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend_host.errors import FairGVError
from backend_host.walls.settings import WallSettings
from backend_host.walls.tenants import Tenants, name_of
from tests.end_to_end.host import wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root has tenants with ids of their own")

FIRST = 2_100_000_000
DEEP = 3000
"""Deeper than Python recurses, and than a process has descriptors by default."""


def settings(folder: Path, nr: int = 3, first: int = FIRST) -> WallSettings:
    return WallSettings(users=f"{first}-{first + nr - 1}", cache_dir=str(folder)).checked()


@pytest.fixture
def folder() -> Iterator[Path]:
    """Below folders that anybody may enter; in memory, for the many files of some tests."""
    with tempfile.TemporaryDirectory(prefix="fairgv-tenants-", dir="/dev/shm") as above:
        Path(above).chmod(0o755)
        yield Path(above) / "tenants"


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    """As of a user whose home is not there."""
    (tmp_path / "home").touch()
    folder = tmp_path / "home" / ".cache" / "fairgv"
    said = f"^cannot have compiled code of programs in {folder}: Not a directory; name another folder by cache_dir in"
    with pytest.raises(FairGVError, match=said):
        Tenants(WallSettings(cache_dir=str(folder)))


def test_an_id_outlives_the_daemon(folder: Path) -> None:
    taken = {name: Tenants(settings(folder)).take(name) for name in ("domain-a", "domain-b", "user-1000")}
    assert sorted(tenant.uid for tenant in taken.values()) == [FIRST, FIRST + 1, FIRST + 2]
    later = Tenants(settings(folder))
    for name in reversed(taken):
        assert later.take(name) == taken[name]
        status = (folder / name).stat()
        assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (taken[name].uid, taken[name].uid, 0o700)


def test_nobody_else_lists_tenants_or_enters_their_folders(folder: Path) -> None:
    tenants = Tenants(settings(folder))
    one, other = tenants.take("domain-a"), tenants.take("domain-b")
    for path in (folder, folder / other.name, folder / ".lock"):
        looked = subprocess.run(
            ["ls" if path.is_dir() else "cat", path],
            check=False,
            user=one.uid,
            group=one.uid,
            extra_groups=(),
            capture_output=True,
        )
        assert looked.returncode != 0
        assert b"denied" in looked.stderr


def test_the_one_that_was_quiet_longest_makes_room(folder: Path) -> None:
    tenants = Tenants(settings(folder, nr=2))
    oldest, newer = tenants.take("domain-a"), tenants.take("domain-b")
    (folder / "domain-a" / "compiled").write_text("code")
    os.utime(folder / "domain-a", (2, 2))
    os.utime(folder / "domain-b", (1, 1))
    tenants.take("domain-b")  # which makes it the newer one
    assert tenants.take("domain-c").uid == oldest.uid
    assert not (folder / "domain-a").exists()
    assert list((folder / "domain-c").iterdir()) == []
    assert tenants.take("domain-b") == newer


@contextlib.contextmanager
def process_of(uid: int) -> Iterator[None]:
    with subprocess.Popen(["sleep", "3600"], user=uid, group=uid, extra_groups=()) as child:
        yield
        child.kill()


@pytest.fixture
def at_work() -> Iterator[int]:
    """The user id of a process, the first of the range."""
    with process_of(FIRST):
        yield FIRST


def test_an_id_with_a_process_is_nobody_elses(folder: Path) -> None:
    """A worker that was started long ago, and has outlived daemons, shares its id with no newcomer."""
    tenants = Tenants(settings(folder, nr=2))
    busy, quiet = tenants.take("domain-a"), tenants.take("domain-b")
    os.utime(folder / "domain-a", (1, 1))
    with process_of(busy.uid):
        assert tenants.take("domain-c").uid == quiet.uid
        assert (folder / "domain-a").exists()


def test_an_id_with_a_process_is_not_given_out_although_its_folder_is_gone(folder: Path, at_work: int) -> None:
    tenants = Tenants(settings(folder, nr=2))
    assert tenants.take("domain-a").uid == at_work + 1


def test_all_ids_at_work(folder: Path, at_work: int) -> None:
    tenants = Tenants(settings(folder, nr=1))
    with pytest.raises(OSError, match="users") as refused:
        tenants.take("domain-a")
    assert refused.value.errno == errno.EUSERS


def hostile(tenant: Path, outside: Path) -> None:
    """What a tenant may do to its folder: links to what is not its own, names of all kinds, depth without an end."""
    (tenant / "to-root").symlink_to("/")
    (tenant / "to-file").symlink_to(outside / "file")
    (tenant / "to-folder").symlink_to(outside)
    (tenant / "-rf").mkdir()
    (tenant / "a\nb").write_text("x")
    os.mkfifo(tenant / "pipe")
    (tenant / "closed").mkdir(0o000)
    here = os.open(tenant, os.O_RDONLY)
    for _ in range(DEEP):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)


@pytest.mark.parametrize("way", ["range", "quiet"])
def test_a_hostile_folder_is_removed_and_nothing_beside_it(folder: Path, tmp_path: Path, way: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("kept")
    tenants = Tenants(settings(folder, nr=1))
    tenants.take("domain-a")
    hostile(folder / "domain-a", outside)
    owner = outside.stat().st_uid
    name = "domain-a" if way == "range" else "domain-b"
    later = Tenants(settings(folder, nr=1, first=FIRST + 100)) if way == "range" else tenants
    later.take(name)
    assert list((folder / name).iterdir()) == []
    wait_until(lambda: {path.name for path in folder.iterdir()} == {name, ".lock"}, "the old one is removed")
    assert (outside / "file").read_text() == "kept"
    assert (outside.stat().st_uid, (outside / "file").stat().st_uid) == (owner, owner)


def test_what_a_daemon_had_not_removed_goes_with_the_next(folder: Path) -> None:
    tenants = Tenants(settings(folder))
    (folder / ".gone-1" / "a").mkdir(parents=True)
    Tenants(settings(folder)).take(tenants.take("domain-a").name)
    wait_until(lambda: {path.name for path in folder.iterdir()} == {"domain-a", ".lock"}, "it is removed")


def test_a_folder_that_is_a_link(folder: Path, tmp_path: Path) -> None:
    """Nobody but root can put it there; it is not followed all the same."""
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").write_text("kept")
    tenants = Tenants(settings(folder))
    (folder / "domain-a").symlink_to(victim)
    os.lchown(folder / "domain-a", FIRST, FIRST)
    tenants.take("domain-a")
    assert (victim / "file").read_text() == "kept"
    assert victim.stat().st_uid == 0
    assert not (folder / "domain-a").is_symlink()


def test_daemons_of_one_host_agree(folder: Path) -> None:
    """Two daemons at once, with the same names: each name has one id."""
    names = [f"domain-{number}" for number in range(12)]
    found: list[dict[str, int]] = []

    def take_all(order: list[str]) -> None:
        tenants = Tenants(settings(folder, nr=12))
        found.append({name: tenants.take(name).uid for name in order})

    threads = [threading.Thread(target=take_all, args=(order,)) for order in (names, names[::-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[0] == found[1]
    assert sorted(found[0].values()) == list(range(FIRST, FIRST + 12))


@pytest.mark.parametrize(
    "name", ["..", ".", "", "a/b", "../../etc", "-rf", "x" * 65, "\n", "é", "a b", "\0", ".lock", "a/../b"]
)
def test_any_name_of_a_domain_is_one_folder(folder: Path, name: str) -> None:
    tenant = Tenants(settings(folder)).take(name_of("domain", name, 0))
    assert [path.name for path in folder.iterdir() if not path.name.startswith(".")] == [tenant.name]
    assert "/" not in tenant.name
    assert name_of("domain", name, 0) != name_of("domain", f"{name}.", 0)


def test_sessions_of_a_user_are_one_tenant() -> None:
    assert name_of("session", "a", 1000) == name_of("session", "b", 1000) != name_of("session", "a", 1001)
    assert name_of("domain", "user-1000", 0) != name_of("session", "a", 1000)
