"""What of what a program has binds it to its device, as its handles come and go."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from backend_host.device.readings import Bound
from tests.backend_host import played_table

INVALID_VALUE = 1
Play = Callable[[str], Any]


@pytest.fixture(scope="module")
def library() -> Path:
    return played_table.build()


@pytest.fixture
def play(library: Path, tmp_path: Path) -> Play:
    """Runs a command of bound_player.py, and returns what it left."""
    return lambda command: played_table.play(library, "bound_player", command, tmp_path)


def test_objects_bind_while_they_live(play: Play) -> None:
    bound = play("objects")
    assert bound.pop("nothing") == ""
    assert {name: gone for name, (_, gone) in bound.items()} == dict.fromkeys(bound, "")
    assert {name: there for name, (there, _) in bound.items()} == {
        "a link": "LINKS",
        "a graph": "GRAPHS",
        "an instantiated graph": "GRAPHS",
        "a capture": "GRAPHS",
        "an array": "ARRAYS",
        "a mipmapped array": "ARRAYS",
        "a texture": "ARRAYS",
        "a surface": "ARRAYS",
        "an allocation": "MEMORY",
        "addresses": "MEMORY",
        "a mapping": "MEMORY",
        "exports": "SHARED",
        "imports": "SHARED",
    }


def test_who_allocates_without_a_span_stays_bound(play: Play) -> None:
    """It never gets one."""
    assert play("memory") == ["", "MEMORY", "MEMORY"]


def test_images_bind_while_they_live(play: Play) -> None:
    assert play("images") == [
        "VARIABLES",
        "VARIABLES",
        "VARIABLES|HEAP",
        "HEAP",
        "",
        "IMAGES",
        "",
        "VARIABLES|IMAGES",
        "",
    ]


def test_images_that_take_time_cannot_be_read_until_they_are(play: Play) -> None:
    assert play("slow") == ["IMAGES", "VARIABLES|IMAGES", "VARIABLES|IMAGES", "IMAGES", ""]


def test_an_address_that_was_told_binds_once_a_kernel_has_it(play: Play) -> None:
    """As long as the module is there. What is beyond a variable's ends is none of it."""
    assert play("told") == ["", INVALID_VALUE, INVALID_VALUE, "", "ADDRESSES", ""]


def test_the_daemon_is_shown_what_binds_where_images_are_kept(play: Play) -> None:
    """What was tried stands beside it."""
    assert play("shown") == [Bound.VARIABLES, Bound.VARIABLES | Bound.DEVICE, 0, Bound.DEVICE]
