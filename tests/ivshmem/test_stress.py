"""The C programs of this folder: millions of records between threads and processes, and a peer that rewrites everything, each also under the
sanitizers that suit it (the thread sanitizer sees only one process)."""

import re
import subprocess
from pathlib import Path

import pytest

from .conftest import Build

NEAR_WRAP = 2**64 - 2**20
ASAN = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
TSAN = ("-fsanitize=thread",)


def run(program: Path, *arguments: object) -> dict[str, int]:
    done = subprocess.run(
        [str(program), *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", done.stdout)}


@pytest.mark.parametrize("wake", ["futex", "poll"])
@pytest.mark.parametrize(("peers", "nr_each"), [("processes", 1_000_000), ("threads", 500_000)])
def test_millions_of_records(build_c: Build, peers: str, nr_each: int, wake: str) -> None:
    counts = run(build_c("ring_stress"), peers, wake, 4, nr_each, NEAR_WRAP)
    assert counts["records"] == 4 * nr_each
    assert counts["bytes"] > 1000 * 65536, "the ring went round a thousand times"
    assert counts["parks"] > 0


@pytest.mark.parametrize("wake", ["futex", "poll"])
def test_records_under_the_thread_sanitizer(build_c: Build, wake: str) -> None:
    assert run(build_c("ring_stress", *TSAN), "threads", wake, 4, 100_000, NEAR_WRAP)["records"] == 400_000


@pytest.mark.parametrize("peers", ["processes", "threads"])
def test_records_under_the_address_sanitizer(build_c: Build, peers: str) -> None:
    assert run(build_c("ring_stress", *ASAN), peers, "futex", 4, 100_000, NEAR_WRAP)["records"] == 400_000


@pytest.mark.parametrize(("flags", "nr_steps"), [((), 400_000), (TSAN, 30_000), (ASAN, 50_000)])
def test_clients_that_share_events(build_c: Build, flags: tuple[str, ...], nr_steps: int) -> None:
    counts = run(build_c("event_stress", *flags), 4, nr_steps)
    for what in ("taken", "joined", "refused", "records", "crowded", "later", "deaths"):
        assert counts[what] > 0, f"{what}: never happened"


@pytest.mark.parametrize("flags", [(), TSAN, ASAN])
def test_the_daemons_beat_in_regions_that_come_and_go(build_c: Build, flags: tuple[str, ...]) -> None:
    assert run(build_c("host_beat_stress", *flags), 4, 300) == {"stopped": 1200, "moved": 12}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_peer_that_rewrites_everything(build_c: Build, seed: int) -> None:
    counts = run(build_c("hostile_peer", *ASAN), 300_000, seed)
    for what in ("layouts", "records", "hostile", "empty", "checked", "owned"):
        assert counts[what] > 0, f"{what}: this part of the host was never reached"


def test_the_guests_side_needs_only_old_libc_functions(build_c: Build, tmp_path: Path) -> None:
    """What a guest links of this folder calls nothing that glibc 2.28 does not have."""
    root = Path(__file__).resolve().parents[2]
    sources = [str(root / "ivshmem" / "src" / f"{name}.c") for name in ("region", "ring", "response", "heap", "event")]
    library = tmp_path / "guest.so"
    include = ["-I", str(root / "ivshmem" / "include")]
    subprocess.run(["gcc", "-std=c11", "-O2", "-fPIC", "-shared", *include, *sources, "-o", str(library)], check=True)
    listing = subprocess.run(
        ["nm", "-D", "--undefined-only", str(library)], capture_output=True, text=True, check=True
    ).stdout
    versions = {tuple(map(int, version.split("."))) for version in re.findall(r"@GLIBC_([\d.]+)", listing)}
    assert versions
    assert max(versions) <= (2, 28), listing
    assert "pthread" not in listing
