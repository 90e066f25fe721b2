"""Written pages in a real browser: light, dark on a phone, and printed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.browser import Browsed
from support.live_records import Made, write_run
from support.make import only
from support.outcomes import compared
from support.page_forms import opened, print_page, show_on_dark_phone
from support.reproduction import outcomes_of

from migrator.core.catalogue import board
from migrator.core.problem import Allocation, Charge, Instance, Plan, Problem, Task, Tenant
from migrator.records.runs import recorded_run
from migrator.records.store import read_records
from migrator.report.comparison import comparison_page
from migrator.report.html_page import write_page
from migrator.report.page import Page
from migrator.report.plan_figure import draw_plan
from migrator.report.run_page import run_page
from migrator.reproduce.experiment import Setting
from migrator.reproduce.reproduce import jobs_of, page_of


def _tenant(name: str, received: float) -> Tenant:
    capability = {1: 10.0, 2: 18.0, 3: 25.0}
    return Tenant(name, ((received,) * 6,), capability, 0.5, only(0.8, {2: 3}), 2.5, 1)


def _draw_plan(path: Path) -> None:
    """A plan under the charge `paper` whose change costs more than its slot."""

    def held(*sizes: int) -> Allocation:
        bert = Instance(0, sizes[0], Task.parse("bert/inference"))
        return Allocation((bert, Instance(4, sizes[1], Task.parse("vit/inference"))))

    tenants = (_tenant("bert", 20.0), _tenant("vit", 5.0))
    problem = Problem(board("A100-40GB"), 1.0, 6, Charge.PAPER, tenants, None)
    slots = (held(3, 1),) * 3 + (held(1, 1),) * 3
    draw_plan(problem, Plan(57.5, 57.5, "exact", 0.25, (), slots), path)


def test_the_plan_page(browser: Browsed, tmp_path: Path) -> None:
    _draw_plan(tmp_path / "plan.html")
    page = opened(browser, tmp_path / "plan.html")
    assert page.title() == "Plan for bert and vit on A100-40GB"
    assert page.locator(".plot .main-svg >> visible=true").count() >= 3
    titles = page.locator("figcaption").all_inner_texts()
    # only bert's instances change
    assert [("below zero" in title) for title in titles] == [False, True, False]
    assert "Bars below zero are charges" in page.locator("section").inner_text()
    show_on_dark_phone(page, "plan")
    print_page(page, "plan")


def test_the_report_of_a_run(browser: Browsed, tmp_path: Path) -> None:
    live = read_records(
        tmp_path / "records.db", write_run(tmp_path / "records.db", Made(ends=True))
    )
    write_page(run_page([recorded_run(live)], board("A100-40GB")), tmp_path / "live.html")
    page = opened(browser, tmp_path / "live.html")
    assert page.locator("figcaption").first.inner_text() == "Windows 0 to 2: held"
    plots, drawn = page.locator(".plot").count(), page.locator(".plot:has(.main-svg)").count()
    folds, unfolded = page.locator(".more").count(), page.locator(".more[open]").count()
    assert unfolded == 0
    assert drawn < plots
    assert page.evaluate("document.documentElement.scrollHeight") < 6000
    show_on_dark_phone(page, "live")
    assert page.evaluate("document.documentElement.scrollHeight") < 6000
    page.locator(".more > summary").nth(2).click()
    page.wait_for_selector(".more[open] .plot .main-svg")
    print_page(page, "live")
    assert page.locator(".plot:has(.main-svg)").count() == plots
    assert page.locator(".more[open]").count() == folds
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator(".more[open]").count() == 1, "as before"


def _reproduction() -> Page:
    names, setting = ("goodput", "slo-accuracy"), Setting(workloads=("W1",), most_windows=1)
    return page_of(names, setting, outcomes_of(jobs_of(names, setting)))


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("comparison", lambda: comparison_page(compared(("migrator", "ekya", "paris")))),
        ("reproduction", _reproduction),
    ],
)
def test_a_page_in_every_form(
    browser: Browsed, name: str, made: Callable[[], Page], tmp_path: Path
) -> None:
    path = tmp_path / f"{name}.html"
    write_page(made(), path)
    page = opened(browser, path)
    assert len(page.locator("body").inner_text()) > 100
    show_on_dark_phone(page, name)
    print_page(page, name)


def test_the_browser_reported_no_error(browser: Browsed) -> None:
    assert browser.complaints == []
