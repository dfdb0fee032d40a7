"""Kernels of one space run beside each other, on multiprocessors with room; outside of spaces one at a time."""

from __future__ import annotations

import mmap
import random
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.softgpu.asking import Other
from tests.softgpu.driver_harness import TIMEOUT_S, Device, heard, kill, tell

pytestmark = pytest.mark.usefixtures("driver_cases")

SEED = 20261127
NR_MULTIPROCESSORS = 16
WHOLE = 96
"""A multiprocessor, in the weights of the blocks here."""

PAGE_BYTES = 65536
MOST, BEGUN, ENDED, LOG = 16, 32, 33, 256
"""Words of the page (driver_cases_space.c); before them what each multiprocessor has now."""
STOP, STOP_TOO, COUNT = 40, 41, 42
"""Words that kernels are launched with."""

NEXT_TICKET, RUNS = 8, 64 + 16 * 4096
RUN = struct.Struct("<QII16Q")
"""In the file of a device: state_records.h."""


@dataclass(frozen=True)
class Size:
    """Of a block, by its shared memory."""

    shared_bytes: int
    fit: int

    @property
    def weight(self) -> int:
        return WHOLE // self.fit


LARGE, SMALL = Size(49152, 3), Size(0, 32)


@dataclass(frozen=True)
class Began:
    """What a block wrote when it began."""

    tag: int
    multiprocessor: int
    is_set: bool
    """Its word was."""


def until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + TIMEOUT_S
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.001)


class Page:
    """What all kernels of a test share."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_bytes(bytes(PAGE_BYTES))
        with path.open("r+b") as file:
            self._words = memoryview(mmap.mmap(file.fileno(), PAGE_BYTES)).cast("I")

    def __getitem__(self, word: int) -> int:
        return self._words[word]

    def set(self, word: int) -> None:
        self._words[word] = 1

    def waits_for(self, word: int, value: int) -> None:
        until(lambda: self[word] == value)

    def log(self) -> list[Began]:
        words = [self[LOG + i] for i in range(self[BEGUN])]
        return [Began(word & 0xFF, word >> 8 & 0xFF, bool(word >> 16)) for word in words]

    def tags(self) -> list[int]:
        return [began.tag for began in self.log()]

    def most(self) -> list[int]:
        return [self[MOST + i] for i in range(NR_MULTIPROCESSORS)]

    def is_bounded(self) -> bool:
        """No multiprocessor ever had more than fits, and all blocks that began have ended."""
        return max(self.most()) <= WHOLE and not any(self[i] for i in range(NR_MULTIPROCESSORS))


class Process(Other):
    """One that launches what it is told."""

    def __init__(self, device: Device, page: Page) -> None:
        super().__init__(device, "space", str(page.path))
        self.settings = device.settings

    def launches(self, kernel: str, blocks: int, size: Size, tag: int, word: int = STOP) -> None:
        assert self.does(f"{kernel} {blocks} {size.shared_bytes} {size.weight} {tag} {word}") == "launched"

    def is_done(self) -> bool:
        answer = self.does("query")
        assert answer in ("query CUDA_SUCCESS", "query CUDA_ERROR_NOT_READY")
        return answer == "query CUDA_SUCCESS"

    def waits(self) -> None:
        assert self.does("wait") == "wait CUDA_SUCCESS"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The kernels here are compiled once."""
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def device(tmp_path: Path, cache: str) -> Iterator[Device]:
    device = Device(tmp_path, {"FAIRGV_SOFTGPU_CACHE": cache})
    yield device
    device.close()


@pytest.fixture
def page(tmp_path: Path) -> Page:
    return Page(tmp_path / "page")


def in_space(device: Device, name: str = "one", *, is_low: bool = False, wall: str = "0") -> Device:
    settings = {"FAIRGV_SOFTGPU_SPACE": name, "CUDA_MPS_CLIENT_PRIORITY": str(int(is_low)), "FAIRGV_SOFTGPU_WALL": wall}
    return device.with_settings(**settings)


def records(device: Device) -> Iterator[tuple[int, int, int, list[int]]]:
    """Of the kernels of spaces: ticket, whether it is low, how many of its blocks wait, what it takes of each multiprocessor."""
    content = device.state.read_bytes()[RUNS:]
    for ticket, is_low, nr_waiting, *units in RUN.iter_unpack(content[: len(content) // RUN.size * RUN.size]):
        yield ticket, is_low, nr_waiting, units


def nr_waiting(device: Device) -> int:
    return sum(nr > 0 for _, _, nr, _ in records(device))


def next_ticket(device: Device) -> int:
    return int(struct.unpack_from("<Q", device.state.read_bytes(), NEXT_TICKET)[0])


@pytest.mark.parametrize("wall", ["0", "1"])
def test_a_kernel_ends_beside_one_of_another_process_that_does_not(device: Device, page: Page, wall: str) -> None:
    endless, brief = (Process(in_space(device, wall=wall), page) for _ in range(2))
    endless.launches("occupy", 4, LARGE, tag=1)
    page.waits_for(BEGUN, 4)
    brief.launches("brief", 100, LARGE, tag=2)
    brief.waits()
    assert not endless.is_done()
    page.set(STOP)
    endless.waits()
    assert sorted(page.tags()) == [1] * 4 + [2] * 100
    assert page.is_bounded()


@pytest.mark.parametrize("who", ["nobody", "another space", "one of no space beside one of a space", "the contrary"])
def test_who_is_not_of_one_space_waits(device: Device, page: Page, who: str) -> None:
    one, other = {
        "nobody": (device, device),
        "another space": (in_space(device, "one"), in_space(device, "two")),
        "one of no space beside one of a space": (device, in_space(device)),
        "the contrary": (in_space(device), device),
    }[who]
    endless, brief = Process(one, page), Process(other, page)
    endless.launches("occupy", 4, LARGE, tag=1)
    page.waits_for(BEGUN, 4)
    brief.launches("brief", 10, LARGE, tag=2)
    until(lambda: next_ticket(device) == 2)
    assert not brief.is_done()
    page.set(STOP)
    endless.waits()
    brief.waits()
    assert [began.is_set for began in page.log()] == [False] * 4 + [True] * 10


@pytest.mark.parametrize("is_of_another", [False, True])
def test_a_space_takes_its_turn_as_one(device: Device, page: Page, is_of_another: bool) -> None:
    """Whoever joins its turn runs at once, also while one outside waits; who comes when its first ones have ended is behind that."""
    first, second = Process(in_space(device), page), Process(in_space(device), page)
    outside = Process(in_space(device, "another") if is_of_another else device, page)
    first.launches("occupy", 1, SMALL, tag=1, word=STOP)
    page.waits_for(BEGUN, 1)
    outside.launches("brief", 1, SMALL, tag=2)
    until(lambda: next_ticket(device) == 2)
    second.launches("occupy", 1, SMALL, tag=3, word=STOP_TOO)
    page.waits_for(BEGUN, 2)
    page.set(STOP)
    first.waits()
    first.launches("brief", 1, SMALL, tag=4)
    until(lambda: next_ticket(device) == 4)
    assert not outside.is_done()
    assert not first.is_done()
    page.set(STOP_TOO)
    for process in (outside, first, second):
        process.waits()
    assert page.tags() == [1, 3, 2, 4]


@pytest.mark.parametrize("wall", ["0", "1"])
def test_kernels_of_one_process_run_beside_each_other_in_a_space(device: Device, page: Page, wall: str) -> None:
    process = Process(in_space(device, wall=wall), page)
    process.launches("occupy", 4, LARGE, tag=1)
    page.waits_for(BEGUN, 4)
    process.launches("brief", 100, SMALL, tag=2)
    until(process.is_done)
    page.set(STOP)
    process.waits()
    assert page.tags() == [1] * 4 + [2] * 100
    assert not any(began.is_set for began in page.log())


@pytest.mark.parametrize("wall", ["0", "1"])
def test_blocks_begin_where_there_is_room(device: Device, page: Page, wall: str) -> None:
    one, other = (Process(in_space(device, wall=wall), page) for _ in range(2))
    one.launches("occupy", 30, LARGE, tag=1, word=STOP)
    page.waits_for(BEGUN, 30)
    assert [page[i] for i in range(NR_MULTIPROCESSORS)] == [2 * LARGE.weight] * 14 + [LARGE.weight] * 2
    other.launches("occupy", 600, SMALL, tag=2, word=STOP_TOO)
    room = 14 * (LARGE.weight // SMALL.weight) + 2 * (2 * LARGE.weight // SMALL.weight)
    page.waits_for(BEGUN, 30 + room)
    page.set(STOP)
    one.waits()
    page.waits_for(BEGUN, 30 + NR_MULTIPROCESSORS * SMALL.fit)
    page.set(STOP_TOO)
    other.waits()
    assert page[ENDED] == 630
    assert page.is_bounded()
    assert {began.multiprocessor for began in page.log()} == set(range(NR_MULTIPROCESSORS))


@pytest.mark.parametrize("kernel", ["brief", "occupy"])
@pytest.mark.parametrize("is_low", [True, False])
def test_blocks_of_who_is_low_begin_behind_others(device: Device, page: Page, is_low: bool, kernel: str) -> None:
    """With room for one. Else who came first is first, with all of its blocks, whether these might wait for each other or not."""
    holder, early, late = (Process(in_space(device, is_low=low), page) for low in (False, is_low, False))
    all_but_one = NR_MULTIPROCESSORS * LARGE.fit - 1
    holder.launches("occupy", all_but_one, LARGE, tag=1, word=STOP)
    holder.launches("occupy", 1, LARGE, tag=2, word=STOP_TOO)
    page.waits_for(BEGUN, all_but_one + 1)
    early.launches(kernel, 200, LARGE, tag=3, word=STOP_TOO)
    until(lambda: nr_waiting(device) == 1)
    late.launches(kernel, 200, LARGE, tag=4, word=STOP_TOO)
    until(lambda: nr_waiting(device) == 2)
    page.set(STOP_TOO)
    early.waits()
    late.waits()
    assert page.tags()[all_but_one + 1 :] == ([4] * 200 + [3] * 200 if is_low else [3] * 200 + [4] * 200)
    page.set(STOP)
    holder.waits()
    assert page.is_bounded()


@pytest.mark.parametrize("wall", ["0", "1"])
def test_who_holds_all_places_keeps_others_waiting_until_blocks_end(device: Device, page: Page, wall: str) -> None:
    low, critical = Process(in_space(device, is_low=True, wall=wall), page), Process(in_space(device, wall=wall), page)
    places = NR_MULTIPROCESSORS * LARGE.fit
    low.launches("occupy", places - 8, LARGE, tag=1, word=STOP_TOO)
    page.waits_for(BEGUN, places - 8)
    low.launches("occupy", 1000, LARGE, tag=2, word=STOP)
    page.waits_for(BEGUN, places)
    critical.launches("brief", 20, SMALL, tag=3, word=STOP)
    until(lambda: nr_waiting(device) == 2)
    assert not critical.is_done()
    page.set(STOP)
    critical.waits()
    page.set(STOP_TOO)
    low.waits()
    assert all(began.is_set for began in page.log() if began.tag == 3)
    assert page[ENDED] == places - 8 + 1000 + 20
    assert page.is_bounded()


@pytest.mark.parametrize("wall", ["0", "1"])
def test_cooperative_kernels_have_all_their_places_at_once(device: Device, page: Page, wall: str) -> None:
    """Each of two that need more than half of the device; with a part of its places each would wait for ever."""
    processes = [Process(in_space(device, wall=wall), page) for _ in range(2)]
    for turn in range(5):
        for i, process in enumerate(processes):
            process.launches("gather", 40, LARGE, tag=i, word=COUNT + 2 * turn + i)
        for process in processes:
            process.waits()
    assert page[ENDED] == 400
    assert page.is_bounded()


@contextmanager
def a_kernel_everywhere(device: Device, page: Page) -> Iterator[None]:
    """One that is given all places of the device."""
    nr = NR_MULTIPROCESSORS * SMALL.fit
    begun = page[BEGUN]
    process = Process(device, page)
    process.launches("occupy", nr, SMALL, tag=9, word=STOP)
    page.waits_for(BEGUN, begun + nr)
    yield
    page.set(STOP)
    process.waits()


@pytest.mark.parametrize("wall", ["0", "1"])
def test_places_of_the_killed_come_back(device: Device, page: Page, wall: str) -> None:
    """Each of two processes is killed again and again, wherever it is; the other goes on."""
    chance = random.Random(SEED)
    devices = [in_space(device, is_low=low, wall=wall) for low in (False, True)]
    sizes = [(60, LARGE), (700, SMALL)]

    def begin(i: int) -> Process:
        process = Process(devices[i], page)
        process.launches("brief", *sizes[i], tag=i)
        process.waits()
        tell(process.process, "again")
        return process

    processes = [begin(0), begin(1)]
    for _ in range(50):
        time.sleep(chance.random() * 0.02)
        i = chance.randrange(2)
        kill(processes[i].process)
        nr_kernels = device.nr_kernels()
        until(lambda: device.nr_kernels() >= nr_kernels + 3)  # noqa: B023
        processes[i] = begin(i)
    for process in processes:
        kill(process.process)
    with a_kernel_everywhere(devices[0], page):
        taken = [units for _, _, _, units in records(device) if any(units)]
        assert [sum(units) for units in zip(*taken, strict=True)] == [144403552893600] * NR_MULTIPROCESSORS


@pytest.mark.parametrize("wall", ["0", "1"])
def test_who_is_killed_while_his_kernel_runs_gives_its_places_back(device: Device, page: Page, wall: str) -> None:
    holder, waiting = (Process(in_space(device, wall=wall), page) for _ in range(2))
    holder.launches("occupy", NR_MULTIPROCESSORS * LARGE.fit, LARGE, tag=1)
    page.waits_for(BEGUN, NR_MULTIPROCESSORS * LARGE.fit)
    waiting.launches("brief", 10, LARGE, tag=2)
    until(lambda: nr_waiting(device) == 1)
    kill(holder.process)
    waiting.waits()
    assert page.tags()[-10:] == [2] * 10
    assert not any(any(units) or nr for _, _, nr, units in records(device))


@pytest.mark.parametrize("wall", ["0", "1"])
def test_memory_that_two_processes_map_changes_under_a_kernel(device: Device, wall: str) -> None:
    space = in_space(device, wall=wall)
    asker, answerer = space.start_case("relay_ask"), space.start_case("relay_answer")
    tell(answerer, heard(asker))
    assert heard(answerer) == "launched"
    tell(asker)
    assert [heard(asker) for _ in range(5)] == [*(f"way {i}" for i in range(1, 5)), "PASS"]
    assert heard(answerer) == "PASS"


@pytest.mark.parametrize("wall", ["0", "1"])
@pytest.mark.parametrize("nr_ways", [3, 4])
def test_memory_changes_under_a_kernel_of_the_same_process(device: Device, wall: str, nr_ways: int) -> None:
    """Values, sets and copies outside of a space, too; another kernel there only."""
    here = in_space(device, wall=wall) if nr_ways == 4 else device.with_settings(FAIRGV_SOFTGPU_WALL=wall)
    result = here.run_case("relay_here", str(nr_ways))
    assert result.stdout.splitlines() == [*(f"way {i}" for i in range(1, nr_ways + 1)), "PASS"]


def test_the_kernels_process_has_no_way_to_the_places(device: Device, page: Page) -> None:
    process = Process(in_space(device, wall="1"), page)
    process.launches("occupy", 1, SMALL, tag=1)
    page.waits_for(BEGUN, 1)
    children = Path(f"/proc/{process.pid}/task").glob("*/children")
    [child] = [int(number) for each in children for number in each.read_text().split()]
    descriptors = [each.readlink() for each in Path(f"/proc/{child}/fd").iterdir()]
    assert device.state not in descriptors
    assert device.state in [each.readlink() for each in Path(f"/proc/{process.pid}/fd").iterdir()]
    assert str(device.state) not in Path(f"/proc/{child}/maps").read_text()
    page.set(STOP)
    process.waits()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"FAIRGV_SOFTGPU_SPACE": ""}, "FAIRGV_SOFTGPU_SPACE="),
        ({"FAIRGV_SOFTGPU_SPACE": "a/b"}, "FAIRGV_SOFTGPU_SPACE=a/b"),
        ({"FAIRGV_SOFTGPU_SPACE": "é"}, "FAIRGV_SOFTGPU_SPACE=é"),
        ({"FAIRGV_SOFTGPU_SPACE": "a" * 64}, "FAIRGV_SOFTGPU_SPACE=aaaa"),
        ({"FAIRGV_SOFTGPU_SPACE": "one", "CUDA_MPS_CLIENT_PRIORITY": "2"}, "CUDA_MPS_CLIENT_PRIORITY=2"),
        ({"FAIRGV_SOFTGPU_SPACE": "one", "CUDA_MPS_CLIENT_PRIORITY": ""}, "CUDA_MPS_CLIENT_PRIORITY="),
    ],
)
def test_rubbish_in_a_setting_is_said_and_refused(device: Device, settings: dict[str, str], said: str) -> None:
    result = device.with_settings(**settings).run_case("works")
    assert "cuInit(0) gave CUDA_ERROR_INVALID_VALUE" in result.stdout
    [line] = result.stderr.splitlines()
    assert line.startswith(f"softgpu: {said}")


def test_names_and_priorities_that_are_right_are_taken(device: Device) -> None:
    for settings in (
        {"FAIRGV_SOFTGPU_SPACE": "a-B_9" * 12 + "end"},
        {"FAIRGV_SOFTGPU_SPACE": "one", "CUDA_MPS_CLIENT_PRIORITY": "1"},
        {"CUDA_MPS_CLIENT_PRIORITY": "of no space"},
    ):
        result = device.with_settings(**settings).run_case("works")
        assert (result.stdout, result.stderr) == ("PASS\n", "")


def test_rubbish_in_the_file_is_no_one_who_lives(device: Device, page: Page) -> None:
    process = Process(in_space(device), page)
    process.launches("brief", 10, LARGE, tag=1)
    process.waits()
    with device.state.open("r+b") as state:
        state.seek(RUNS)
        state.write(b"\xff" * 100 * RUN.size)
    process.launches("brief", 10, LARGE, tag=2)
    process.waits()
    assert page.tags() == [1] * 10 + [2] * 10
