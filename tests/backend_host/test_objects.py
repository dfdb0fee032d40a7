"""The object table: one of every kind is made, saved, and made again in another process, and the device library says the same of each.

All of it under sanitizers. What is saved is what another host might send, so it is also sent wrong.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from backend_host import kinds
from tests.backend_host import played_table
from tests.backend_host.played_table import build

NOT_ON_SOFTGPU = {"graph condition"}
Play = Callable[..., Any]


@pytest.fixture(scope="module")
def library() -> Path:
    return build()


@pytest.fixture
def play(library: Path, tmp_path: Path) -> Play:
    """Runs a command of object_player.py, and returns what it left."""
    return lambda command: played_table.play(library, "object_player", command, tmp_path)


def said_of(told: list[str], kind: str) -> list[str]:
    return [line for line in told if line.startswith(f"{kind} ")]


def test_one_of_every_kind_comes_out_equal(play: Play) -> None:
    saved, restored = play("save"), play("restore")
    assert sorted(restored["told"]) == sorted(saved["told"])
    assert restored["used"] == saved["used"]
    assert restored["is_saved_alike"]


def test_a_new_context_of_the_same_process_is_equal(play: Play) -> None:
    answer = play("again")
    assert sorted(answer["again"]) == sorted(answer["told"])


def test_what_is_said_of_them_is_not_what_is_said_of_any(play: Play) -> None:
    """A program set each of these, so that objects made anew without it would differ."""
    told = play("save")["told"]
    assert ["limits 0:8192 " in line for line in said_of(told, "context")] == [True, False]
    assert ["priority -1 " in line for line in said_of(told, "stream")] == [False, True]
    assert ["elapsed 0" in line for line in said_of(told, "event")] == [True, False]
    assert [" 0:2048 " in line for line in said_of(told, "function")] == [True, False, False, False]
    assert [" 0:1024 0:-1" in line for line in said_of(told, "kernel")] == [True]
    assert ["0:12345" in line for line in said_of(told, "memory pool")] == [True]
    assert [line.partition("object ")[2].split(" ")[0] for line in said_of(told, "texture object")] == [
        "12",
        "13",
        "14",
    ]
    assert ["functions 2 variable 0 48" in line for line in said_of(told, "module")] == [True, True]


def test_a_client_changes_its_device_and_can_come_back(play: Play) -> None:
    answer = play("replay")
    assert answer["bound"] == [0] * 5
    assert answer["devices"] == [1, 1, 1]
    told, *others = answer["told"]
    assert len(said_of(told, "stream")) == 3
    assert len(said_of(told, "event")) == 5
    assert others == [told] * 3
    used, used_then, after = answer["used"]
    assert used < used_then == after


def test_who_cannot_change_its_device_stays_as_it_was(play: Play) -> None:
    answer = play("bound")
    device, objects = 1 << 10, 1 << 11
    assert answer == {"bound": [device, device, objects], "device": 0, "is_as_before": True}


def test_every_kind_is_saved_or_says_why_not(play: Play) -> None:
    told = play("save")["told"]
    answer = play("kinds")
    assert [[kind.name, kind.cannot or None] for kind in kinds.read()] == answer["rows"], "as the page tells them"
    cannot = {name: why for name, why in answer["rows"] if why}
    can = [name for name, why in answer["rows"] if not why]
    assert [name for name in can if not said_of(told, name)] == []
    assert set(cannot) == {"link", "graph", "graph node", "graph exec", "graph condition"}
    assert set(answer["said"]) == set(cannot) - NOT_ON_SOFTGPU
    for name, (kind, why) in answer["said"].items():
        assert kind == ("graph" if name == "graph node" else name), "a node's graph comes first"
        assert why == cannot[kind]


def test_an_object_that_cannot_be_saved_says_why(play: Play) -> None:
    assert play("refusals") == {
        "a captured stream": ["stream", "it is captured"],
        "a pool with memory": ["memory pool", "there is memory from it"],
        "a texture of an array that is gone": ["texture object", "the array that it reads is gone"],
        "a module whose image was not kept": ["module", "its image was not kept"],
    }


def test_what_nobody_saved_is_refused(play: Play) -> None:
    told = play("lies")
    assert told.get("made", 0) < sum(told.values()) / 20
    assert len(told) >= 8, told
