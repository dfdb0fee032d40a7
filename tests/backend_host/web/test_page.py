"""The page in a browser: what it shows, what it asks for, that names stay text, that keyboards and screen readers can use it."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from backend_host.web.report import write
from backend_host.web.telling import Teller
from tests.backend_host.web.browser import NARROW, WIDE, needs_browser, opened, started
from tests.backend_host.web.played import Played, Tenant
from tests.backend_host.web.serving import Served, served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = needs_browser
FOREIGN_SCRIPTS = """() => {
    document.body.insertAdjacentHTML("beforeend", '<img src="none" onerror="window.ran = true">');
    const script = document.createElement("script");
    script.textContent = "window.ran = true";
    document.body.append(script);
}"""
NONE = "\N{EN DASH}"
HOSTILE = '<img src=x onerror="alert(1)">\'</script><script>alert(2)</script>'


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    with started() as running:
        yield running


@pytest.fixture
def played() -> Played:
    return Played(
        [
            Tenant("one", lambda second: 0.5, lambda second: 2 / 3, weight=2, wait_ms=lambda second: 12.0),
            Tenant("two", lambda second: 0.25, lambda second: 1 / 3, comes=20),
            Tenant("went", lambda second: 0.125, goes=40),
            Tenant("late", lambda second: 0.0, comes=64),
        ]
    )


@pytest.fixture
def teller(played: Played) -> Teller:
    teller = played.teller()
    played.play(teller, 61)
    return teller


@pytest.fixture
def host(teller: Teller) -> Iterator[Served]:
    with served(teller) as running:
        yield running


def names(page: "Page") -> list[str]:
    found: list[str] = page.locator("#rows th .name").all_text_contents()
    return found


def wait_for_row(page: "Page", name: str) -> None:
    page.locator("#rows th", has_text=name).wait_for()


def overflow(page: "Page") -> int:
    """Pixels by which the page is wider than its window."""
    return int(page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))


@pytest.mark.parametrize("size", [WIDE, NARROW])
def test_it_shows_the_last_hour_and_asks_nobody_else(browser: "Browser", host: Served, size: tuple[int, int]) -> None:
    with opened(browser, host.url, size) as visit:
        wait_for_row(visit.page, "two")
        assert names(visit.page) == ["one", "two"]
        assert visit.page.title() == "FairGV a-host"
        assert visit.page.locator("#legend .name").all_text_contents() == ["one", "went (gone)", "two"]
        cells = visit.page.locator("#rows tr").first.locator("td").all_text_contents()
        assert cells == ["50.0 %", "66.7 %", "50.0 %", "75.0 %", "2", "fair", "30.0", "12 ms", "2.0 GiB", NONE, "1"]
        assert visit.page.locator(".gpu .number").nth(1).text_content() == "150.0 %"
        assert visit.page.locator(".gpu .number").nth(2).text_content() == "4.0 GiB of 80.0 GiB"
        assert visit.page.locator("canvas").count() == 3
        assert overflow(visit.page) == 0
        assert {url.partition("?")[0].rpartition("/")[0] + "/" for url in visit.requests} == {host.url}
        assert visit.complaints == []


def test_one_that_comes_appears(browser: "Browser", host: Served, played: Played, teller: Teller) -> None:
    with opened(browser, host.url) as visit:
        wait_for_row(visit.page, "two")
        played.play(teller, 4)
        host.tell("second", teller.second())
        wait_for_row(visit.page, "late")
        host.tell("point", teller.point())
        visit.page.locator("#legend .name", has_text="late").wait_for()
        assert names(visit.page) == ["one", "two", "late"]
        assert visit.page.locator("#state").text_content() == "live"
        assert visit.complaints == []


def test_who_missed_a_point_loads_all_anew(browser: "Browser", host: Served, played: Played, teller: Teller) -> None:
    with opened(browser, host.url) as visit:
        wait_for_row(visit.page, "two")
        before = len([url for url in visit.requests if url.endswith("/document")])
        for _ in range(2):
            played.play(teller, 4)
            event = teller.point()
        with visit.page.expect_response("**/document"):
            host.tell("point", event)
        assert len([url for url in visit.requests if url.endswith("/document")]) == before + 1
        visit.page.locator("#legend .name", has_text="late").wait_for()


def test_a_daemon_that_stops_is_told(browser: "Browser", teller: Teller) -> None:
    with contextlib.ExitStack() as daemon:
        host = daemon.enter_context(served(teller))
        with opened(browser, host.url) as visit:
            wait_for_row(visit.page, "two")
            host.tell("second", teller.second())
            visit.page.wait_for_selector("#state[data-state=live]")
            daemon.close()
            visit.page.wait_for_selector("#state[data-state=lost]")
            assert str(visit.page.locator("#state").text_content()).startswith("no news since ")
            assert names(visit.page) == ["one", "two"], "what was known stays"


def test_why_no_program_is_served_is_told(browser: "Browser", tmp_path: Path) -> None:
    """As long as it is so, live and in a report."""
    sentence = "3 programs are served by an earlier release"
    played = Played([], waits_for=sentence)
    teller = played.teller()
    played.play(teller, 11)
    write(tmp_path / "report.html", teller.document())
    with served(teller) as host, opened(browser, host.url) as visit:
        waiting = visit.page.get_by_text(sentence)
        waiting.wait_for()
        assert visit.page.locator("#remark").text_content() == "There is no vGPU now."
        played.waits_for = ""
        host.tell("second", teller.second())
        waiting.wait_for(state="detached")
        visit.page.locator("#notes").wait_for(state="hidden")
        assert "fairgv-run" in str(visit.page.locator("#remark").text_content())
        assert visit.complaints == []
    with opened(browser, (tmp_path / "report.html").as_uri()) as visit:
        visit.page.get_by_text(sentence).wait_for()


def test_troubles_are_told(browser: "Browser", tmp_path: Path) -> None:
    """Each by itself, beside why nobody is served."""
    played = Played([], waits_for="3 programs are", troubles=(f"the vGPU {HOSTILE} is not served", "requests take all"))
    told = [played.waits_for, *played.troubles]
    teller = played.teller()
    played.play(teller, 11)
    write(tmp_path / "report.html", teller.document())
    with served(teller) as host, opened(browser, host.url) as visit:
        notes = visit.page.locator("#notes p")
        notes.first.wait_for()
        assert notes.all_text_contents() == told
        played.troubles = ()
        host.tell("second", teller.second())
        notes.nth(1).wait_for(state="detached")
        assert notes.all_text_contents() == told[:1]
        assert visit.complaints == []
    with opened(browser, (tmp_path / "report.html").as_uri()) as visit:
        visit.page.locator("#notes p").first.wait_for()
        assert visit.page.locator("#notes p").all_text_contents() == told


@pytest.mark.parametrize("is_report", [False, True])
def test_a_hostile_name_is_text(browser: "Browser", tmp_path: Path, is_report: bool) -> None:
    played = Played([Tenant(HOSTILE, lambda second: 0.5, lambda second: 1.0)])
    teller = played.teller()
    played.play(teller, 11)
    with served(teller) as host:
        url = host.url
        if is_report:
            write(tmp_path / "report.html", json.loads(teller.encoded_document()))
            url = (tmp_path / "report.html").as_uri()
        with opened(browser, url) as visit:
            wait_for_row(visit.page, "img")
            assert names(visit.page) == [HOSTILE]
            assert visit.page.locator("#legend .name").all_text_contents() == [HOSTILE]
            assert visit.page.locator("img").count() == 0
            assert visit.complaints == []


def test_scripts_that_are_not_ours_do_not_run(browser: "Browser", host: Served) -> None:
    """What the policy is for, should a name ever get into the page as more than text."""
    with opened(browser, host.url) as visit:
        wait_for_row(visit.page, "two")
        with (
            visit.page.expect_console_message(lambda message: "inline event handler" in message.text),
            visit.page.expect_console_message(lambda message: "inline script" in message.text),
        ):
            visit.page.evaluate(FOREIGN_SCRIPTS)
        assert visit.page.evaluate("window.ran") is None


def test_a_report_opens_from_disk(browser: "Browser", teller: Teller, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write(path, teller.document())
    with opened(browser, path.as_uri()) as visit:
        wait_for_row(visit.page, "two")
        assert names(visit.page) == ["one", "two"]
        assert visit.page.locator("canvas").count() == 3
        assert str(visit.page.locator("#state").text_content()).startswith("report, until ")
        assert [url for url in visit.requests if not url.startswith("data:")] == [path.as_uri()]
        assert visit.complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW])
def test_axe_finds_nothing_serious(browser: "Browser", size: tuple[int, int], scheme: str) -> None:
    from axe_playwright_python.sync_playwright import Axe  # noqa: PLC0415 - need not be there

    tenants = [Tenant(f"vm-{nr}", lambda second: 0.05, lambda second: 0.05, gpu=nr % 2) for nr in range(24)]
    troubles = ("GPU 0: requests take all of it",)
    played = Played(tenants, 2, waits_for="3 programs are served by an earlier release", troubles=troubles)
    teller = played.teller()
    played.play(teller, 61)
    with served(teller) as host, opened(browser, host.url, size, scheme) as visit:
        wait_for_row(visit.page, "vm-23")
        found = Axe().run(visit.page).response["violations"]
        assert [(each["id"], each["nodes"]) for each in found if each["impact"] in ("serious", "critical")] == []
        assert overflow(visit.page) == 0


def test_keys_move_through_time(browser: "Browser", host: Served) -> None:
    with opened(browser, host.url) as visit:
        wait_for_row(visit.page, "two")
        moment = visit.page.locator("#moment")
        assert str(moment.text_content()).startswith("The last 5 s, until ")
        for chart in ("shares", "waits", "memory"):
            visit.page.locator(f"#{chart}").focus()
            label = visit.page.locator(f"#{chart}").get_attribute("aria-label")
            assert label is not None
            assert "one " in label
            visit.page.keyboard.press("ArrowLeft")
            last = moment.text_content()
            visit.page.keyboard.press("Home")
            first = moment.text_content()
            assert str(first).startswith("At ")
            assert first != last
            visit.page.keyboard.press("Escape")
            assert str(moment.text_content()).startswith("The last 5 s, until ")


def test_heads_sort_by_keys(browser: "Browser", host: Served) -> None:
    with opened(browser, host.url) as visit:
        wait_for_row(visit.page, "two")
        head = visit.page.get_by_role("button", name="Weight")
        head.focus()
        for order, expected in (("descending", ["one", "two"]), ("ascending", ["two", "one"])):
            visit.page.keyboard.press("Enter")
            assert visit.page.locator("th[aria-sort]").get_attribute("aria-sort") == order
            assert names(visit.page) == expected
            assert visit.page.evaluate("document.activeElement.textContent") == "Weight"


def test_a_gpu_is_chosen_by_its_button(browser: "Browser") -> None:
    played = Played([Tenant("here", lambda second: 0.5), Tenant("there", lambda second: 0.5, gpu=1)], nr_gpus=2)
    teller = played.teller()
    played.play(teller, 11)
    with served(teller) as host, opened(browser, host.url) as visit:
        wait_for_row(visit.page, "there")
        assert visit.page.locator("#legend .name").all_text_contents() == ["here"]
        other = visit.page.get_by_role("button", name="GPU 1")
        other.focus()
        visit.page.keyboard.press("Space")
        assert visit.page.locator("#legend .name").all_text_contents() == ["there"]
        assert [visit.page.locator(".gpu").nth(number).get_attribute("aria-pressed") for number in range(2)] == [
            "false",
            "true",
        ]


def test_all_columns_are_seen_in_a_wide_window(browser: "Browser") -> None:
    name = "a-name-of-a-virtual-machine-of-somebody"
    tenants = [
        Tenant(
            f"{name}-{gpu}",
            lambda second: 0.5,
            lambda second: 1.0,
            quota_bytes=40 << 30,
            wait_ms=lambda second: 123,
            gpu=gpu,
            used_ns=10**15,
        )
        for gpu in range(2)
    ]
    played = Played(tenants, nr_gpus=2)
    teller = played.teller()
    played.play(teller, 11)
    with served(teller) as host, opened(browser, host.url) as visit:
        wait_for_row(visit.page, f"{name}-1")
        assert visit.page.evaluate("(box => box.scrollWidth - box.clientWidth)(document.querySelector('.scroll'))") == 0


def test_a_crowd_has_ten_colours_and_the_others_one(browser: "Browser") -> None:
    played = Played([Tenant(f"vm-{nr:02}", lambda second, nr=nr: nr / 1000) for nr in range(25)])  # type: ignore[misc]
    teller = played.teller()
    played.play(teller, 11)
    with served(teller) as host, opened(browser, host.url) as visit:
        wait_for_row(visit.page, "vm-24")
        shown = visit.page.locator("#legend .name").all_text_contents()
        assert shown == [*(f"vm-{nr}" for nr in range(15, 25)), "others"]
        assert visit.page.locator("#legend .number").last.text_content() == f"{sum(range(15)) / 10:.1f} %"


def test_the_theme_is_chosen_and_kept(browser: "Browser", host: Served) -> None:
    with opened(browser, host.url, scheme="light") as visit:
        wait_for_row(visit.page, "two")
        background = "getComputedStyle(document.body).backgroundColor"
        light = visit.page.evaluate(background)
        switch = visit.page.locator("#theme")
        switch.click()
        assert (switch.text_content(), visit.page.evaluate(background)) == ("Theme: light", light)
        switch.click()
        assert switch.text_content() == "Theme: dark"
        dark = visit.page.evaluate(background)
        assert dark != light
        visit.page.reload()
        wait_for_row(visit.page, "two")
        assert (switch.text_content(), visit.page.evaluate(background)) == ("Theme: dark", dark)


def test_with_a_token_the_address_that_has_it_is_traded_for_a_cookie(browser: "Browser", teller: Teller) -> None:
    token = "0123456789abcdef"
    with served(teller, token=token) as host, opened(browser, f"{host.url}?token={token}") as visit:
        wait_for_row(visit.page, "two")
        assert visit.page.url == host.url
        assert visit.page.evaluate("document.cookie") == "", "scripts do not see it"
        assert visit.complaints == []
