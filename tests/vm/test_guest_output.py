"""The console of a guest, cut into pieces anywhere."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from backend_host.vm.guest_output import GuestOutput, Progress
from backend_host.vm.initramfs import GuestCommand

MARKER = "@fairgv-0123456789abcdef"
COMMANDS = (GuestCommand("one"), GuestCommand("two"))
CONSOLE = (
    f"SeaBIOS\r\n\r\n{MARKER} ready\r\n{MARKER} begin 0\r\nfirst\r\n@fairgv-other end 0 0\r\nlast\r\n{MARKER} end 0 3\r\n"
    f"{MARKER} begin 1\r\nno newline\r\n{MARKER} end 1 0\r\n{MARKER} done\r\n"
).encode()


@given(st.lists(st.integers(0, len(CONSOLE))))
def test_any_cut_gives_the_same(cuts: list[int]) -> None:
    output = GuestOutput(MARKER, COMMANDS)
    borders = [0, *sorted(cuts), len(CONSOLE)]
    news = [item for i, j in itertools.pairwise(borders) for item in output.feed(CONSOLE[i:j])]
    begun_ended = [(Progress.BEGUN, 0), (Progress.ENDED, 0), (Progress.BEGUN, 1), (Progress.ENDED, 1)]
    assert news == [(Progress.READY, 0), *begun_ended, (Progress.DONE, 0)]
    first, second = output.results()
    assert (first.exit_code, first.output) == (3, "first\n@fairgv-other end 0 0\nlast")
    assert (second.exit_code, second.output) == (0, "no newline")
    assert output.is_ready
    assert output.is_done
    assert output.console().startswith("SeaBIOS")


def test_a_reset_begins_anew() -> None:
    output = GuestOutput(MARKER, COMMANDS)
    output.feed(CONSOLE[: CONSOLE.index(b"last")])
    assert output.results()[0].exit_code is None
    output.feed(CONSOLE)
    assert [result.exit_code for result in output.results()] == [3, 0]
    assert output.results()[0].output.count("first") == 1


def test_a_guest_that_died_has_no_exit_code() -> None:
    output = GuestOutput(MARKER, COMMANDS)
    output.feed(CONSOLE[: CONSOLE.index(b"no newline")] + b"half a li")
    assert [result.exit_code for result in output.results()] == [3, None]
    assert not output.is_done
