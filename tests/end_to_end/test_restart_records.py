"""What a daemon finds of the one before it: what is not in order costs its own vGPU, and what is of another release is waited for."""

import contextlib
import os
import subprocess

import pytest

from backend_host.ipc import Connection
from backend_host.restart import store
from backend_host.restart.store import Store
from tests.children import is_there
from tests.end_to_end.host import Host, stop_host, wait_until
from tests.end_to_end.restarting import Program, events, go_on, kill, kill_and_start, start_next, vgpus, worker_pids


@pytest.fixture
def host(mortal_host: Host) -> Host:
    return mortal_host


class Forger:
    """The store, between two daemons."""

    def __init__(self, host: Host) -> None:
        self.store = Store.open(host.state_dir)
        ours, _ = self.store.take()
        self.items = {item.name: item for item in ours}

    def close(self) -> None:
        for item in self.items.values():
            item.close()
        self.store.close()

    def name(self, kind: str, **fields: object) -> str:
        """Of the item of this kind whose record has these values."""
        return next(
            name
            for name, item in self.items.items()
            if name.startswith(f"{kind}/") and fields.items() <= item.record.items()
        )

    def worker(self, vgpu: str) -> str:
        """Of the item of the only worker of this vGPU."""
        return self.name("worker", vgpu=self.items[self.name("vgpu", name=vgpu)].record["index"])

    def change(self, item_name: str, **fields: object) -> None:
        item = self.items[item_name]
        self.store.put(item_name, {**item.record, **fields}, has_life=item.has_life)

    def replace(self, name: str, number: int, fd: int) -> None:
        item = self.items[name]
        fds = [fd if place == number else each for place, each in enumerate(item.fds)]
        self.store.put(name, item.record, fds, has_life=item.has_life)


def a_record_that_is_none(forger: Forger, name: str) -> None:
    forger.store.put(forger.name("vgpu", name=name), {"name": name})


def an_entitlement_that_none_may_have(forger: Forger, name: str) -> None:
    item = forger.name("vgpu", name=name)
    forger.change(item, entitlement={**forger.items[item].record["entitlement"], "weight": 0})


def another_size(forger: Forger, name: str) -> None:
    forger.change(forger.name("vgpu", name=name), region_bytes=1 << 24)


def a_name_that_is_taken(forger: Forger, name: str) -> None:
    forger.change(forger.name("vgpu", name=name), name="other")


def a_region_that_is_none(forger: Forger, name: str) -> None:
    fd = os.memfd_create("nothing")
    os.ftruncate(fd, forger.items[forger.name("vgpu", name=name)].record["region_bytes"])
    forger.replace(forger.name("vgpu", name=name), 0, fd)
    os.close(fd)


def another_client(forger: Forger, name: str) -> None:
    forger.change(forger.worker(name), client=7)


def a_process_that_is_none(forger: Forger, name: str) -> None:
    fd = os.memfd_create("nothing")
    forger.replace(forger.worker(name), 0, fd)
    os.close(fd)


FORGERIES = (
    a_record_that_is_none,
    an_entitlement_that_none_may_have,
    another_size,
    a_name_that_is_taken,
    a_region_that_is_none,
    another_client,
    a_process_that_is_none,
)


def test_what_is_not_in_order_costs_its_own_vgpu(host: Host) -> None:
    """A worker whose process is not known ends by itself, as its client is dead."""
    other = Program(host, "other")
    forged = {forge: Program(host, forge.__name__) for forge in FORGERIES}
    workers = [client["worker_pid"] for vgpu in vgpus(host).values() for client in vgpu["clients"]]
    kill(host)
    with contextlib.closing(Forger(host)) as forger:
        for forge in FORGERIES:
            forge(forger, forge.__name__)
    start_next(host)
    for forge, program in forged.items():
        code, said = program.its_end()
        assert code == 1, (forge.__name__, said)
    assert other.passes()
    wait_until(lambda: not any(is_there(pid) for pid in workers), "all workers have ended")
    assert host.guest("vector_add", options=("--vgpu", "another_size")).returncode == 0, "the next one is served"
    assert len(events(host, "lost")) == 3


def test_a_process_that_is_no_worker_is_left_alone(host: Host) -> None:
    """As a number that was given out again would be: who is a worker is the descriptor's word."""
    other = Program(host, "other")
    with subprocess.Popen(["sleep", "60"]) as bystander:
        program = Program(host, "forged")
        kill(host)
        with contextlib.closing(Forger(host)) as forger:
            forger.change(forger.worker("forged"), pid=bystander.pid)
        start_next(host)
        assert program.its_end()[0] == 1
        assert bystander.poll() is None
        bystander.kill()
    assert other.passes()


def test_who_opens_a_vgpu_again_and_again_is_kept_once(host: Host) -> None:
    """Each time would cost the store a descriptor, of which it has those of all others, too."""
    with Connection(host.state_dir / "control.sock") as connection:
        for _ in range(100):
            os.close(connection.ask("open", name="one", region_bytes=1 << 24)["fd"])
        os.close(connection.ask("open", name="two", region_bytes=1 << 24)["fd"])
        kill(host)
        forger = Forger(host)
        kept = [item.record["vgpu"] for name, item in forger.items.items() if name.startswith("session/")]
        forger.close()
        assert sorted(kept) == ["one", "two"]
        start_next(host)
        assert vgpus(host).keys() == {"one", "two"}
    wait_until(lambda: not vgpus(host), "they go with the connection")


def make_ancient(host: Host) -> None:
    """All that was left is of another release."""
    with contextlib.closing(Forger(host)) as forger:
        for name, item in forger.items.items():
            forger.store.drop(name)
            forger.store._prefix = "ancient/"
            forger.store.put(name, item.record, item.fds, has_life=item.has_life)
            forger.store._prefix = f"{store.release()}/"


def test_programs_of_another_release_go_on_alone(host: Host) -> None:
    """Nobody else gets the device beside them; when they have ended all do."""
    program = Program(host, "one")
    kill(host)
    make_ancient(host)
    start_next(host)
    status = host.status()
    assert "1 program is served by an earlier release" in status["waits_for"]
    assert status["nr_old_programs"] == 1
    assert not vgpus(host)
    refused = host.guest("vector_add")
    assert refused.returncode == 1
    assert "an earlier release of FairGV" in refused.stderr
    kill_and_start(host)
    assert host.status()["waits_for"], "a restart forgets nobody"
    assert program.passes()
    wait_until(lambda: not host.status()["waits_for"], "they have ended")
    assert host.guest("vector_add").returncode == 0


def make_present(host: Host) -> None:
    """What another release left is ours, and what was left by us is gone: as the other release finds it when it is installed again."""
    kept = Store.open(host.state_dir)
    ours, foreign = kept.take()
    kept.drop(*(item.name for item in ours))
    for item in foreign:
        kept.drop_items([item.name])
        kept.put(item.name.removeprefix("ancient/"), item.record, item.fds, has_life=item.has_life)
    for item in [*ours, *foreign]:
        item.close()
    kept.close()


def test_the_release_before_takes_back_what_another_one_waited_for(host: Host) -> None:
    program = Program(host, "one")
    kill(host)
    make_ancient(host)
    start_next(host)
    assert host.status()["waits_for"]
    kill(host)
    make_present(host)
    start_next(host)
    assert not host.status()["waits_for"]
    used = {"one": vgpus(host)["one"]["used_ns"]}
    wait_until(lambda: go_on(host, used), "it computes")
    assert host.guest("vector_add").returncode == 0
    assert program.passes()


def test_a_stop_ends_programs_of_another_release(host: Host) -> None:
    program = Program(host, "one")
    [worker] = worker_pids(host, "one")
    kill(host)
    make_ancient(host)
    start_next(host)
    stop_host(host)
    assert not is_there(worker)
    assert program.its_end()[0] == 1
