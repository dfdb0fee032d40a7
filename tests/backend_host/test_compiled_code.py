"""Compiled code of tenants is bounded while they are at work: what they make by honest means, and what a worker that was taken over writes.

The file systems that are filled are in memory, and the tests' own.
"""

import contextlib
import errno
import os
import resource
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend_host.compiled_code import CompiledCode
from backend_host.walls.eviction import Bounds, excess
from backend_host.walls.folders import NR_FILES, Contents, File
from backend_host.walls.settings import WALLS, WallSettings
from backend_host.walls.tenants import Tenants
from tests.backend_host.walled import Captive, captives
from tests.backend_host.worker_harness import walls_here

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a file system, and has tenants' users")

MIB = 1 << 20
SYSTEM_MIB = 160
"""Of the file system. So 16 MiB are kept free."""
FREE_MIB = 16
EACH_MIB = 32
FIRST = 2_100_000_000
NR_LOOKED_THROUGH = 4
"""Descriptors that it takes: two each for a folder and one in it."""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A file system of its own below folders that anybody may enter."""
    with tempfile.TemporaryDirectory(prefix="fairgv-code-", dir="/dev/shm") as above:
        Path(above).chmod(0o755)
        place = Path(above) / "tenants"
        place.mkdir(mode=0o711)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SYSTEM_MIB}m,mode=711", "none", place], check=True)
        try:
            yield place
        finally:
            subprocess.run(["umount", "--lazy", place], check=True)


@dataclass
class Scene:
    """A daemon's look at that folder; `ended` are tenants whose workers it wants ended, with the reasons."""

    folder: Path
    settings: WallSettings
    pids: dict[str, list[int]] = field(default_factory=dict)
    ended: dict[str, str] = field(default_factory=dict)
    is_stopping: Callable[[str], None] = lambda _: None
    now_s: float = 0.0

    def __post_init__(self) -> None:
        self.tenants = Tenants(self.settings)
        self.code = CompiledCode(self.settings, self.tenants, lambda: self.pids, self._end)

    def _end(self, tenant: str, why: str) -> None:
        self.ended[tenant] = why
        self.is_stopping(tenant)

    def look(self) -> None:
        """An hour later."""
        self.now_s += 3600
        self.code.look(self.now_s)

    def take(self, name: str) -> Path:
        return self.folder / self.tenants.take(name).name

    @property
    def free_bytes(self) -> int:
        status = os.statvfs(self.folder)
        return status.f_bavail * status.f_frsize


def settings(folder: Path, *, each_mib: int = EACH_MIB, sum_mib: int = 1024) -> WallSettings:
    users = f"{FIRST}-{FIRST + 9}"
    sizes = {"cache_bytes": each_mib * MIB, "cache_sum_bytes": sum_mib * MIB}
    return WallSettings(users=users, cache_dir=str(folder), **sizes).checked()  # type: ignore[arg-type]


@pytest.fixture
def scene(folder: Path) -> Scene:
    return Scene(folder, settings(folder))


def put(path: Path, nr_mib: int, used_s: int) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(bytes(nr_mib * MIB))
    os.utime(path, (used_s, used_s))


def names(tenant: Path) -> set[str]:
    return {str(path.relative_to(tenant)) for path in tenant.rglob("*") if not path.is_dir()}


def test_a_tenant_loses_what_it_used_longest_ago(scene: Scene) -> None:
    large, other = scene.take("domain-a"), scene.take("domain-b")
    for number, used_s in enumerate((3, 1, 2, 4)):
        put(large / "cuda" / f"{number}", 10, used_s)
    put(other / "code", 20, 1)
    scene.look()
    assert names(large) == {"cuda/0", "cuda/2", "cuda/3"}
    assert names(other) == {"code"}
    told = scene.code.statistics()
    assert (told.removed_bytes, told.nr_ended) == (10 * MIB, 0)
    assert 50 * MIB <= told.nr_bytes < 51 * MIB


def test_all_together_have_a_bound(folder: Path) -> None:
    scene = Scene(folder, settings(folder, sum_mib=40))
    small, large, old = scene.take("domain-a"), scene.take("domain-b"), scene.take("domain-c")
    put(small / "code", 6, 1)
    for number in range(4):
        put(large / f"{number}", 7, 10 + number)
        put(old / f"{number}", 7, 5 + number)
    scene.look()
    assert names(small) == {"code"}, "it has less than its even share, and has used it longest ago"
    assert names(old) == {"3"}, "its even share is more than one, and less than two"
    assert names(large) == {"1", "2", "3"}


def test_room_is_kept_free_for_others(scene: Scene) -> None:
    """Who fills the file system is not asked: other files of the host are there, too."""
    tenants = [scene.take(f"domain-{number}") for number in range(3)]
    for number, tenant in enumerate(tenants):
        for each in range(3):
            put(tenant / f"{each}", 9, 10 * each + number)
    scene.look()
    assert [len(names(tenant)) for tenant in tenants] == [3, 3, 3]
    put(scene.folder / "of-the-host", SYSTEM_MIB - 81 - 4, 1)
    assert scene.free_bytes < FREE_MIB * MIB
    scene.look()
    assert scene.free_bytes >= FREE_MIB * MIB
    assert [names(tenant) for tenant in tenants] == [{"1", "2"}, {"1", "2"}, {"0", "1", "2"}]


def test_a_time_to_come_keeps_nothing(scene: Scene) -> None:
    tenant = scene.take("domain-a")
    put(tenant / "forged", 20, 1 << 40)
    put(tenant / "honest", 20, 1)
    scene.look()
    assert names(tenant) == {"honest"}


def test_who_says_that_it_uses_all_of_its_code_keeps_no_more_than_others(folder: Path) -> None:
    scene = Scene(folder, settings(folder, sum_mib=40))
    liar, honest = scene.take("domain-a"), scene.take("domain-b")
    for number in range(10):
        put(liar / f"{number}", 3, 1000)
        put(honest / f"{number}", 3, number)
    scene.look()
    assert len(names(honest)) == 6, "18 MiB: its even share is 20"
    assert len(names(liar)) == 7


def test_room_is_asked_for_often_and_folders_are_looked_at_seldom(scene: Scene) -> None:
    tenant = scene.take("domain-a")
    scene.look()
    put(tenant / "old", EACH_MIB - 1, 1)
    put(tenant / "new", 2, 2)
    scene.code.look(scene.now_s + 30)
    assert names(tenant) == {"new"}, "the file system has an eighth of a tenant's bound less"
    put(tenant / "new", 3, 2)
    before = scene.code.statistics()
    scene.code.look(scene.now_s + 60)
    assert scene.code.statistics() is before
    scene.look()
    assert scene.code.statistics() is not before


@pytest.mark.parametrize("way", ["files", "depth"])
@pytest.mark.parametrize("is_at_work", [False, True])
def test_what_is_no_compiled_code_goes_as_a_whole(scene: Scene, way: str, is_at_work: bool) -> None:
    bomb, other = scene.take("domain-a"), scene.take("domain-b")
    owner = bomb.stat().st_uid
    (other / "code").touch()
    if way == "files":
        for number in range(2 * NR_FILES + 1):
            (bomb / f"{number}").touch()
    else:
        (bomb / "/".join("d" * 20)).mkdir(parents=True)
    if is_at_work:
        scene.pids["domain-a"] = []
    scene.look()
    assert (names(bomb), bomb.stat().st_uid) == (set(), owner)
    assert names(other) == {"code"}
    assert scene.ended.keys() == ({"domain-a"} if is_at_work else set())


def test_many_files_are_bounded_as_bytes_are(scene: Scene) -> None:
    tenant = scene.take("domain-a")
    for number in range(NR_FILES + 7):
        (tenant / f"{number}").touch()
        os.utime(tenant / f"{number}", (number, number))
    scene.look()
    assert len(names(tenant)) == NR_FILES
    assert not (tenant / "6").exists()
    assert (tenant / "7").exists()


def test_links_lead_nowhere(scene: Scene, tmp_path: Path) -> None:
    """What is evicted are names of the tenant's own, whatever stands behind them."""
    (tmp_path / "of-the-host").write_bytes(bytes(MIB))
    tenant = scene.take("domain-a")
    (tenant / "file").symlink_to(tmp_path / "of-the-host")
    (tenant / "folder").symlink_to(tmp_path)
    os.mkfifo(tenant / "pipe")
    for name in ("file", "folder", "pipe"):
        os.utime(tenant / name, (1, 1), follow_symlinks=False)
    put(tenant / "large", EACH_MIB + 1, 2)
    scene.look()
    assert names(tenant) == set()
    assert (tmp_path / "of-the-host").stat().st_size == MIB


def test_code_that_cannot_be_looked_at_is_kept(scene: Scene) -> None:
    """A daemon that is short of descriptors takes nothing away for that."""
    own = scene.take("user-0")
    put(own / "softgpu" / "code", 1, 1)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = [os.open(os.devnull, os.O_RDONLY) for _ in range(NR_LOOKED_THROUGH + 1)]
    for descriptor in free:
        os.close(descriptor)
    refused = []
    for nr_free, end in enumerate(free):
        resource.setrlimit(resource.RLIMIT_NOFILE, (end, limits[1]))
        try:
            scene.look()
        except OSError as error:
            refused.append((nr_free, error.errno))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert (own / "softgpu" / "code").exists()
    assert refused == [(nr_free, errno.EMFILE) for nr_free in range(NR_LOOKED_THROUGH)]
    assert scene.code.statistics().nr_bytes >= MIB


def test_files_that_go_meanwhile_do_no_harm(scene: Scene) -> None:
    """A tenant's compilers make files and folders beside its code, and remove them, while it is looked at."""
    own = scene.take("user-0")
    (own / "code").write_bytes(bytes(4096))
    is_over = threading.Event()

    def compile_often() -> None:
        number = 0
        while not is_over.is_set():
            number += 1
            work = own / f"work-{number}"
            with contextlib.suppress(FileNotFoundError):  # all of it was taken away
                work.mkdir()
                (work / "part").touch()
                (work / "part").unlink()
                work.rmdir()

    compiler = threading.Thread(target=compile_often)
    compiler.start()
    try:
        for _ in range(1000):
            scene.look()
            assert (own / "code").exists()
    finally:
        is_over.set()
        compiler.join()


FILES = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=12)


@given(st.dictionaries(st.sampled_from("abcd"), FILES), st.integers(1, 120), st.integers(0, 300))
def test_bounds_are_kept_and_nobody_loses_its_share(
    made: Mapping[str, list[tuple[int, int]]], each: int, most: int
) -> None:
    tenants = {
        name: Contents(
            [File((f"{number}",), *file) for number, file in enumerate(files)], sum(size for size, _ in files)
        )
        for name, files in made.items()
    }
    gone = excess(tenants, Bounds(each, most), now_ns=15)
    left = {name: contents.nr_bytes for name, contents in tenants.items()}
    share = most // max(1, len(tenants))
    for index, (name, file) in enumerate(gone):
        assert left[name] > min(each, share), (index, "it had its share, or less")
        assert left[name] > each or sum(left.values()) > most
        left[name] -= file.nr_bytes
    assert max(left.values(), default=0) <= each
    assert sum(left.values()) <= most or all(size <= share for size in left.values())


@pytest.mark.skipif(walls_here() != frozenset(WALLS), reason="this machine has not all walls; see: fairgv-host doctor")
class TestTakenOver:
    """Workers behind their walls write what they like."""

    @pytest.fixture
    def two(self, taken_over: Path, scene: Scene) -> Iterator[tuple[Captive, Captive]]:
        more = replace(scene.settings, memory_bytes=1 << 30)
        with captives(taken_over, "cuda", 2, more) as (own, neighbour):
            by_name = {each.cache.name: each for each in (own, neighbour)}
            scene.pids |= {name: [each.served.worker.process.pid] for name, each in by_name.items()}
            scene.is_stopping = lambda name: by_name[name].served.worker.process.kill()
            yield own, neighbour

    def test_files_beyond_its_bound_go(self, scene: Scene, two: tuple[Captive, Captive]) -> None:
        own, neighbour = two
        assert neighbour.attack("keep /cache/code 4").number == 4
        for number in range(3):
            assert own.attack(f"keep /cache/{number} 40").number == 40
        assert scene.free_bytes < 2 * FREE_MIB * MIB + 20 * MIB
        scene.look()
        assert len(names(own.cache)) == 0, "each alone is more than it may have"
        assert names(neighbour.cache) == {"code"}
        assert scene.free_bytes > 120 * MIB
        assert scene.ended == {}, "nobody lacks room"

    @pytest.mark.parametrize("how", ["open", "mapped"])
    def test_removed_files_that_it_keeps_end_it(self, scene: Scene, two: tuple[Captive, Captive], how: str) -> None:
        own, neighbour = two
        assert neighbour.attack("keep /cache/code 4").number == 4
        assert own.attack(f"hold /cache/hidden 1000 {how}").number in range(150, SYSTEM_MIB)
        assert neighbour.attack("keep /cache/more 2").number == 0
        scene.look()
        assert scene.ended.keys() == {own.cache.name}
        assert own.served.worker.process.has_ended(60)
        assert scene.free_bytes > FREE_MIB * MIB
        assert neighbour.attack("keep /cache/more 2").number == 2

    def test_what_is_held_hurts_nobody_while_there_is_room(self, scene: Scene, two: tuple[Captive, Captive]) -> None:
        own, _ = two
        assert own.attack("hold /cache/hidden 100 open").number == 100
        scene.look()
        assert scene.ended == {}
