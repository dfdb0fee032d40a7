"""Calls as the worker sees them, and answers as the program gets them, with an answerer that is not a worker."""

import re
from pathlib import Path

from tests.frontend_guest.conftest import RunScene, Scene
from tests.frontend_guest.test_image_cut import ELF, LTO, PTX, container, entry

CHUNK_BYTES = 1024 * 1024


def test_copies_of_every_size(run_answered: RunScene) -> None:
    scene = run_answered("copies")
    assert scene.said == [
        "pinned right, one address yes",
        "beyond the end: CUDA_ERROR_INVALID_VALUE",
        "nowhere: CUDA_ERROR_INVALID_VALUE",
        "free inside: CUDA_ERROR_INVALID_VALUE",
        "copied",
    ]
    assert scene.errors == []
    assert "to place 0 bytes 32768 stream 0" in scene.answered
    assert "to place 1 bytes 32769 stream 0" in scene.answered
    assert "to place 2 bytes 1048576 stream 0" in scene.answered
    assert scene.answered.count(f"to place 1 bytes {CHUNK_BYTES} stream 0") == 40 + 4
    assert not [line for line in scene.answered if line.startswith("from place 0")]


def test_each_direction_keeps_its_chunks(run_answered: RunScene) -> None:
    scene = run_answered("rounds")
    sent, fetched = (
        [int(line.split()[-1]) for line in scene.answered if line.startswith(f"{way} device: chunk")]
        for way in ("to", "from")
    )
    assert (len(sent), len(fetched)) == (9, 9)
    assert sent[:3] == sent[3:6] == sent[6:]
    assert not set(sent) & set(fetched)


def test_errors_come_later(run_answered: RunScene) -> None:
    scene = run_answered("errors")
    assert sorted(scene.said[:2]) != ["next: CUDA_SUCCESS", "synchronize: CUDA_SUCCESS"]
    assert scene.said[2:] == [
        "then: CUDA_SUCCESS",
        "sticky: CUDA_ERROR_ILLEGAL_ADDRESS",
        "sticky again: CUDA_ERROR_ILLEGAL_ADDRESS",
    ]


def test_more_threads_than_slots(run_answered: RunScene) -> None:
    scene = run_answered("threads")
    assert scene.said == ["joined"]
    streams = {line.split()[-1] for line in scene.answered if line.startswith("set 1 ")}
    assert len(streams) == 300


def test_threads_in_a_small_arena_and_ring(run_answered: RunScene) -> None:
    assert run_answered("copies", FAIRGV_ARENA="128K").said[-1] == "copied"


def test_launch(run_answered: RunScene) -> None:
    scene = run_answered("launch")
    assert scene.said == [
        "missing: CUDA_ERROR_NOT_FOUND",
        "too many to run at once: CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE",
        "no grid: CUDA_ERROR_INVALID_VALUE",
        "block dimension 4096: CUDA_ERROR_INVALID_VALUE",
        "more threads than the function takes: CUDA_ERROR_INVALID_VALUE",
        "shared memory: CUDA_ERROR_INVALID_VALUE",
        "no parameters: CUDA_ERROR_INVALID_VALUE",
        "no function: CUDA_ERROR_INVALID_HANDLE",
        "no stream: CUDA_ERROR_INVALID_HANDLE",
        "no image: CUDA_ERROR_INVALID_IMAGE",
    ]
    values = "parameters 12: 1122334455667788 abcdef01"
    assert [line for line in scene.answered if line.startswith("launch")] == [
        f"launch grid 2 3 4 block 8 4 2 shared 100 stream 0 {values} flags 0 attributes 0",
        f"launch grid 1 1 1 block 1 1 1 shared 0 stream 0 {values} flags 0 attributes 0",
        f"launch grid 1 1 1 block 32 1 1 shared 0 stream 0 {values} flags 0 attributes 1",
        f"launch grid 1 1 1 block 32 1 1 shared 0 stream 0 {values} flags 1 attributes 0",
        f"launch grid 1 1 1 block 1024 1 1 shared 0 stream 0 {values} flags 0 attributes 0",
        f"launch grid 1 1 1 block 1 1 1 shared 1001 stream 0 {values} flags 0 attributes 0",
    ]
    (image,) = [line for line in scene.answered if line.startswith("image")]
    text = b".version 7.0".ljust(13, b"\0")[:12] + b" " * (200000 - 12) + b"\0"
    assert image == f"image bytes 200001 done 200001 sum {_sum(text):x}"


def test_images_are_cut_for_the_device(run_answered: RunScene, tmp_path: Path) -> None:
    """Of 8.9; not what the program wants for another one, nor what was linked from several."""
    used = [entry(ELF, 80, content=bytes(range(250)) * 400), entry(LTO, 75), entry(PTX, 75)]
    whole = container(entry(ELF, 75, content=bytes(50000)), used[0], entry(ELF, 90), *used[1:], entry(PTX, 90))
    cut = container(*used)
    (tmp_path / "image").write_bytes(whole)
    scene = run_answered("images", IMAGE=str(tmp_path / "image"))
    assert (scene.said, scene.errors) == ([], [])
    sent = [*[cut] * 4, whole, whole + bytes(-len(whole) % 8) + whole]
    assert [line for line in scene.answered if line.startswith("image")] == [
        f"image bytes {len(image)} done {len(image)} sum {_sum(image):x}" for image in sent
    ]


def test_reset_takes_everything_along(run_answered: RunScene) -> None:
    scene = run_answered("reset")
    assert scene.said == [
        "stream: CUDA_ERROR_CONTEXT_IS_DESTROYED",
        "memory: CUDA_ERROR_CONTEXT_IS_DESTROYED",
        "pinned: CUDA_ERROR_CONTEXT_IS_DESTROYED",
        "stream again: CUDA_ERROR_INVALID_HANDLE",
        "memory again: CUDA_ERROR_INVALID_VALUE",
        "released: CUDA_ERROR_CONTEXT_IS_DESTROYED",
        "released twice: CUDA_ERROR_INVALID_CONTEXT",
        "active 0",
    ]
    unregister, destroy = f"call {0xF003}", f"call {0xF006}"
    assert [line for line in scene.answered if line in (unregister, destroy) or line.startswith("context")] == [
        "context 1",
        unregister,
        destroy,
        "context 2",
        destroy,
    ]


def test_output_of_kernels_stands_in_its_place(run_answered: RunScene) -> None:
    assert run_answered("output").said == ["before", "a kernel's words", "after"]


def test_counts(run_answered: RunScene) -> None:
    scene = run_answered("launch", FAIRGV_LOG="calls")
    (line,) = scene.errors
    found = re.fullmatch(r"fairgv: (\d+) calls, (\d+) round trips, .*", line)
    assert found is not None
    assert (int(found[1]), int(found[2])) == (14, 8)


def _sum(text: bytes) -> int:
    total = 0
    for byte in text:
        total = (total * 31 + byte) % 2**64
    return total


def test_pooled_memory_is_had_again_without_the_host(run_answered: RunScene) -> None:
    scene = run_answered("pools")
    assert scene.said == ["freed twice: CUDA_ERROR_INVALID_VALUE", "left over: CUDA_ERROR_INVALID_VALUE"]
    assert scene.errors == []
    lines = [line.split()[:2] for line in scene.answered if line.split()[0] in ("take", "give", "destroy")]
    one, two = ["take", "1000"], ["take", "2000"]
    nothing_kept = [one, two, ["give", "0"], ["give", "1000"], one, two, ["give", "3000"], ["give", "4000"]]
    one_kept = [one, two, ["give", "6000"], one, ["give", "9000"], ["give", "7000"]]
    a_thousand_steps_on_each_of_two_streams = [one, two, one, two]
    kept_for_the_second = [["give", "14000"], ["give", "13000"], ["destroy"]]
    kept_for_the_first = [["give", "10000"], ["give", "11000"]]
    assert lines == [
        *nothing_kept,
        *one_kept,
        *a_thousand_steps_on_each_of_two_streams,
        *kept_for_the_second,
        *kept_for_the_first,
    ]


def words_of(scene: Scene) -> list[list[str]]:
    """Attached and detached, in the worker's order: what was done, and the offset on the device."""
    return [line.split()[:2] for line in scene.answered if line.split()[0] in ("attach", "detach")]


def test_the_word_of_two_threads_that_attach_is_the_workers_last(run_answered: RunScene) -> None:
    """Else memory of a slab is given out again while the worker writes there."""
    scene = run_answered("words")
    assert scene.said == ["freed"]
    attached, last, detached = words_of(scene)
    assert attached[0] == last[0] == "attach"
    assert detached == ["detach", last[1]]


def test_a_word_ends_with_memory_that_is_kept_for_its_stream(run_answered: RunScene) -> None:
    scene = run_answered("pooled-word")
    assert scene.said == ["had again"]
    assert [what for what, _ in words_of(scene)] == ["attach", "detach"]
