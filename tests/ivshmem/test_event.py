"""The table of events: numbers that never go back, rows that come back, and what programs that lie there do to the host."""

import os
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ivshmem.region import NR_CLIENTS, REGION_MIN_BYTES, Region, ffi, lib

NONE, LATER = lib.FGV_EVENT_NONE, lib.FGV_EVENT_LATER
NR, NR_WORDS = lib.FGV_NR_EVENTS, lib.FGV_NR_EVENT_WORDS
NR_USED_OFFSET, EVENTS_OFFSET, EVENT_BYTES = 148, 90112, 128  # docs/region.md
KEY = 0xFA1E


@dataclass(frozen=True)
class Record:
    """One that was made."""

    word: int
    number: int
    after: int


class Event:
    """A row of the table, as the program of one client sees it."""

    def __init__(self, region: Region, index: int, client: int = 0) -> None:
        self.region, self.index, self.client = region, index, client
        self.row: Any = lib.fgv_face_event(region.c_region, index)
        self.own: dict[str, list[int]] = {}

    def claim(self, stream: str) -> Record | None:
        own = self.own.setdefault(stream, [0] * NR_WORDS)
        place, after = ffi.new("struct fgv_event_place *"), ffi.new("uint64_t *")
        if not lib.fgv_event_claim(self.row, self.client, own, place, after):
            return None
        own[place.word] = int(place.number)
        return Record(place.word, int(place.number), int(after[0]))

    def record(self, stream: str) -> Record:
        made = self.claim(stream)
        assert made is not None
        lib.fgv_event_publish(self.row, self._place(made))
        return made

    def last(self) -> tuple[int, int]:
        place = lib.fgv_event_last(self.row)
        return int(place.number), int(place.word)

    def is_done(self, record: Record) -> bool:
        return bool(lib.fgv_event_is_done(self.row, self._place(record)))

    def finish(self, record: Record) -> None:
        lib.fgv_event_finish(self.row, self._place(record))

    def write(self, record: Record) -> None:
        """As the device does: without a look."""
        poke(self.region, self.index, 4 + 2 * record.word + 1, record.number)

    def _place(self, record: Record) -> Any:
        return ffi.new("struct fgv_event_place *", {"number": record.number, "word": record.word})


def poke(region: Region, index: int, word: int, value: int) -> None:
    os.pwrite(region.fileno(), value.to_bytes(8, "little"), EVENTS_OFFSET + index * EVENT_BYTES + 8 * word)


def peek(region: Region, index: int, word: int) -> int:
    return int.from_bytes(os.pread(region.fileno(), 8, EVENTS_OFFSET + index * EVENT_BYTES + 8 * word), "little")


def take(region: Region, client: int = 0, number: int = KEY) -> int:
    return int(lib.fgv_event_take(region.c_region, client, ffi.new("uint64_t *", number)))


def key_of(maker: int, number: int = KEY) -> int:
    return number << 8 | maker + 1


def join(region: Region, index: int, client: int, key: int = key_of(0)) -> bool:
    return bool(lib.fgv_event_join(region.c_region, client, index, key))


def leave(region: Region, index: int, client: int) -> None:
    lib.fgv_event_leave(region.c_region, client, index)


def reclaim(region: Region, client: int) -> None:
    lib.fgv_events_reclaim(region.c_region, client)


def test_a_record_is_over_when_its_stream_gets_there(region: Region) -> None:
    event = Event(region, take(region))
    assert event.last() == (0, 0)
    first = event.record("a")
    assert event.last() == (1, first.word)
    assert not event.is_done(first)
    second = event.record("a")
    assert (second.word, second.after) == (first.word, 0), "one stream, one word"
    event.write(first)
    assert event.is_done(first)
    assert not event.is_done(second)
    event.write(second)
    assert event.is_done(second)


def test_streams_have_words_of_their_own(region: Region) -> None:
    event = Event(region, take(region))
    slow = event.record("slow")
    quick = event.record("quick")
    assert quick.word != slow.word
    event.write(quick)
    event.write(slow)
    assert event.is_done(quick), "a late one takes nothing back"
    assert event.last() == (quick.number, quick.word)


def test_who_was_quicker_with_a_later_number_keeps_its_word(region: Region) -> None:
    event = Event(region, take(region))
    poke(region, event.index, 4, 3 << 8 | 2)
    poke(region, event.index, 5, 3)
    made = event.record("a")
    assert (made.word, made.number) == (1, 1)
    for word in range(NR_WORDS):
        poke(region, event.index, 4 + 2 * word, 3 << 8 | 2)
        poke(region, event.index, 5 + 2 * word, 3)
    made = event.record("b")
    assert (made.word, made.number) == (0, 4), "another number, behind theirs"
    for word in range(NR_WORDS):
        poke(region, event.index, 4 + 2 * word, 1 << 40)
    assert event.claim("c") is None


def test_a_late_one_of_two_that_were_recorded_at_once_does_not_count(region: Region) -> None:
    event = Event(region, take(region))
    first, second = event.claim("a"), event.record("b")
    assert first is not None
    lib.fgv_event_publish(event.row, event._place(first))
    assert event.last() == (second.number, second.word)


def test_who_finds_no_word_waits_for_one_of_its_own_or_is_refused(region: Region) -> None:
    index = take(region)
    assert join(region, index, 1)
    event, others = Event(region, index), Event(region, index, 1)
    words = [event.record(str(i)) for i in range(NR_WORDS)]
    assert sorted(record.word for record in words) == list(range(NR_WORDS))
    assert others.claim("x") is None, "those who had the words may die"
    crowded = event.record("crowded")
    assert crowded.after == words[crowded.word].number
    event.write(words[3])
    assert others.record("x").after == 0


def test_a_key_opens_what_is_held_and_nothing_else(region: Region) -> None:
    index, key = take(region, 3), key_of(3)
    assert join(region, index, 4, key)
    assert join(region, index, 4, key), "twice"
    assert not join(region, index, 5, key + 1)
    assert not join(region, index + 1, 5, key)
    for bad in (NR, NR + 1, 1 << 31, 0xFFFFFFFF):
        assert not join(region, bad, 5, key)
        leave(region, bad, 5)
    poke(region, 9, 1, 1)
    assert not join(region, 9, 5, 0), "0 is no key"
    leave(region, index, 3)
    assert join(region, index, 6, key), "who has it can be asked for it when its maker is gone"
    for client in (4, 6):
        leave(region, index, client)
    assert not join(region, index, 7, key)
    assert take(region, 8, KEY + 1) == index
    assert not join(region, index, 7, key)


def test_events_that_were_opened_and_forgotten_are_had_again(region: Region) -> None:
    """By programs that never destroy what they open. PyTorch is one."""
    first = take(region, 3)
    assert join(region, first, 4, key_of(3))
    rest = [take(region, 5) for _ in range(NR - 1)]
    leave(region, first, 3)
    assert take(region, 6, KEY + 1) == first
    assert take(region, 6) == NONE
    assert not join(region, first, 7, key_of(3))
    assert join(region, first, 4, key_of(6, KEY + 1)), "who forgot it may have the new one"
    leave(region, first, 6)
    assert take(region, 7, KEY + 2) == first
    reclaim(region, 4)
    assert peek(region, first, 1) == 1 << 7
    assert join(region, rest[0], 4, key_of(5))
    assert join(region, rest[0], 6, key_of(5))
    leave(region, rest[0], 5)
    assert take(region, 8) == NONE, "two share it still"


def test_a_forgotten_event_with_a_record_that_is_not_over_is_left_alone(region: Region) -> None:
    rows = [take(region, 3) for _ in range(NR)]
    assert join(region, rows[8], 4, key_of(3))
    event = Event(region, rows[8], 4)
    owed = event.record("a")
    leave(region, rows[8], 3)
    assert take(region, 5) == LATER
    event.write(owed)
    assert take(region, 5, KEY + 1) == rows[8]
    assert Event(region, rows[8], 5).last() == (0, 0)


def test_a_row_is_not_given_away_while_a_device_may_write_there(region: Region) -> None:
    index = take(region)
    event = Event(region, index)
    late = event.record("a")
    leave(region, index, 0)
    assert take(region, 1) != index
    event.write(late)
    assert take(region, 2) == index
    again = Event(region, index, 2)
    assert again.last() == (0, 0)
    assert again.record("a").number > late.number, "numbers go on"


def test_of_all_that_are_free_each_may_be_outstanding(region: Region) -> None:
    rows = [take(region) for _ in range(NR)]
    event = Event(region, rows[7])
    owed = event.record("a")
    leave(region, rows[7], 0)
    assert take(region, 1) == LATER
    event.write(owed)
    assert take(region, 1) == rows[7]
    assert take(region, 1) == NONE


def test_a_full_table_and_a_program_that_dies(region: Region) -> None:
    rows = [take(region, client % 2) for client in range(NR)]
    assert rows == list(range(NR))
    assert take(region, 2) == NONE
    reclaim(region, 1)
    assert [take(region, 2) for _ in range(NR // 2)] == rows[1::2]
    assert take(region, 2) == NONE


def test_what_a_dead_client_owes_is_over_and_what_others_owe_is_not(region: Region) -> None:
    index = take(region, 1)
    assert join(region, index, 2, key_of(1))
    dead, lives = Event(region, index, 1), Event(region, index, 2)
    owed, running = dead.record("a"), lives.record("a")
    lib.fgv_events_finish(region.c_region, 1)
    assert dead.is_done(owed)
    assert not lives.is_done(running)
    assert join(region, index, 3, key_of(1)), "held nevertheless"
    reclaim(region, 1)
    assert peek(region, index, 1) == 0b1100
    reclaim(region, 2)
    assert lives.is_done(running)
    reclaim(region, 3)
    assert not join(region, index, 4, key_of(1))


def test_the_host_looks_at_no_row_that_was_never_used(region: Region) -> None:
    poke(region, 5, 1, 1)
    reclaim(region, 0)
    assert peek(region, 5, 1) == 1
    assert take(region) == 0
    assert int.from_bytes(os.pread(region.fileno(), 4, NR_USED_OFFSET), "little") == 1


@pytest.mark.parametrize("nr_used", [0, NR, NR + 1, 0xFFFFFFFF])
@pytest.mark.parametrize("value", [0, 1, 0x101, 1 << 63, (1 << 64) - 1])
def test_words_of_any_value_cost_the_host_nothing_beyond_the_table(region: Region, nr_used: int, value: int) -> None:
    events = value.to_bytes(8, "little") * (NR * EVENT_BYTES // 8)
    os.pwrite(region.fileno(), events, EVENTS_OFFSET)
    os.pwrite(region.fileno(), nr_used.to_bytes(4, "little"), NR_USED_OFFSET)
    before = os.pread(region.fileno(), REGION_MIN_BYTES, 0)
    for client in (*range(NR_CLIENTS), NR_CLIENTS, 0xFFFFFFFF):
        lib.fgv_events_finish(region.c_region, client)
        reclaim(region, client)
    after = os.pread(region.fileno(), REGION_MIN_BYTES, 0)
    end = EVENTS_OFFSET + NR * EVENT_BYTES
    assert before[:EVENTS_OFFSET] == after[:EVENTS_OFFSET]
    assert before[end:] == after[end:]
    place = lib.fgv_event_last(lib.fgv_face_event(region.c_region, 0))
    assert place.word < NR_WORDS


_steps = st.lists(st.tuples(st.sampled_from(["record", "write"]), st.integers(0, 1), st.integers(0, 7)), max_size=80)


@settings(max_examples=100)
@given(_steps)
def test_no_word_goes_back(steps: list[tuple[str, int, int]]) -> None:
    """Streams of two programs get to their records in order, whichever stream is first."""
    fd = os.memfd_create("events")
    os.ftruncate(fd, REGION_MIN_BYTES)
    with Region("events", fd, REGION_MIN_BYTES) as region:
        region.format(table_hash=1)
        index = take(region)
        assert join(region, index, 1)
        programs = [Event(region, index, client) for client in (0, 1)]
        queues: dict[tuple[int, int], list[Record]] = {}
        reached = [0] * NR_WORDS
        for action, client, stream in steps:
            queue = queues.setdefault((client, stream), [])
            if action == "record":
                made = programs[client].claim(str(stream))
                queue += [made] if made else []
            elif action == "write" and queue and queue[0].after <= reached[queue[0].word]:
                record = queue.pop(0)
                assert record.number > reached[record.word]
                reached[record.word] = record.number
                programs[client].write(record)
        assert [peek(region, index, 4 + 2 * word + 1) for word in range(NR_WORDS)] == reached
