"""Metrics of a daemon that runs, with guests on softgpu: what they used, who came and went, and that the daemon serves where it was told to."""

import contextlib
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend_host.ipc import Connection
from tests.backend_host.metrics.scraping import Series, ask, of, read
from tests.end_to_end.host import Host, start_host, stop_host, wait_until

REGION_BYTES = 16 << 20
SPIN_MS = "300"
FOR_EVER_MS = "100000000"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("metrics")


@pytest.fixture(scope="module")
def host(folder: Path) -> Iterator[Host]:
    running = start_host(folder / "host", metrics=str(folder / "m"), metrics_file=str(folder / "fairgv.prom"))
    yield running
    stop_host(running)
    assert not (folder / "m").exists()
    assert not (folder / "fairgv.prom").exists()


@pytest.fixture
def scrape(host: Host, folder: Path) -> "Scrape":
    return Scrape(folder / "m")


class Scrape:
    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self) -> dict[Series, float]:
        status, _, text = ask(self._path)
        assert status == 200
        return read(text)


def open_vgpu(host: Host, name: str, **more: object) -> Connection:
    """One that stays while the connection does, with programs or without."""
    connection = Connection(host.state_dir / "control.sock")
    os.close(connection.ask("open", name=name, region_bytes=REGION_BYTES, **more)["fd"])
    return connection


def test_what_all_used_is_what_the_device_was_busy_for(host: Host, scrape: Scrape) -> None:
    with open_vgpu(host, "one", weight=3), open_vgpu(host, "two"):
        children = [host.start("spin", SPIN_MS, options=("--vgpu", name)) for name in ("one", "two", "two")]
        for child in children:
            child.communicate()
            assert child.returncode == 0
        wait_until(lambda: sum(of(scrape(), "fairgv_vgpu_programs")) == 0, "the programs are gone")
        series = scrape()
        used = of(series, "fairgv_vgpu_gpu_seconds_total")
        [busy] = of(series, "fairgv_device_busy_seconds_total")
        earlier = sum(vgpu["used_ns"] for vgpu in host.status()["vgpus"]) / 1e9
        assert len(used) == 2
        assert min(used) > 0
        assert sum(used) == pytest.approx(busy, rel=0.005)
        assert sum(used) == pytest.approx(earlier, rel=0.005)
        assert of(series, "fairgv_vgpu_programs_total", vgpu="two") == [2]
        assert of(series, "fairgv_vgpu_launches_total", vgpu="two")[0] >= 2
        assert of(series, "fairgv_vgpu_weight", vgpu="one") == [3]
        calls = sum(of(series, "fairgv_vgpu_calls_total", vgpu="two"))
        assert calls >= of(series, "fairgv_vgpu_launches_total", vgpu="two")[0]
        waits = of(series, "fairgv_vgpu_wait_seconds_bucket", le="+Inf")
        assert waits == of(series, "fairgv_vgpu_wait_seconds_count")
    wait_until(lambda: of(scrape(), "fairgv_vgpu_weight") == [], "the vGPUs are gone")
    assert of(scrape(), "fairgv_device_busy_seconds_total") >= [busy], "what they used was used"


def test_the_series_of_a_vgpu_that_has_gone_end(host: Host, scrape: Scrape) -> None:
    with open_vgpu(host, "stays"):
        with open_vgpu(host, "goes"):
            assert {dict(labels)["vgpu"] for _, labels in scrape() if "vgpu" in dict(labels)} == {"stays", "goes"}
        wait_until(lambda: of(scrape(), "fairgv_vgpu_weight", vgpu="goes") == [], "it is gone")
        assert {dict(labels)["vgpu"] for _, labels in scrape() if "vgpu" in dict(labels)} == {"stays"}


def test_a_worker_that_dies_is_counted_beyond_the_end_of_its_vgpu(host: Host, scrape: Scrape) -> None:
    """That of a command ends with its only program."""
    child = host.start("spin", FOR_EVER_MS, options=("--vgpu", "dies"))
    assert child.stdout is not None
    assert child.stdout.readline() == "running\n"
    [before] = of(scrape(), "fairgv_device_worker_deaths_total")
    [client] = next(vgpu["clients"] for vgpu in host.status()["vgpus"] if vgpu["name"] == "dies")
    os.kill(client["worker_pid"], signal.SIGKILL)
    child.communicate()
    assert child.returncode != 0
    wait_until(lambda: of(scrape(), "fairgv_vgpu_weight", vgpu="dies") == [], "its vGPU is gone")
    assert of(scrape(), "fairgv_device_worker_deaths_total") == [before + 1]


def test_the_file_has_the_same(host: Host, scrape: Scrape, folder: Path) -> None:
    in_file = {name for name, _ in read((folder / "fairgv.prom").read_text())}
    assert "fairgv_build_info" in in_file
    assert in_file <= {name for name, _ in scrape()}


def test_status_knows_what_metrics_know(host: Host, scrape: Scrape) -> None:
    with open_vgpu(host, "known", weight=5):
        [vgpu], series = host.status()["vgpus"], scrape()
        assert of(series, "fairgv_vgpu_weight") == [vgpu["weight"]]
        assert of(series, "fairgv_vgpu_pinned_bytes") == [vgpu["heap_used_bytes"]]
        assert set(vgpu["received"]) == {"entitled", "active", "of_due", "is_steady"}


def test_a_daemon_that_starts_again_says_so(tmp_path: Path) -> None:
    for nr_restarts in (0, 1):
        host = start_host(tmp_path, metrics=str(tmp_path / "m"), nr_warm_workers=0)
        try:
            assert of(Scrape(tmp_path / "m")(), "fairgv_daemon_restarts_total") == [nr_restarts]
        finally:
            stop_host(host)


def listens_at(pid: int) -> set[str]:
    """Ports and paths of a process."""
    descriptors = set()
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed since
            descriptors.add(path.readlink().name)
    inodes = {name.removeprefix("socket:[").removesuffix("]") for name in descriptors if name.startswith("socket:")}
    tcp = [
        line.split() for file in ("tcp", "tcp6") for line in Path(f"/proc/{pid}/net/{file}").read_text().splitlines()
    ]
    unix = [line.split() for line in Path(f"/proc/{pid}/net/unix").read_text().splitlines()[1:]]
    ports = {words[1] for words in tcp if words[3] == "0A" and words[9] in inodes}
    return ports | {words[7] for words in unix if words[3] == "00010000" and words[6] in inodes}


def test_where_nothing_is_said_nothing_is_served(host: Host, folder: Path, tmp_path: Path) -> None:
    assert str(folder / "m") in listens_at(host.status()["pid"])
    silent = start_host(tmp_path, nr_warm_workers=0)
    try:
        assert listens_at(silent.status()["pid"]) == {str(tmp_path / "control.sock")}
    finally:
        stop_host(silent)


def test_what_cannot_be_served_keeps_no_gpu_from_guests(tmp_path: Path) -> None:
    """Any user of the host may take a port."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        file = str(tmp_path / "none/fairgv.prom")
        host = start_host(tmp_path / "host", metrics=taken, metrics_file=file, web=taken)
    try:
        for what in (f"metrics on {taken}", f"the web page on {taken}"):
            assert f"cannot serve {what}: Address already in use" in host.log()
        assert f"cannot write {file}: No such file" in host.log()
        assert host.guest("vector_add").returncode == 0
    finally:
        stop_host(host)
