"""Debian's chromium, driven by Playwright, where both are there; what keeps tests from it is told as their reason to be skipped."""

import contextlib
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

CHROMIUM = shutil.which("chromium")
TIMEOUT_MS = 60_000
needs_browser = pytest.mark.skipif(
    CHROMIUM is None or find_spec("playwright") is None,
    reason="wants a browser: apt-get install chromium, and pip install -e '.[browser]'",
)


@contextlib.contextmanager
def opened(url: str, width: int = 1280, height: int = 800, scheme: str = "light") -> Iterator["Page"]:
    """The page there, in a window of this size, by a user who prefers this scheme."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - need not be there

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(
            viewport={"width": width, "height": height},
            color_scheme=scheme,  # type: ignore[arg-type]
            locale="en-GB",
            timezone_id="UTC",
        )
        page.set_default_timeout(TIMEOUT_MS)
        try:
            page.goto(url)
            yield page
        finally:
            browser.close()
