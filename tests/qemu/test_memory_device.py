"""The device fairgv-memory in a booted guest, for each QEMU that has patches: memory grows under a program, both sides see it, neither can
harm the machine.

One boot of each serves all tests, in their order, and those of test_memory_module.py. A device that a peer has broken is unplugged, and a new
one plugged.
"""

import fcntl
import mmap
import os
import re
from collections.abc import Callable

import pytest

from tests.end_to_end.host import wait_until
from tests.qemu.machine import WINDOW_BYTES
from tests.qemu.peer import HELLO, PIECE, REFUSE, RESET, WANT, Message, Peer, make_memfd
from tests.qemu.scene import Scene

pytestmark = pytest.mark.qemu

MIB = 1 << 20
MAX_PIECES = 64
IDLE, ASKING, BROKEN = range(3)
NONE, INVALID, BUSY, REFUSED, FULL, NO_PEER, PROTOCOL = range(7)


def word(memory: mmap.mmap, offset: int) -> int:
    return int.from_bytes(memory[offset : offset + 4], "little")


def test_nothing_is_there_at_first(scene: Scene) -> None:
    assert scene.status() == dict(window=WINDOW_BYTES, mapped=0, wanted=0, state=IDLE, error=NONE, changes=0, pieces=0)
    assert scene.steps("read 0", "write 0 1", f"read {WINDOW_BYTES - 4}").output.splitlines() == ["read 0x0"] * 2
    assert scene.steps(f"want {MIB}").output == f"error {NO_PEER} mapped 0"


def test_memory_grows_under_a_running_program(scene: Scene, peer: Peer) -> None:
    offset = 2 * MIB
    scene.begin(
        f"want {2 * MIB} write 4 0xf00d await 8 0xcafe fill want {5 * MIB}",
        f"write {offset + 4} 0xbeef",
        f"await {offset + 8} 0xbabe check",
    )
    want = peer.expect(WANT)
    assert (want.offset, want.nr_bytes) == (0, 2 * MIB)
    first = peer.give(want)
    wait_until(lambda: word(first, 4) == 0xF00D, "the guest writes into the first piece")
    first[8:12] = (0xCAFE).to_bytes(4, "little")

    want = peer.expect(WANT)
    assert (want.offset, want.nr_bytes) == (2 * MIB, 3 * MIB)
    assert all(word(first, each) == each // 4 for each in range(0, 2 * MIB, 4))
    second = peer.give(want, 4 * MIB)
    wait_until(lambda: word(second, 4) == 0xBEEF, "the guest writes into the second piece")
    assert word(first, 4) == 1, "the first one is where it was"
    second[8:12] = (0xBABE).to_bytes(4, "little")
    lines = scene.finish().splitlines()
    assert lines[:3] == [f"error 0 mapped {2 * MIB}", f"{2 * MIB // 4} words", f"error 0 mapped {6 * MIB}"]
    nr_words, nr_wrong = map(int, re.findall(r"\d+", lines[3]))
    assert (nr_words, nr_wrong) == (6 * MIB // 4, MIB), "what was filled stands; the piece that came is the peer's"
    status = scene.status()
    assert (status["mapped"], status["pieces"], status["error"]) == (6 * MIB, 2, NONE)
    assert scene.steps(f"want {6 * MIB} want 4096").output.splitlines() == [f"error 0 mapped {6 * MIB}"] * 2


def test_another_peer_hears_what_is_mapped(scene: Scene) -> None:
    with Peer(scene.machine.peer_path) as peer:
        assert peer.expect(HELLO).offset == 6 * MIB


def test_migration_is_refused_with_the_reason(scene: Scene) -> None:
    answer = scene.machine.command("migrate", uri="exec:cat >/dev/null")
    assert "fairgv-memory" in answer["error"]["desc"]
    assert scene.machine.is_running()


def test_reset_gives_everything_back(scene: Scene, peer: Peer) -> None:
    """And what is answered afterwards, to a question from before, is void."""
    assert scene.machine.nr_pieces_held() > 0
    scene.steps(f"ask {7 * MIB}")
    late = peer.expect(WANT)
    scene.reset()
    reset = peer.expect(RESET)
    assert (reset.id, reset.nr_bytes) == (late.id, 0)
    wait_until(lambda: scene.machine.nr_pieces_held() == 0, "QEMU has let go of all pieces")
    assert scene.status() == dict(window=WINDOW_BYTES, mapped=0, wanted=0, state=IDLE, error=NONE, changes=0, pieces=0)
    scene.begin(f"want {2 * MIB}")
    want = peer.expect(WANT)
    peer.give(late)
    peer.give(want)
    assert scene.finish() == f"error 0 mapped {2 * MIB}"
    wait_until(
        lambda: scene.machine.nr_pieces_held() == 2, "the late piece is closed: one mapping and one descriptor are left"
    )
    scene.replug()
    peer.expect(RESET)


def test_refusal_is_for_once(scene: Scene, peer: Peer) -> None:
    scene.begin(f"want {MIB} want {MIB}")
    peer.refuse(peer.expect(WANT))
    peer.give(peer.expect(WANT))
    assert scene.finish().splitlines() == [f"error {REFUSED} mapped 0", f"error 0 mapped {MIB}"]


def test_nonsense_from_the_guest(scene: Scene, peer: Peer) -> None:
    before = scene.status()
    assert scene.steps("nonsense").output == "done"
    sizes = [WINDOW_BYTES + 4096, 4097, (1 << 64) - 4096, 1 << 63, (1 << 32) + MIB]
    answer = scene.steps(*(f"want {size}" for size in sizes))
    assert answer.output.splitlines() == [f"error {INVALID} mapped {MIB}"] * len(sizes)
    after = scene.status()
    assert [after[key] for key in ("window", "mapped", "pieces", "state")] == [
        before[key] for key in ("window", "mapped", "pieces", "state")
    ]
    assert scene.machine.is_running()


def test_request_while_one_is_open(scene: Scene, peer: Peer) -> None:
    scene.steps(f"ask {2 * MIB} ask {3 * MIB} nonsense ask {4 * MIB}")
    status = scene.status()
    assert (status["state"], status["error"], status["wanted"]) == (ASKING, BUSY, 2 * MIB)
    peer.give(peer.expect(WANT))
    wait_until(lambda: scene.status()["state"] == IDLE, "the first request has ended")
    assert (scene.status()["mapped"], scene.status()["error"]) == (2 * MIB, NONE)


def test_pieces_are_bounded(scene: Scene, peer: Peer) -> None:
    free = MAX_PIECES - scene.status()["pieces"]
    sizes = [2 * MIB + 4096 * (i + 1) for i in range(free + 1)]
    scene.begin("fill", *(f"want {size}" for size in sizes), "check fill check")
    for _ in range(free):
        peer.give(peer.expect(WANT))
    *_, last, kept, _, checked = scene.finish().splitlines()
    assert last == f"error {FULL} mapped {2 * MIB + 4096 * free}"
    assert kept.endswith(f" {free * 1024} wrong")
    assert checked.endswith(" 0 wrong")


def test_peer_that_goes_away(scene: Scene) -> None:
    scene.replug()
    with Peer(scene.machine.peer_path) as peer:
        assert peer.expect(HELLO).offset == 0
        scene.begin(f"want {MIB} fill want {2 * MIB} check")
        peer.give(peer.expect(WANT))
        peer.expect(WANT)
        peer.socket.sendall(b"\x04\0\0")
    _, _, refused, checked = scene.finish().splitlines()
    assert refused == f"error {NO_PEER} mapped {MIB}"
    assert checked.endswith(" 0 wrong"), "what was mapped is there without its peer"


def test_end_of_a_request_interrupts(scene: Scene) -> None:
    scene.replug()
    with Peer(scene.machine.peer_path) as peer:
        assert peer.expect(HELLO).offset == 0
        scene.begin(f"interrupt 256 0x5a1e want {MIB}")
        memory = peer.give(peer.expect(WANT))
        assert scene.finish() == f"error 0 mapped {MIB}"
        assert word(memory, 256) == 0x5A1E
        scene.steps("write 256 0", f"interrupt 260 0x77 want {WINDOW_BYTES * 2}")
        assert (word(memory, 256), word(memory, 260)) == (0, 0x77)


def test_unplug_gives_everything_back(scene: Scene) -> None:
    with Peer(scene.machine.peer_path) as peer:
        assert peer.expect(HELLO).offset == MIB
        scene.begin(f"want {2 * MIB}")
        peer.give(peer.expect(WANT))
        scene.finish()
        scene.replug()
        peer.expect(RESET)
        assert peer.receive() is None
    wait_until(lambda: scene.machine.nr_pieces_held() == 0, "QEMU has let go of all pieces")
    with Peer(scene.machine.peer_path) as peer:
        assert peer.expect(HELLO).offset == 0
        scene.begin(f"want {MIB} fill check")
        peer.give(peer.expect(WANT))
        assert scene.finish().endswith(" 0 wrong")


def piece(want: Message, *descriptors: int, nr_bytes: int | None = None, **other: int) -> tuple[bytes, tuple[int, ...]]:
    """An answer to `want`, apart from what is named otherwise."""
    fields = {"type": PIECE, "id": want.id, "offset": want.offset, "nr_bytes": nr_bytes or want.nr_bytes, **other}
    return Message(**fields).packed(), descriptors


def read_only(nr_bytes: int) -> int:
    memory = make_memfd(nr_bytes)
    try:
        return os.open(f"/proc/self/fd/{memory}", os.O_RDONLY)
    finally:
        os.close(memory)


Wrong = Callable[[Message], tuple[bytes, tuple[int, ...]]]
WRONG_ANSWERS: dict[str, Wrong] = {
    "no descriptor": piece,
    "two descriptors": lambda want: piece(want, make_memfd(want.nr_bytes), make_memfd(want.nr_bytes)),
    "a file that is too small": lambda want: piece(want, make_memfd(want.nr_bytes - 4096)),
    "an empty file": lambda want: piece(want, make_memfd(0)),
    "memory that may shrink": lambda want: piece(want, make_memfd(want.nr_bytes, 0)),
    "memory that is sealed against writing": lambda want: piece(
        want, make_memfd(want.nr_bytes, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_WRITE)
    ),
    "memory open for reading": lambda want: piece(want, read_only(want.nr_bytes)),
    "no memory at all": lambda want: piece(want, os.open("/dev/null", os.O_RDWR)),
    "less than was wanted": lambda want: piece(want, make_memfd(want.nr_bytes), nr_bytes=want.nr_bytes - 4096),
    "more than fits": lambda want: piece(want, make_memfd(want.nr_bytes), nr_bytes=WINDOW_BYTES + 4096),
    "a size that wraps": lambda want: piece(want, make_memfd(want.nr_bytes), nr_bytes=(1 << 64) - 4096),
    "a part of a page": lambda want: piece(want, make_memfd(want.nr_bytes + 4096), nr_bytes=want.nr_bytes + 1),
    "another place": lambda want: piece(want, make_memfd(want.nr_bytes), offset=4096),
    "another question": lambda want: piece(want, make_memfd(want.nr_bytes), id=want.id + 1),
    "a refusal with memory": lambda want: piece(want, make_memfd(want.nr_bytes), type=REFUSE),
    "an unknown kind": lambda want: piece(want, type=77),
    "a version": lambda want: piece(want, make_memfd(want.nr_bytes), version=1),
    "noise": lambda _want: (b"\xff" * 100, ()),
}


@pytest.mark.parametrize("name", WRONG_ANSWERS)
def test_nonsense_from_the_peer(scene: Scene, name: str) -> None:
    scene.replug()
    with Peer(scene.machine.peer_path) as peer:
        peer.expect(HELLO)
        scene.begin(f"want {MIB} want {2 * MIB}")
        answer, descriptors = WRONG_ANSWERS[name](peer.expect(WANT))
        peer.send(answer, *descriptors)
        assert scene.finish().splitlines() == [f"error {PROTOCOL} mapped 0"] * 2
        peer.send(b"\0" * 64)
    assert scene.status()["state"] == BROKEN
    assert scene.machine.is_running()
    wait_until(lambda: scene.machine.nr_pieces_held() == 0, "QEMU has let go of what it was given")


def test_answer_that_nobody_asked_for(scene: Scene) -> None:
    scene.replug()
    with Peer(scene.machine.peer_path) as peer:
        peer.expect(HELLO)
        peer.give(Message(WANT, id=1, nr_bytes=MIB))
        wait_until(lambda: scene.status()["state"] == BROKEN, "the device has heard it")
    wait_until(lambda: scene.machine.nr_pieces_held() == 0, "QEMU has let go of what it was given")


def test_broken_is_for_good(scene: Scene) -> None:
    scene.reset()
    with Peer(scene.machine.peer_path):
        assert scene.steps(f"want {MIB}").output == f"error {PROTOCOL} mapped 0"
    scene.replug()
    with Peer(scene.machine.peer_path) as peer:
        peer.expect(HELLO)
        scene.begin(f"want {MIB}")
        peer.give(peer.expect(WANT))
        assert scene.finish() == f"error 0 mapped {MIB}"
