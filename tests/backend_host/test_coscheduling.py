"""Coscheduling with real threads and the real kernel: who is boosted, by what, when that ends, and what hints cannot do.

Which ways work depends on kernel and privileges: a test of one way asks the kernel first, through the same function that production asks.
"""

import contextlib
import itertools
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from backend_host.worker._worker import ffi, lib

from backend_host import coscheduling
from backend_host.boost_ways import WAYS, Boost, Way, choose
from backend_host.coscheduling import Coscheduler
from backend_host.device.control import ControlPage
from backend_host.vm.vcpus import QemuThreads, find_vcpus, vcpu_threads
from backend_host.worker import build_ffi
from tests.backend_host.grantees import attach
from tests.end_to_end.host import wait_until

SLICE_NS = 6_000_000
TURN_NS = 10_000_000
ASKER_OFFSET, CLIENT_BYTES = 200, 320  # of a client entry
GRANT, BELL_OFFSET = 1, 100
UUID = "5e9f6a2c-4d3b-4f10-9d3e-0d4c6e1f7a21"
EMULATOR = """
import sys, threading
def run(number):
    open(f"/proc/self/task/{threading.get_native_id()}/comm", "w").write(f"CPU {number}/KVM")
    ready.wait()
    stop.wait()
ready, stop = threading.Barrier(3), threading.Event()
for number in range(2):
    threading.Thread(target=run, args=(number,), daemon=True).start()
ready.wait()
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def page() -> Iterator[ControlPage]:
    with ControlPage.create(SLICE_NS) as page:
        yield page


@pytest.fixture
def emulator() -> Iterator[QemuThreads]:
    """A process that looks like QEMU: its UUID on the command line, threads with the names of vCPUs, which sleep."""
    command = [sys.executable, "-c", EMULATOR, "-uuid", UUID]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        threads = find_vcpus(UUID, os.geteuid())
        assert threads is not None
        assert threads.pid == process.pid
        yield threads
        process.kill()


def answers_offset() -> int:
    """Of nr_round_trips in a worker's slot."""
    text = (build_ffi.HERE / "generated" / "counters.c").read_text()
    found = re.search(r"offsetof\(struct fgw_worker_slot, nr_round_trips\) == (\d+)", text)
    assert found is not None
    return int(found[1])


class Client:
    """A worker's side of the control page, and the word with which its guest says who waits."""

    def __init__(self, page: ControlPage) -> None:
        self.page = page
        self.vgpu = page.vgpu_take()
        self.slot, self.grantee = attach(page, self.vgpu)
        self.entry = ffi.new("uint8_t[]", CLIENT_BYTES)
        self.grantee.client = ffi.cast("struct fgv_client *", self.entry)
        page.set_standing(self.vgpu, 0, 0, charged_ns=0)

    def says(self, asker: int) -> None:
        ffi.cast("uint32_t *", self.entry)[ASKER_OFFSET // 4] = asker

    def enter(self, now_ns: int) -> bool:
        return bool(lib.fgw_grant_enter(self.grantee, now_ns))

    def leave(self, now_ns: int) -> None:
        lib.fgw_grant_close(self.grantee)
        lib.fgw_grant_leave(self.grantee, False, now_ns)

    def turn(self, now_ns: int, nr_answers: int, held_ns: int = 0) -> None:
        """A whole turn, within which the guest waited so often; and for how long the GPU waited for it, beyond that."""
        assert self.enter(now_ns)
        ffi.cast("uint64_t *", self.grantee.slot)[answers_offset() // 8] += nr_answers
        lib.fgw_grant_charge_hold(self.grantee, held_ns)
        self.leave(now_ns + TURN_NS + held_ns)


def policy_of(tid: int) -> int:
    return os.sched_getscheduler(tid) & ~os.SCHED_RESET_ON_FORK


def is_usual(tid: int) -> bool:
    """Ordinary, and as nice as this test, from which it has it."""
    return policy_of(tid) == os.SCHED_OTHER and os.getpriority(os.PRIO_PROCESS, tid) == os.nice(0)


def is_boosted(tid: int, boost: Boost) -> bool:
    """As far as one can see it from outside; a way that shows nothing is taken to have worked."""
    match boost.name:
        case "real-time":
            return policy_of(tid) == os.SCHED_RR
        case "nice":
            return os.getpriority(os.PRIO_PROCESS, tid) == -19
        case _:
            return True


@pytest.fixture
def limit_s(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> float:
    """How long a boost may last: long enough to be seen, for ever where a test wants something else to end it."""
    limit: float = getattr(request, "param", 0.3)
    monkeypatch.setattr(coscheduling, "BOOST_LIMIT_NS", int(limit * 1e9))
    return limit


@pytest.fixture
def coscheduler(page: ControlPage, limit_s: float) -> Iterator[Coscheduler]:
    made = Coscheduler(page)
    made.start()
    yield made
    made.stop()


@pytest.fixture
def clock() -> Iterator[int]:
    """Times of turns, one after another."""
    return itertools.count(lib.fgw_clock_ns(), 10 * TURN_NS)


@pytest.fixture
def boost(emulator: QemuThreads) -> Boost:
    """What this kernel and these privileges allow."""
    chosen = choose(emulator.tids[0])
    if isinstance(chosen, str):
        pytest.skip(f"nothing here boosts a thread: {chosen}")
    return chosen


def hand_over(client: Client, holder: Client, now_ns: int) -> None:
    """`holder` has the GPU, `client` waits for it, and gets it."""
    assert holder.enter(now_ns)
    assert not client.enter(now_ns)
    holder.leave(now_ns + 1)
    assert client.enter(now_ns + 2)


def bell(page: ControlPage) -> int:
    return int.from_bytes(os.pread(page.objects[GRANT], 4, BELL_OFFSET), "little")


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_a_way_leaves_the_thread_as_it_was(way: Way, emulator: QemuThreads) -> None:
    tid = emulator.tids[0]
    try:
        boost = way.prepare(tid)
    except OSError as error:
        pytest.skip(f"{way.name} is not to be had here: {error}")
    trouble = boost.trouble(tid)
    assert is_usual(tid)
    if trouble:
        pytest.skip(f"{way.name} is refused here: {os.strerror(trouble)}")


def test_vcpus_are_found_by_their_names(emulator: QemuThreads) -> None:
    assert len(emulator.tids) == 2
    for number, tid in enumerate(emulator.tids):
        assert Path(f"/proc/{emulator.pid}/task/{tid}/comm").read_text() == f"CPU {number}/KVM\n"
    assert find_vcpus(UUID, os.geteuid() + 1) is None, "another user's process is not the domain's"
    assert find_vcpus(UUID.replace("5", "6"), os.geteuid()) is None
    assert vcpu_threads(Path("/proc/self")) == ()


def test_a_process_of_others_may_have_threads_of_any_name() -> None:
    named = threading.Event()
    may_end = threading.Event()

    def run() -> None:
        Path("/proc/thread-self/comm").write_bytes(b"CPU \xff/KVM")
        named.set()
        may_end.wait()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert named.wait(60)
        assert vcpu_threads(Path("/proc/self")) == ()
    finally:
        may_end.set()
        thread.join()


def test_who_waits_is_boosted_for_a_bounded_time(
    page: ControlPage, coscheduler: Coscheduler, emulator: QemuThreads, boost: Boost, clock: Iterator[int]
) -> None:
    client, holder = Client(page), Client(page)
    coscheduler.add_machine(client.vgpu, "vm", emulator)
    client.says(2)
    client.turn(next(clock), nr_answers=11)
    hand_over(client, holder, next(clock))
    wait_until(lambda: coscheduler.statistics(client.vgpu).nr_boosts == 1, "the boost is counted")
    assert is_boosted(emulator.tids[1], boost)
    assert is_usual(emulator.tids[0])
    wait_until(lambda: is_usual(emulator.tids[1]), "the boost is over")
    statistics = coscheduler.statistics(client.vgpu)
    assert (statistics.way, statistics.is_boosted, statistics.nr_refused) == (boost.name, True, 0)


@pytest.mark.parametrize("limit_s", [3600.0], indirect=True)
def test_the_next_hand_over_ends_it(
    page: ControlPage, coscheduler: Coscheduler, emulator: QemuThreads, boost: Boost, clock: Iterator[int]
) -> None:
    first, second = Client(page), Client(page)
    for number, client in enumerate((first, second)):
        coscheduler.add_machine(client.vgpu, "vm", emulator)
        client.says(number + 1)
        client.turn(next(clock), nr_answers=11)
    hand_over(first, second, next(clock))
    wait_until(lambda: coscheduler.statistics(first.vgpu).nr_boosts == 1, "the first one is boosted")
    first.leave(next(clock))
    hand_over(second, first, next(clock))
    wait_until(lambda: coscheduler.statistics(second.vgpu).nr_boosts == 1, "the second one is boosted")
    assert is_usual(emulator.tids[0])
    assert is_boosted(emulator.tids[1], boost)
    coscheduler.remove(second.vgpu)
    assert is_usual(emulator.tids[1]), "nobody whose vGPU is gone stays boosted"


@pytest.mark.parametrize("limit_s", [3600.0], indirect=True)
def test_a_daemon_that_stops_leaves_nobody_boosted(
    page: ControlPage, limit_s: float, emulator: QemuThreads, boost: Boost, clock: Iterator[int]
) -> None:
    coscheduler = Coscheduler(page)
    coscheduler.start()
    with contextlib.ExitStack() as stack:
        stack.callback(coscheduler.stop)
        client, holder = Client(page), Client(page)
        coscheduler.add_machine(client.vgpu, "vm", emulator)
        client.says(1)
        client.turn(next(clock), nr_answers=11)
        hand_over(client, holder, next(clock))
        wait_until(lambda: coscheduler.statistics(client.vgpu).nr_boosts == 1, "it is boosted")
        assert is_boosted(emulator.tids[0], boost)
    assert is_usual(emulator.tids[0])


def test_who_waits_seldom_pays_nothing(
    page: ControlPage, coscheduler: Coscheduler, emulator: QemuThreads, clock: Iterator[int]
) -> None:
    """10 answers within 10 ms of turns: the bell of the booster is not even rung."""
    client, holder = Client(page), Client(page)
    coscheduler.add_machine(client.vgpu, "vm", emulator)
    client.says(1)
    client.turn(next(clock), nr_answers=10)
    for _ in range(3):
        hand_over(client, holder, next(clock))
        client.leave(next(clock))
    assert bell(page) == 0
    client.turn(next(clock), nr_answers=1000)
    hand_over(client, holder, next(clock))
    assert bell(page) == 1
    client.leave(next(clock))
    for _ in range(100):
        client.turn(next(clock), nr_answers=0)
    rung = bell(page)
    hand_over(client, holder, next(clock))
    assert bell(page) == rung, "it is forgotten again"


def test_who_is_kept_off_its_cpu_waits_often_still(
    page: ControlPage, coscheduler: Coscheduler, emulator: QemuThreads, clock: Iterator[int]
) -> None:
    """The GPU waits for it meanwhile, which is what a boost is to shorten: only time in which the GPU is used counts."""
    client, holder = Client(page), Client(page)
    coscheduler.add_machine(client.vgpu, "vm", emulator)
    client.says(1)
    client.turn(next(clock), nr_answers=11, held_ns=8 * TURN_NS)
    hand_over(client, holder, next(clock))
    assert bell(page) == 1
    client.leave(next(clock))
    client.turn(next(clock), nr_answers=10)
    rung = bell(page)
    hand_over(client, holder, next(clock))
    assert bell(page) == rung, "nothing of it is left in the next turn"


@pytest.mark.parametrize("asker", [0, 3, 1 << 16, 0xFFFFFFFF, 0x80000001])
def test_a_hint_means_nobody_outside_the_list(
    page: ControlPage, coscheduler: Coscheduler, emulator: QemuThreads, boost: Boost, clock: Iterator[int], asker: int
) -> None:
    client, holder = Client(page), Client(page)
    coscheduler.add_machine(client.vgpu, "vm", emulator)
    client.says(asker)
    client.turn(next(clock), nr_answers=11)
    hand_over(client, holder, next(clock))
    wait_until(lambda: coscheduler.statistics(client.vgpu).nr_refused == 1, "the hint is refused")
    assert coscheduler.statistics(client.vgpu).nr_boosts == 0
    assert all(is_usual(tid) for tid in emulator.tids)


def test_threads_of_a_machine_that_ended_are_left_alone(
    page: ControlPage, coscheduler: Coscheduler, emulator: QemuThreads, boost: Boost, clock: Iterator[int]
) -> None:
    """Their numbers may be somebody else's by then."""
    client, holder = Client(page), Client(page)
    coscheduler.add_machine(client.vgpu, "vm", emulator)
    client.says(1)
    client.turn(next(clock), nr_answers=11)
    os.kill(emulator.pid, 9)
    os.waitid(os.P_PID, emulator.pid, os.WEXITED | os.WNOWAIT)
    hand_over(client, holder, next(clock))
    wait_until(lambda: coscheduler.statistics(client.vgpu).nr_refused == 1, "it is refused")


@pytest.mark.parametrize("limit_s", [3600.0], indirect=True)
def test_a_program_of_this_host(
    page: ControlPage, coscheduler: Coscheduler, boost: Boost, clock: Iterator[int]
) -> None:
    """Any thread of the vGPU's user may be named, and none of another user."""
    tid = threading.get_native_id()
    client, holder = Client(page), Client(page)
    client.says(tid)
    client.turn(next(clock), nr_answers=11)
    coscheduler.add_user(client.vgpu, "run", os.geteuid() + 1)
    hand_over(client, holder, next(clock))
    wait_until(lambda: coscheduler.statistics(client.vgpu).nr_refused == 1, "another user's thread is refused")
    client.leave(next(clock))
    client.turn(next(clock), nr_answers=11)
    coscheduler.add_user(client.vgpu, "run", os.geteuid())
    hand_over(client, holder, next(clock))
    wait_until(lambda: coscheduler.statistics(client.vgpu).nr_boosts == 1, "our own thread is boosted")
    coscheduler.remove(client.vgpu)
    assert is_usual(tid)


def test_what_a_dead_daemon_left_is_made_good(
    page: ControlPage, coscheduler: Coscheduler, emulator: QemuThreads
) -> None:
    tid = emulator.tids[1]
    try:
        os.sched_setscheduler(tid, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except PermissionError:
        pytest.skip("only a privileged daemon could have left it")
    coscheduler.add_machine(page.vgpu_take(), "vm", emulator)
    assert is_usual(tid)
    assert not os.sched_getscheduler(tid) & os.SCHED_RESET_ON_FORK


def test_a_thread_with_a_scheduling_of_its_own_is_left_alone(
    coscheduler: Coscheduler, page: ControlPage, emulator: QemuThreads
) -> None:
    try:
        os.sched_setscheduler(emulator.tids[0], os.SCHED_FIFO, os.sched_param(7))
    except PermissionError:
        pytest.skip("needs a privilege to set up")
    assert choose(emulator.tids[0]) == "the thread has a scheduling of its own"
    vgpu = page.vgpu_take()
    coscheduler.add_machine(vgpu, "vm", emulator)
    assert not coscheduler.statistics(vgpu).is_boosted
    assert os.sched_getparam(emulator.tids[0]).sched_priority == 7


def test_switched_off(page: ControlPage, emulator: QemuThreads) -> None:
    coscheduler = Coscheduler(page, coscheduling.OFF)
    coscheduler.start()
    vgpu = page.vgpu_take()
    coscheduler.add_machine(vgpu, "vm", emulator)
    assert coscheduler.statistics(vgpu).way == "switched off"
    coscheduler.stop()
