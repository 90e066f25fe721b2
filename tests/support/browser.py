"""A headless Chromium for tests of pages; where there is none they are skipped with a reason."""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

SCREENSHOTS = os.environ.get("MIGRATOR_SCREENSHOTS")
"""A folder for pictures of every view, for people to look at."""
_WITHOUT = (
    *("WebUIOmniboxPopup", "WebUIOmniboxAimPopup", "SpareRendererForSitePerProcess"),
    *("HttpsUpgrades", "LensOverlay", "MediaRouter", "NetworkTimeServiceQuerying"),
    *("OptimizationHints", "PaintHolding", "PreconnectToSearch"),
)
"""Parts of Chromium that no test uses. The popups of an address bar without a window take a second
of processor time for every session. Playwright's own list counts no more if there is one."""
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@dataclass
class Browsed:
    """A browser, and what its pages complained about."""

    browser: Any
    complaints: list[str] = field(default_factory=list)
    _written: Any = None

    def page(self, url: str, *, width: int = 1400, height: int = 900, **context: Any) -> Any:
        """A page of its own session at that address."""
        size = {"width": width, "height": height}
        page = self.browser.new_context(viewport=size, **context).new_page()
        page.set_default_timeout(60_000)
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.goto(url)
        return page

    def written_page(self, url: str, *, width: int) -> Any:
        """The same page at another address, light on a screen.

        Its process has compiled the library of the charts, which takes longer than to draw them.
        """
        if self._written is None:
            self._written = self.page("about:blank")
        page = self._written
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(media="screen", color_scheme="light")
        page.goto(url)
        return page

    def close_all_but(self, contexts: list[Any]) -> None:
        """Close the sessions of other pages; the one for written pages stays."""
        written = [] if self._written is None else [self._written.context]
        for context in self.browser.contexts:
            if context not in contexts and context not in written:
                context.close()

    def _console(self, message: Any) -> None:
        # a refused token or a server that is away is a failed request, which a browser tells too
        own = message.text.startswith("Failed to load resource")
        if message.type == "error" and not own:
            self.complaints.append(message.text)


def kept(page: Any, name: str) -> None:
    """A picture of the page where somebody wants to look at it."""
    if SCREENSHOTS:
        page.screenshot(path=Path(SCREENSHOTS) / f"{name}.png", full_page=True)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Close the pages that a test opened: a live one would ask its server for news until the end.

    Those of fixtures stay.
    """
    browsed = pyfuncitem.funcargs.get("browser")
    if not isinstance(browsed, Browsed):
        return (yield)
    before = list(browsed.browser.contexts)
    try:
        return (yield)
    finally:
        browsed.close_all_but(before)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browsed]:
    """The system's Chromium, driven by Playwright."""
    driver = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = next(filter(None, map(shutil.which, _NAMES)), None)
    if program is None:
        pytest.skip("there is no Chromium on this machine")
    with driver.sync_playwright() as playwright:
        # a sandbox needs rights that containers do not have; the pages are our own
        options = ["--no-sandbox", "--disable-dev-shm-usage"]
        options.append(f"--disable-features={','.join(_WITHOUT)}")
        launched = playwright.chromium.launch(executable_path=program, args=options)
        try:
            yield Browsed(launched)
        finally:
            launched.close()
