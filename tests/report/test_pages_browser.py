"""Written pages in a real browser: light, dark, on a phone and printed."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.browser import Browsed
from support.live_records import Made, write_run
from support.make import only
from support.page_forms import opened, print_page, show_on_dark_phone
from support.reproduction import outcomes_of
from support.scenarios import Fixed, scenario, serves, tenant
from support.simulated_records import recorded

from migrator.core.catalogue import board
from migrator.core.problem import Allocation, Charge, Instance, Plan, Problem, Task, Tenant
from migrator.records.runs import recorded_run
from migrator.records.store import read_records
from migrator.report.html_page import write_page
from migrator.report.plan_figure import draw_plan
from migrator.report.run_page import run_page
from migrator.reproduce.experiment import Setting
from migrator.reproduce.reproduce import jobs_of, page_of


def _tenant(name: str, received: float) -> Tenant:
    capability = {1: 10.0, 2: 18.0, 3: 25.0}
    return Tenant(name, ((received,) * 6,), capability, 0.5, only(0.8, {2: 3}), 2.5, 1)


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plan under the charge `paper` whose change costs more than its slot."""

    def held(*sizes: int) -> Allocation:
        bert = Instance(0, sizes[0], Task.parse("bert/inference"))
        return Allocation((bert, Instance(4, sizes[1], Task.parse("vit/inference"))))

    tenants = (_tenant("bert", 20.0), _tenant("vit", 5.0))
    problem = Problem(board("A100-40GB"), 1.0, 6, Charge.PAPER, tenants, None)
    slots = (held(3, 1),) * 3 + (held(1, 1),) * 3
    path = tmp_path_factory.mktemp("plan") / "plan.html"
    draw_plan(problem, Plan(57.5, 57.5, "exact", 0.25, (), slots), path)
    return path


def test_the_plan_page(browser: Browsed, plan_file: Path) -> None:
    page = opened(browser, plan_file)
    assert page.title() == "Plan for bert and vit on A100-40GB"
    assert page.locator(".plot .main-svg >> visible=true").count() >= 3
    titles = page.locator("figcaption").all_inner_texts()
    # only bert's instances change
    assert [("below zero" in title) for title in titles] == [False, True, False]
    assert "Bars below zero are charges" in page.locator("section").inner_text()
    show_on_dark_phone(page, "plan")
    print_page(page, "plan")


@pytest.fixture(scope="module")
def run_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Reports of five simulated windows and of a live run."""
    folder = tmp_path_factory.mktemp("runs")
    this = scenario(tenant("photos", [20] * 30), tenant("cameras", [8] * 30), windows=5)
    policy = Fixed((serves("photos", 0, 3), serves("cameras", 4, 2)))
    page = run_page([recorded_run(recorded(this, policy))], this.board)
    write_page(page, folder / "simulated.html")
    live = read_records(folder / "records.db", write_run(folder / "records.db", Made(ends=True)))
    write_page(run_page([recorded_run(live)], board("A100-40GB")), folder / "live.html")
    return {kind: folder / f"{kind}.html" for kind in ("simulated", "live")}


@pytest.mark.parametrize("kind", ["simulated", "live"])
def test_the_report_of_a_run(browser: Browsed, run_files: dict[str, Path], kind: str) -> None:
    page = opened(browser, run_files[kind])
    lead = page.locator("figcaption").first.inner_text()
    assert lead in ("Windows 0 to 4: held", "Windows 0 to 2: held")
    plots, drawn = page.locator(".plot").count(), page.locator(".plot:has(.main-svg)").count()
    folds, unfolded = page.locator(".more").count(), page.locator(".more[open]").count()
    assert unfolded == 0
    assert drawn < plots
    assert page.evaluate("document.documentElement.scrollHeight") < 6000
    show_on_dark_phone(page, kind)
    assert page.evaluate("document.documentElement.scrollHeight") < 6000
    page.locator(".more > summary").nth(2).click()
    page.wait_for_selector(".more[open] .plot .main-svg")
    print_page(page, kind)
    assert page.locator(".plot:has(.main-svg)").count() == plots
    assert page.locator(".more[open]").count() == folds
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator(".more[open]").count() == 1, "as before"


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two experiments with made-up outcomes."""
    names, setting = ("goodput", "slo-accuracy"), Setting(workloads=("W1",), most_windows=1)
    path = tmp_path_factory.mktemp("reproduce") / "reproduce.html"
    write_page(page_of(names, setting, outcomes_of(jobs_of(names, setting))), path)
    return path


def test_the_reproduce_page_begins_with_a_summary(browser: Browsed, reproduced: Path) -> None:
    page = opened(browser, reproduced)
    first = page.locator("section").first
    assert first.locator("h2").inner_text() == "Summary"
    assert first.locator("tbody tr").count() == 2
    assert "+6.5% over ekya" in first.locator("tbody tr").first.inner_text()
    show_on_dark_phone(page, "reproduce")
    print_page(page, "reproduce")


def test_the_browser_reported_no_error(browser: Browsed) -> None:
    assert browser.complaints == []
