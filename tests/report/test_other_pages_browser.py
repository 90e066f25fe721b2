"""The other pages in a real browser, light, dark on a phone, and printed: a comparison and a
reproduction."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.browser import Browsed
from support.outcomes import run
from support.page_forms import opened, print_page, show_on_dark_phone
from support.reproduction import outcomes_of

from migrator.core.comparison import summarise
from migrator.report.comparison import comparison_page
from migrator.report.html_page import write_page
from migrator.report.page import Page
from migrator.reproduce.experiment import Setting
from migrator.reproduce.reproduce import jobs_of, page_of


def _comparison() -> Page:
    names = ("migrator", "ekya", "paris")
    return comparison_page(
        summarise(
            run(policy, f"w{number}", seed, windows=1, late=10 + 10 * index + seed)
            for number in range(2)
            for index, policy in enumerate(names)
            for seed in range(2)
        )
    )


def _reproduction() -> Page:
    names, setting = ("goodput", "slo-accuracy"), Setting(workloads=("W1",), most_windows=1)
    return page_of(names, setting, outcomes_of(jobs_of(names, setting)))


PAGES: dict[str, Callable[[], Page | str]] = {
    "comparison": _comparison,
    "reproduction": _reproduction,
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_in_every_form(browser: Browsed, name: str, tmp_path: Path) -> None:
    path, made = tmp_path / f"{name}.html", PAGES[name]()
    if isinstance(made, str):
        path.write_text(made, encoding="utf-8")
    else:
        write_page(made, path)
    page = opened(browser, path)
    assert len(page.locator("body").inner_text()) > 100
    show_on_dark_phone(page, name)
    print_page(page, name)
    assert not browser.complaints
