"""Debian's chromium, driven by Playwright, where both are there; what keeps tests from it is told as their reason to be skipped."""

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Dialog, Page

CHROMIUM = shutil.which("chromium")
TIMEOUT_MS = 60_000
WIDE = (1280, 800)
NARROW = (390, 844)
needs_browser = pytest.mark.skipif(
    CHROMIUM is None or find_spec("playwright") is None or find_spec("axe_playwright_python") is None,
    reason="wants a browser: .ci/packages browser, and pip install -e '.[browser]'",
)


@dataclass
class Visit:
    """A page that is open, what it asked for, and what it complained of."""

    page: "Page"
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def hear(self, message: "ConsoleMessage") -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def dismiss(self, dialog: "Dialog") -> None:
        self.complaints.append(dialog.message)
        dialog.dismiss()


@contextlib.contextmanager
def started() -> Iterator["Browser"]:
    """A browser until the end of the block. Its own sandbox is not there for root; it sees our page alone."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - need not be there

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        try:
            yield browser
        finally:
            browser.close()


@contextlib.contextmanager
def opened(browser: "Browser", url: str, size: tuple[int, int] = WIDE, scheme: str = "light") -> Iterator[Visit]:
    """The page there, in a window of this size, by a user who prefers this scheme."""
    width, height = size
    user: dict[str, Any] = {"color_scheme": scheme, "locale": "en-GB", "timezone_id": "UTC"}
    context = browser.new_context(viewport={"width": width, "height": height}, **user)
    try:
        page = context.new_page()
        page.set_default_timeout(TIMEOUT_MS)
        visit = Visit(page)
        page.on("request", lambda request: visit.requests.append(request.url))
        page.on("pageerror", lambda error: visit.complaints.append(str(error)))
        page.on("dialog", visit.dismiss)
        page.on("console", visit.hear)
        page.goto(url)
        yield visit
    finally:
        context.close()
