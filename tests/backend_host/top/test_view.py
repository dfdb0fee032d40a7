"""The view of `top`: what its keys do, and what it says when the daemon does not answer. The daemon is made up, but for one test."""

import asyncio
import threading
from pathlib import Path

import pytest
from textual.app import App
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widgets import OptionList, Static

from backend_host.errors import DaemonNotRunningError, RefusedError
from backend_host.ipc import Connection, Message, Server
from backend_host.top.app import Top
from backend_host.top.asking import Asker
from backend_host.top.figures import Looks
from backend_host.top.keys import Keys
from backend_host.top.pages import Page, WeightQuestion
from tests.backend_host.top.looking import MadeUp, after, lines_of, played, press, settle, status_at, view_of

HAND_OVER = {"sequence": 1, "at_ns": 5, "from": None, "to": "vm1", "why": "slice", "phase": None, "gap_ns": None}
MANY = tuple(f"machine-{nr:02}" for nr in range(40))


def names(app: App[None]) -> list[str | None]:
    """From the top."""
    return [option.id for option in app.query_one(OptionList).options]


def selected(app: App[None]) -> list[str]:
    return [line.split()[1] for line in lines_of(app) if line.startswith("▸ ")]


def said(app: App[None]) -> str:
    """The sentence at the bottom."""
    shown = app.screen_stack[0].query_one("#said", Static)
    return str(shown.content) if shown.display else ""


def test_a_look_each_time_it_is_asked() -> None:
    async def play(pilot: Pilot[None], daemon: MadeUp) -> None:
        assert "20.0%    30.0%" not in "\n".join(lines_of(pilot.app))
        await press(pilot, "space")
        assert "20.0%    30.0%" in "\n".join(lines_of(pilot.app))
        assert daemon.asked == [("status", {})]

    played(play, MadeUp(), nr_looks=1)


def test_the_selected_one_stays_so_wherever_it_goes() -> None:
    async def play(pilot: Pilot[None], daemon: MadeUp) -> None:
        assert names(pilot.app) == ["vm2", "vm1", "vm0"]
        assert selected(pilot.app) == ["vm2"]
        await press(pilot, "down")
        assert selected(pilot.app) == ["vm1"]
        await press(pilot, "down", "up", "up", "down", "down")
        assert selected(pilot.app) == ["vm0"]
        for order, sorted_names in (
            ("name", ["vm0", "vm1", "vm2"]),
            ("memory", ["vm0", "vm1", "vm2"]),
            ("wait", ["vm2", "vm1", "vm0"]),
            ("share", ["vm2", "vm1", "vm0"]),
        ):
            await press(pilot, "s")
            assert names(pilot.app) == sorted_names
            assert selected(pilot.app) == ["vm0"]
            assert f"sorted by {order}," in lines_of(pilot.app)[0]
        daemon.names = ("vm1", "vm2")
        await press(pilot, "space")
        assert selected(pilot.app) == [names(pilot.app)[0]], "it is gone: the first"

    played(play, MadeUp(5))


def test_many_are_scrolled() -> None:
    async def play(pilot: Pilot[None], daemon: MadeUp) -> None:
        await press(pilot, "s")
        assert selected(pilot.app) == names(pilot.app)[36:37], "those of 5 % go by their names"
        await press(pilot, "home")
        assert selected(pilot.app) == [MANY[0]]
        await press(pilot, *["down"] * 30)
        assert selected(pilot.app) == [MANY[30]], "it is to be seen"

    played(play, MadeUp(5, MANY), names=MANY)


@pytest.mark.parametrize(
    ("keys", "weight"),
    [
        (["plus", "enter"], 4),
        (["minus", "y"], 2),
        (["plus", "plus", "plus", "minus", "y"], 5),
        (["plus", "escape"], None),
        (["plus", "n"], None),
        (["plus", "minus", "y"], None),
        (["minus", "minus", "minus", "minus", "enter"], 1),
    ],
)
def test_weights_are_asked_for_and_sent(keys: list[str], weight: int | None) -> None:
    async def play(pilot: Pilot[None], daemon: MadeUp) -> None:
        await press(pilot, keys[0])
        assert isinstance(pilot.app.screen, WeightQuestion)
        assert daemon.asked == [], "nothing is sent before the answer"
        await press(pilot, *keys[1:])
        assert not isinstance(pilot.app.screen, WeightQuestion)
        sent = [asked for asked in daemon.asked if asked[0] == "set"]
        assert sent == ([("set", {"name": "vm2", "weight": weight})] if weight else [])
        assert said(pilot.app) == (f"vm2: weight {weight}" if weight else "")

    played(play, MadeUp(5))


def test_a_weight_that_cannot_be() -> None:
    async def play(pilot: Pilot[None], daemon: MadeUp) -> None:
        await press(pilot, "down", "down", "minus")
        assert "vm0: weight 1 stays; a weight is a whole number from 1 to 10000" in "\n".join(lines_of(pilot.app))

    played(play, MadeUp(5))


def test_a_refusal_is_a_sentence() -> None:
    async def play(pilot: Pilot[None], daemon: MadeUp) -> None:
        await press(pilot, "plus", "y")
        assert said(pilot.app) == "vm2 belongs to [b]another[/b] user"
        assert said(pilot.app) in "\n".join(lines_of(pilot.app))
        await press(pilot, "s")
        assert said(pilot.app) == ""

    daemon = MadeUp(5)
    daemon.refusal = RefusedError("vm2 belongs to [b]another[/b] user")
    played(play, daemon)


def test_the_daemon_ends_and_comes_back() -> None:
    async def play(pilot: Pilot[None], daemon: MadeUp) -> None:
        daemon.fault = DaemonNotRunningError("no daemon listens on SOCKET")
        for _ in range(2):
            await press(pilot, "space")
            assert said(pilot.app).startswith("no daemon listens on SOCKET.")
        assert selected(pilot.app) == ["vm2"], "its last figures"
        await press(pilot, "plus", "y")
        assert said(pilot.app) == "no daemon listens on SOCKET"
        daemon.fault = None
        await press(pilot, "space")
        assert said(pilot.app) == "the daemon answers again"
        daemon.changes = {"pid": 4712}
        await press(pilot, "space")
        assert said(pilot.app) == "the daemon was started anew, as process 4712"

    played(play, MadeUp(5))


def test_programs_of_the_selected_one() -> None:
    async def play(pilot: Pilot[None], daemon: MadeUp) -> None:
        await press(pilot, "down", "enter")
        assert isinstance(pilot.app.screen, Page)
        text = "\n".join(lines_of(pilot.app))
        assert "Programs of vm1" in text
        assert "worker" in text
        daemon.names = ("vm0",)
        await press(pilot, "escape", "space", "enter")
        assert "Programs of vm0" in "\n".join(lines_of(pilot.app))

    played(play, MadeUp(5))


def test_hand_overs_come_and_go_on() -> None:
    async def play(pilot: Pilot[None], daemon: MadeUp) -> None:
        await press(pilot, "h")
        assert "no hand-over yet" in "\n".join(lines_of(pilot.app))
        daemon.hand_overs = [HAND_OVER]
        pilot.app.action_look()  # type: ignore[attr-defined] # as each second
        await settle(pilot)
        assert any("vm1" in line and "slice" in line for line in lines_of(pilot.app))
        await press(pilot, "escape")
        await press(pilot, "space")
        assert daemon.asked.count(("grants", {"after": 0, "gpu": "0"})) == 2, "not when nobody reads them"

    played(play, MadeUp(5))


def test_keys_are_told_with_the_first_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whenever Textual comes to say that keys may have changed: here, never."""
    monkeypatch.setattr(Screen, "refresh_bindings", lambda self: None)

    async def play(pilot: Pilot[None], daemon: MadeUp) -> None:
        assert lines_of(pilot.app)[-1] == " Enter Programs  q End  + - Weight  s Sort  h Hand-overs  ? Help"

    played(play, MadeUp(5))


@pytest.mark.parametrize("key", ["Enter", "+ -", "h", "?"])
def test_a_click_on_a_key_does_what_it_does(key: str) -> None:
    async def play(pilot: Pilot[None], daemon: MadeUp) -> None:
        await pilot.click(Keys, offset=(lines_of(pilot.app)[-1].index(f" {key} ") + 1, 0))
        await settle(pilot)
        assert isinstance(pilot.app.screen, WeightQuestion if key == "+ -" else Page)

    played(play, MadeUp(5))


def test_a_page_that_is_still_being_made_when_figures_come() -> None:
    """All of that is drawn, by the page itself."""

    async def play(pilot: Pilot[None], daemon: MadeUp) -> None:
        app = pilot.app
        assert isinstance(app, Top)
        app.push_screen(Page("Made", lambda: f"{daemon.second} seconds"))
        daemon.second = 6
        app.draw()
        await settle(pilot)
        assert "6 seconds" in "\n".join(lines_of(app))

    played(play, MadeUp(5))


def test_help_has_each_key() -> None:
    async def play(pilot: Pilot[None], daemon: MadeUp) -> None:
        await press(pilot, "question_mark")
        text = "\n".join(lines_of(pilot.app))
        assert all(key in text for key in ("Enter", "+ -", "Ctrl-C", "sort", "hand-overs", "entitled", "min-max"))
        await press(pilot, "question_mark")
        assert not isinstance(pilot.app.screen, Page)

    played(play, MadeUp(5))


@pytest.mark.parametrize("keys", [["q"], ["Q"], ["ctrl+c"], ["h", "q"], ["plus", "ctrl+c"]])
def test_it_ends(keys: list[str]) -> None:
    async def play(pilot: Pilot[None], daemon: MadeUp) -> None:
        await pilot.press(*keys)

    daemon = MadeUp(5)
    assert played(play, daemon).return_code == 0
    assert ("end", {}) in daemon.asked


@pytest.mark.parametrize("nr", [0, 1, 40])
@pytest.mark.parametrize("size", [(80, 24), (40, 12), (200, 60)])
def test_lines_fit(nr: int, size: tuple[int, int]) -> None:
    async def play(pilot: Pilot[None], daemon: MadeUp) -> None:
        assert len(selected(pilot.app)) == min(nr, 1)
        assert ("no vGPU yet" in "\n".join(lines_of(pilot.app))) == (nr == 0)
        assert all(len(line) <= size[0] for line in lines_of(pilot.app))

    played(play, MadeUp(5, MANY[:nr]), names=MANY[:nr], size=size)


def test_heads_take_a_line_each_where_there_is_no_room() -> None:
    """Columns are left out, and what is below has its place."""

    async def play(pilot: Pilot[None], daemon: MadeUp) -> None:
        lines = lines_of(pilot.app)
        columns = next(place for place, line in enumerate(lines) if line.startswith("  vGPU"))
        assert lines[0].startswith("fairgv-host top")
        assert lines[1] == ""
        assert lines[columns + 1].startswith("▸ machine-")

    played(play, MadeUp(5, MANY[:4]), names=MANY[:4], size=(52, 9))


def test_a_slow_answer_blocks_no_key(tmp_path: Path) -> None:
    """A daemon that never answers the second question: keys go on, one question waits and no more, and the end waits for nothing."""
    questions: list[Message] = []
    is_over = threading.Event()

    def answer(session: object, request: Message) -> Message:
        questions.append(request)
        is_over.wait()
        return status_at(1)

    async def play() -> int | None:
        asker = Asker(lambda: Connection(tmp_path / "control.sock"))
        app = view_of(asker, *after(1))
        async with app.run_test() as pilot:
            await pilot.press("space", "space", "space", "s")
            while not questions:
                await asyncio.sleep(0.01)
            await pilot.press("space", "down")
            while not said(app).startswith("the daemon has not answered for 3 looks"):
                await asyncio.sleep(0.01)
            await pilot.press("q")
        return app.return_code

    server = Server(tmp_path / "control.sock", answer)
    server.start()
    try:
        assert asyncio.run(play()) == 0
        assert [question["op"] for question in questions] == ["status"]
    finally:
        is_over.set()
        server.stop()


def test_a_daemon_that_is_started_anew_is_found(tmp_path: Path) -> None:
    """A socket that closes, is gone, and is there again."""

    def serve(pid: int) -> Server:
        server = Server(tmp_path / "control.sock", lambda session, request: {**status_at(1), "pid": pid})
        server.start()
        return server

    async def look(pilot: Pilot[None]) -> str:
        await press(pilot, "space")
        return said(pilot.app)

    async def play() -> None:
        asker = Asker(lambda: Connection(tmp_path / "control.sock"))
        looks = Looks()
        server = serve(1)
        app = view_of(asker, looks, looks.add(asker.ask("status")))
        async with app.run_test(size=(120, 24)) as pilot:
            server.stop()
            assert f"start one with: fairgv-host --state-dir {tmp_path} start" in await look(pilot)
            server = serve(2)
            assert await look(pilot) == "the daemon was started anew, as process 2"
            server.stop()

    asyncio.run(play())
