"""The ring through its C functions: order, wrap-around of places and of counters, pads, a full ring, hostile records."""

import random
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ivshmem.region import Wake, ffi, lib

ALIGN: int = lib.FGV_RECORD_ALIGN
RING_BYTES: int = lib.FGV_RING_MIN_BYTES
MAX_PAYLOAD: int = lib.FGV_RECORD_MAX_BYTES - 16
KEY = 0x9E37_79B9_7F4A_7C15
STARTS = [0, RING_BYTES - ALIGN, 2**64 - ALIGN, 2**64 - RING_BYTES, 2**64 - 5 * ALIGN, 2**63]


class Ring:
    """Both ends of one ring in private memory."""

    def __init__(self, start: int = 0, ring_bytes: int = RING_BYTES, wake: Wake = Wake.FUTEX) -> None:
        self.raw: Any = ffi.new("uint8_t[]", 192 + ring_bytes + 64)
        self.ring = self.raw + (-int(ffi.cast("uintptr_t", self.raw)) % 64)
        self.ring_bytes = ring_bytes
        self.producer = ffi.new("struct fgv_producer *")
        self.consumer = ffi.new("struct fgv_consumer *")
        lib.fgv_producer_init(self.producer, self.ring, ring_bytes, start, KEY, int(wake))
        lib.fgv_consumer_init(self.consumer, self.ring, ring_bytes, KEY, int(wake))

    def reserve(self, nbytes: int) -> tuple[Any, int]:
        position = ffi.new("uint64_t *")
        record = lib.fgv_producer_reserve(self.producer, nbytes, position)
        return record, position[0]

    def commit(self, record: Any, position: int) -> None:
        lib.fgv_producer_commit(self.producer, record, position)

    def send(self, payload: bytes, response: int = lib.FGV_NO_RESPONSE) -> bool:
        record, position = self.reserve(len(payload))
        if record == ffi.NULL:
            return False
        record.response = response
        ffi.memmove(ffi.cast("uint8_t *", record) + 16, payload, len(payload))
        self.commit(record, position)
        return True

    def peek(self) -> tuple[bytes, int] | None:
        out = ffi.new("struct fgv_consumed *")
        status = lib.fgv_consumer_peek(self.consumer, out)
        assert status != lib.FGV_CONSUME_HOSTILE
        if status == lib.FGV_CONSUME_EMPTY:
            return None
        return bytes(ffi.buffer(out.payload, out.payload_bytes)), out.response

    def receive(self) -> bytes | None:
        peeked = self.peek()
        if peeked is None:
            return None
        lib.fgv_consumer_release(self.consumer)
        return peeked[0]

    def status(self) -> int:
        return int(lib.fgv_consumer_peek(self.consumer, ffi.new("struct fgv_consumed *")))

    def word(self, offset: int) -> int:
        return int.from_bytes(ffi.buffer(self.ring + offset, 8), "little")


@pytest.fixture(params=STARTS, ids=hex)
def ring(request: pytest.FixtureRequest) -> Iterator[Ring]:
    yield Ring(request.param)


def test_a_record_arrives_once_and_whole(ring: Ring) -> None:
    assert ring.receive() is None
    assert ring.send(b"hello", response=12)
    assert ring.peek() == (b"hello", 12)
    assert ring.peek() == (b"hello", 12), "peeking does not consume"
    lib.fgv_consumer_release(ring.consumer)
    assert ring.receive() is None
    lib.fgv_consumer_release(ring.consumer)
    assert ring.consumer.nr_records == 1, "releasing twice releases once"
    assert ring.send(b"")
    assert ring.peek() == (b"", lib.FGV_NO_RESPONSE)


def test_nothing_is_seen_before_it_is_committed(ring: Ring) -> None:
    first, first_position = ring.reserve(8)
    second, second_position = ring.reserve(8)
    assert (second_position - first_position) % 2**64 == ALIGN
    ring.commit(second, second_position)
    assert ring.peek() is None, "the second waits for the first"
    ring.commit(first, first_position)
    assert ring.receive() is not None
    assert ring.receive() is not None
    assert ring.receive() is None


def test_records_of_all_lengths_keep_order_through_many_laps(ring: Ring) -> None:
    chance = random.Random(1)
    waiting: list[bytes] = []
    ring.producer.keep_waiting = refuse
    for number in range(5000):
        longest = MAX_PAYLOAD if number % 50 == 0 else 500
        payload = number.to_bytes(8, "little") + chance.randbytes(chance.randrange(longest - 8))
        while not ring.send(payload):
            # Room comes back in steps, the last of it when the ring is found empty.
            assert ring.receive() == (waiting.pop(0) if waiting else None)
        waiting.append(payload)
    for payload in waiting:
        assert ring.receive() == payload
    assert ring.receive() is None
    assert ring.consumer.nr_bytes > 20 * RING_BYTES


@ffi.callback("bool(void *, uint32_t)")  # type: ignore[untyped-decorator]
def refuse(_context: object, _nr_rounds: int) -> bool:
    return False


def test_a_full_ring_gives_up_when_told_to(ring: Ring) -> None:
    asked: list[int] = []

    @ffi.callback("bool(void *, uint32_t)")  # type: ignore[untyped-decorator]
    def keep_waiting(_context: object, nr_rounds: int) -> bool:
        asked.append(nr_rounds)
        return len(asked) < 3

    ring.producer.keep_waiting = keep_waiting
    for _ in range(RING_BYTES // ALIGN):
        assert ring.send(b"x" * (ALIGN - 16))
    assert asked == []
    tail = ring.word(0)
    assert not ring.send(b"one too many")
    assert asked == [0, 1, 2]
    assert ring.word(0) == tail, "nothing was reserved"
    for _ in range(RING_BYTES // ALIGN):
        assert ring.receive() == b"x" * (ALIGN - 16)
    assert ring.receive() is None
    assert ring.send(b"and there is room again")


def test_a_producer_waits_for_room(ring: Ring) -> None:
    for _ in range(RING_BYTES // ALIGN):
        assert ring.send(b"old")
    sent = threading.Event()

    def produce() -> None:
        assert ring.send(b"new")
        sent.set()

    producer = threading.Thread(target=produce)
    producer.start()
    received: list[bytes] = []
    while not (received and received[-1] == b"new"):
        payload = ring.receive()
        if payload is not None:
            received.append(payload)
    producer.join()
    assert sent.is_set()
    assert received == [b"old"] * (RING_BYTES // ALIGN) + [b"new"]


def test_the_longest_record_fits_wherever_the_ring_stands() -> None:
    for start in range(0, RING_BYTES, 7 * ALIGN):
        ring = Ring(start)
        ring.producer.keep_waiting = refuse
        if not ring.send(b"y" * MAX_PAYLOAD):  # pad and record together are too long: the consumer takes the pad first
            assert ring.receive() is None
            assert ring.send(b"y" * MAX_PAYLOAD)
        assert ring.receive() == b"y" * MAX_PAYLOAD
        assert ring.receive() is None


def test_too_long_a_record_is_refused() -> None:
    ring = Ring()
    for nbytes in (MAX_PAYLOAD + 1, 2**31, 2**32 - 1):
        assert ring.reserve(nbytes)[0] == ffi.NULL
    assert ring.word(0) == 0


def test_a_pad_fills_the_end_exactly() -> None:
    start = 2**64 - 2 * ALIGN
    ring = Ring(start)
    assert ring.send(b"z" * 200)
    pad = 192 + (start & (RING_BYTES - 1))
    assert ring.word(pad) == start ^ KEY
    assert ring.word(pad + 8) & 0xFFFF_FFFF == 2 * ALIGN - 16
    assert ring.word(0) == 256, "tail: the pad ends at 0, the record takes four lines"
    assert ring.receive() == b"z" * 200


def test_an_old_lap_is_not_taken_for_a_new_one() -> None:
    ring = Ring()
    for _ in range(3 * RING_BYTES // ALIGN):
        assert ring.send(b"lap")
        assert ring.receive() == b"lap"
        assert ring.receive() is None


@settings(max_examples=60)
@given(
    start=st.integers(0, 2**64 // ALIGN - 1).map(lambda n: n * ALIGN),
    steps=st.lists(
        st.one_of(st.binary(max_size=300), st.sampled_from([b"m" * MAX_PAYLOAD, b"h" * 30000]), st.none()), max_size=150
    ),
)
def test_a_ring_is_a_queue(start: int, steps: list[bytes | None]) -> None:
    ring = Ring(start)
    ring.producer.keep_waiting = refuse
    queue: list[bytes] = []
    for step in steps:
        if step is not None and ring.send(step):
            queue.append(step)
        else:
            assert ring.receive() == (queue.pop(0) if queue else None)
    while queue:
        assert ring.receive() == queue.pop(0)
    assert ring.receive() is None


@pytest.mark.parametrize(
    ("payload_bytes", "kind"),
    [
        (2**32 - 1, 2),
        (2**32 - 16, 2),
        (MAX_PAYLOAD + 1, 2),
        (2**31, 2),
        (8, 0),
        (8, 3),
        (8, 0xFFFF),
        (8, 1),  # a pad that does not reach the end
        (RING_BYTES - 16, 1),  # a pad for the whole ring: at its start none is needed
        (2**32 - 1, 1),
    ],
)
def test_an_impossible_record_is_hostile(payload_bytes: int, kind: int) -> None:
    ring = Ring()
    record, position = ring.reserve(8)
    record.payload_bytes, record.kind = payload_bytes, kind
    ring.commit(record, position)
    assert ring.status() == lib.FGV_CONSUME_HOSTILE
    assert ring.status() == lib.FGV_CONSUME_HOSTILE, "and stays so"
    assert ring.consumer.head == 0


def test_a_record_across_the_end_is_hostile() -> None:
    ring = Ring(RING_BYTES - ALIGN)
    record, position = ring.reserve(8)
    record.payload_bytes = ALIGN - 15
    ring.commit(record, position)
    assert ring.status() == lib.FGV_CONSUME_HOSTILE
    record.payload_bytes = ALIGN - 16
    assert ring.status() == lib.FGV_CONSUME_RECORD


def test_pads_cannot_keep_the_consumer_going_round() -> None:
    """A ring whose every line is a committed pad to the end: one is taken, the next one, at the start, is refused."""
    ring = Ring(RING_BYTES - ALIGN)
    record, position = ring.reserve(ALIGN - 16)
    record.kind = lib.FGV_RECORD_PAD
    ring.commit(record, position)
    record, position = ring.reserve(8)
    record.kind, record.payload_bytes = lib.FGV_RECORD_PAD, RING_BYTES - 16
    ring.commit(record, position)
    assert ring.status() == lib.FGV_CONSUME_HOSTILE


@pytest.mark.parametrize("head", [1, 63, 2**64 - 1, 12345, 2**63 + 7])
def test_the_consumer_starts_at_a_line_whatever_the_guest_wrote(head: int) -> None:
    ring = Ring()
    ffi.buffer(ring.ring + 64, 8)[:] = head.to_bytes(8, "little")
    lib.fgv_consumer_init(ring.consumer, ring.ring, ring.ring_bytes, KEY, int(Wake.FUTEX))
    assert ring.consumer.head == head // ALIGN * ALIGN
    assert ring.status() == lib.FGV_CONSUME_EMPTY


def test_the_shared_head_is_never_believed() -> None:
    ring = Ring()
    assert ring.send(b"one")
    ffi.buffer(ring.ring + 64, 8)[:] = (2**64 - 1).to_bytes(8, "little")
    assert ring.receive() == b"one"
    assert ring.receive() is None
    assert ring.word(64) == ALIGN, "an empty ring publishes its head"


def test_room_is_given_back_in_steps_and_at_the_latest_when_empty() -> None:
    ring = Ring()
    nr_in_step = RING_BYTES // 8 // ALIGN
    for _ in range(nr_in_step + 5):
        ring.send(b"")
    for _ in range(nr_in_step - 1):
        ring.receive()
    assert ring.word(64) == 0
    ring.receive()
    assert ring.word(64) == nr_in_step * ALIGN
    for _ in range(5):
        ring.receive()
    assert ring.word(64) == nr_in_step * ALIGN
    assert lib.fgv_consumer_park_prepare(ring.consumer)
    assert ring.word(64) == (nr_in_step + 5) * ALIGN


def test_order_between_threads_is_the_order_of_what_happened() -> None:
    """A writes, tells B, B writes: A's record comes first, whoever runs on which core."""
    ring = Ring()
    nr = 2000
    turns = [threading.Semaphore(1), threading.Semaphore(0)]

    def produce(me: int) -> None:
        for number in range(nr):
            turns[me].acquire()
            assert ring.send(bytes([me]) + number.to_bytes(4, "little"))
            turns[1 - me].release()

    threads = [threading.Thread(target=produce, args=(me,)) for me in (0, 1)]
    for thread in threads:
        thread.start()
    for number in range(nr):
        for me in (0, 1):
            while (payload := ring.receive()) is None:
                pass
            assert payload == bytes([me]) + number.to_bytes(4, "little")
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("wake", list(Wake))
def test_parking_is_refused_when_something_arrived(wake: Wake) -> None:
    ring = Ring(wake=wake)
    ring.send(b"x")
    assert not lib.fgv_consumer_park_prepare(ring.consumer)
    assert ring.word(128) == 0
    ring.receive()
    assert lib.fgv_consumer_park_prepare(ring.consumer)
    assert ring.word(128) == 1
    lib.fgv_consumer_park_cancel(ring.consumer)
    assert ring.word(128) == 0


def test_a_commit_between_preparing_and_sleeping_keeps_the_consumer_awake() -> None:
    ring = Ring()
    assert lib.fgv_consumer_park_prepare(ring.consumer)
    ring.send(b"x")
    assert ring.word(128) == 0, "the producer took the flag"
    lib.fgv_consumer_park_sleep(ring.consumer, 600 * 10**9)  # returns at once or the test times out
    assert ring.consumer.nr_parks == 1
    assert ring.receive() == b"x"


def test_a_commit_wakes_a_sleeping_consumer() -> None:
    ring = Ring()
    for number in range(200):
        payload = number.to_bytes(4, "little")
        producer = threading.Thread(target=ring.send, args=(payload,))
        if lib.fgv_consumer_park_prepare(ring.consumer):
            producer.start()
            lib.fgv_consumer_park_sleep(ring.consumer, 600 * 10**9)
        assert ring.receive() == payload
        producer.join()
