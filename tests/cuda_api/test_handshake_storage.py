"""Context-local storage."""

import os
import subprocess
import threading
from ctypes import c_void_p
from pathlib import Path

import pytest

from tests.cuda_api.embedder import (
    COMPILE,
    DESTRUCTOR,
    INVALID_CONTEXT,
    INVALID_HANDLE,
    ROOT,
    SOURCES,
    SUCCESS,
    Embedder,
)


def test_what_was_put_is_got_until_it_is_deleted(embedder: Embedder) -> None:
    assert embedder.get(0x70, 0x1) == (INVALID_HANDLE, None)
    assert embedder.put(0x70, 0x1, 0xA) == SUCCESS
    assert embedder.put(0x71, 0x1, 0xB) == SUCCESS
    assert embedder.get(0x70, 0x1) == (SUCCESS, 0xA)
    assert embedder.get(0x71, 0x1) == (SUCCESS, 0xB)
    assert embedder.put(0x70, 0x1, 0xC) == SUCCESS
    assert embedder.get(0x70, 0x1) == (SUCCESS, 0xC)
    assert embedder.delete(0x70, 0x1) == SUCCESS
    assert embedder.get(0x70, 0x1) == (INVALID_HANDLE, None)
    assert embedder.get(0x71, 0x1) == (SUCCESS, 0xB)
    assert embedder.delete(0x70, 0x1) == SUCCESS
    assert embedder.delete(0x71, 0x1) == SUCCESS


@pytest.mark.parametrize("current", [None, 2**64 - 1])
def test_no_context_means_the_current_one(embedder: Embedder, current: int | None) -> None:
    assert embedder.put(current, 0x1, 0xA) == INVALID_CONTEXT
    assert embedder.get(current, 0x1) == (INVALID_CONTEXT, None)
    assert embedder.delete(current, 0x1) == INVALID_CONTEXT
    embedder.make_current(0x70)
    assert embedder.put(current, 0x1, 0xA) == SUCCESS
    assert embedder.get(0x70, 0x1) == (SUCCESS, 0xA)
    assert embedder.get(current, 0x1) == (SUCCESS, 0xA)
    embedder.make_current(0x71)
    assert embedder.get(current, 0x1) == (INVALID_HANDLE, None)
    assert embedder.delete(0x70, 0x1) == SUCCESS


def test_many_keys_outgrow_the_first_array(embedder: Embedder) -> None:
    for key in range(1, 200):
        assert embedder.put(0x70, key, 1000 + key) == SUCCESS
    for key in range(1, 200, 2):
        assert embedder.delete(0x70, key) == SUCCESS
    for key in range(1, 200):
        expected = (INVALID_HANDLE, None) if key % 2 else (SUCCESS, 1000 + key)
        assert embedder.get(0x70, key) == expected
    embedder.library.embedder_context_destroyed(c_void_p(0x70))


def test_destructors_run_once_when_the_context_goes(embedder: Embedder) -> None:
    seen: list[tuple[int, int, int]] = []
    destructor = DESTRUCTOR(lambda context, key, value: seen.append((context, key, value)))
    embedder.put(0x70, 0x1, 0xA, destructor)
    embedder.put(0x70, 0x2, 0xB, destructor)
    embedder.put(0x70, 0x3, 0xC)
    embedder.put(0x70, 0x4, 0xD, destructor)
    embedder.put(0x71, 0x1, 0xE, destructor)
    embedder.delete(0x70, 0x4)
    embedder.library.embedder_context_destroyed(c_void_p(0x70))
    assert sorted(seen) == [(0x70, 0x1, 0xA), (0x70, 0x2, 0xB)]
    assert [embedder.get(0x70, key)[0] for key in (1, 2, 3, 4)] == [INVALID_HANDLE] * 4
    embedder.library.embedder_context_destroyed(c_void_p(0x70))
    assert len(seen) == 2
    embedder.library.embedder_context_destroyed(c_void_p(0x71))
    assert seen[2:] == [(0x71, 0x1, 0xE)]


def test_a_destructor_that_stores_again_does_not_live_for_ever(embedder: Embedder) -> None:
    seen: list[int] = []

    def store_again(context: int, key: int, value: int) -> None:
        seen.append(value)
        embedder.put(context, key, value + 1, destructor)

    destructor = DESTRUCTOR(store_again)
    embedder.put(0x70, 0x1, 0xA, destructor)
    embedder.library.embedder_context_destroyed(c_void_p(0x70))
    assert seen[0] == 0xA
    assert embedder.get(0x70, 0x1) == (INVALID_HANDLE, None)


def test_another_threads_changes_are_seen_through_the_cache(embedder: Embedder) -> None:
    embedder.put(0x70, 0x1, 0xA)
    assert embedder.get(0x70, 0x1) == (SUCCESS, 0xA)
    for value in (0xB, 0xC):
        thread = threading.Thread(target=embedder.put, args=(0x70, 0x1, value))
        thread.start()
        thread.join()
        assert embedder.get(0x70, 0x1) == (SUCCESS, value)
    thread = threading.Thread(target=embedder.delete, args=(0x70, 0x1))
    thread.start()
    thread.join()
    assert embedder.get(0x70, 0x1) == (INVALID_HANDLE, None)


@pytest.mark.parametrize(
    ("flags", "nr_rounds"),
    [
        (["-O2"], 200_000),
        (["-O1", "-g", "-fsanitize=thread"], 4000),
        (["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"], 4000),
    ],
    ids=["plain", "thread", "address"],
)
def test_storage_under_threads(tmp_path: Path, flags: list[str], nr_rounds: int) -> None:
    program = tmp_path / "storage_stress"
    source = ROOT / "tests/cuda_api/storage_stress.c"
    subprocess.run([*COMPILE, *flags, "-pthread", "-o", program, source, *SOURCES], check=True)
    environment = {**os.environ, "TSAN_OPTIONS": "halt_on_error=1 die_after_fork=0"}
    command = [str(program), str(nr_rounds)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "PASS\n"), done.stderr
