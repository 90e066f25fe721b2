"""The other pages in a real browser, light, dark on a phone, and printed: comparisons, placements,
loads, forecasters, advice, a reproduction, the API's description, a cluster's status."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.browser import Browsed
from support.clusters import MODELS, cluster, tenant
from support.load_outcomes import load_outcome
from support.outcomes import run
from support.page_forms import opened, print_page, show_on_dark_phone
from support.reproduction import outcomes_of
from support.scenarios import drift, scenario
from support.scenarios import tenant as served

from migrator.advise.advice import consult
from migrator.advise.advice_report import advice_page
from migrator.advise.leads import OURS, RIVALS, STATIC
from migrator.advise.trial import TrialResult, WindowResult
from migrator.cluster.fleet.overview import overview_page
from migrator.cluster.placement.place import place
from migrator.cluster.report import placement_page
from migrator.core.comparison import summarise
from migrator.core.scenario import Scenario
from migrator.report.comparison import comparison_page
from migrator.report.forecasts import ForecastRow, forecast_page
from migrator.report.html_page import write_page
from migrator.report.load import load_page
from migrator.report.page import Page
from migrator.reproduce.experiment import Setting
from migrator.reproduce.reproduce import jobs_of, page_of

STATUS = {
    "scenario": "two-racks",
    "gpus": [
        {"gpu": "rack-a-1", "board": "H200-141GB", "state": "up", "words": "", "url": "http://a"},
        {"gpu": "rack-b-1", "board": "A100-80GB", "state": "gone", "words": "it does not answer"},
    ],
    "tenants": {
        "photos": {"gpu": "rack-a-1", "words": "", "received": 120345, "accuracy": 0.87654321},
        "mail": {"gpu": None, "words": "no GPU serves it"},
    },
}


def _trial() -> TrialResult:
    goodput = dict.fromkeys(RIVALS, 500.0) | {OURS: 600.0, STATIC: 590.0}
    return TrialResult((WindowResult(1000, 900.0, goodput),) * 2, "static-6-1")


def _scenario(_seed: int | None, windows: int | None) -> Scenario:
    tenants = (served("a", [200] * 40, drifts=(drift(0.5, 0.9),) * 2), served("b", [100] * 40))
    return scenario(*tenants, windows=windows or 2)


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


def _placement() -> Page:
    tenants = [tenant("a", MODELS[0], 900, count=3), tenant("b", MODELS[1], 700, count=2)]
    return placement_page(place(cluster(tenants, [{"board": "A30-24GB", "count": 2}])))


def _forecasts() -> Page:
    rows = [
        ForecastRow(trace, name, 30, 12.5, 3.2, 0.25, 0.1, 0.8, 2.5)
        for trace in ("azure", "twitter")
        for name in ("last-mean", "ridge")
    ]
    return forecast_page(rows, ["60% of each trace are history"])


def _advice() -> Page:
    consultation = consult(_scenario)
    return advice_page(consultation.advice({key: _trial() for key in consultation.trials()}))


def _reports() -> Page:
    """All written pages as one: their library is compiled and their style is applied once."""
    names, setting = ("goodput", "slo-accuracy"), Setting(workloads=("W1",), most_windows=1)
    pages = {
        "reproduction": page_of(names, setting, outcomes_of(jobs_of(names, setting))),
        "comparison": _comparison(),
        "placement": _placement(),
        "load": load_page(load_outcome()),
        "forecasts": _forecasts(),
        "advice": _advice(),
    }
    first = pages["reproduction"].sections[0]
    assert first.title == "Summary"
    assert "+6.5% over ekya" in str(first.blocks)
    sections = [
        replace(section, anchor=f"{name}-{section.anchor}", title=f"{name}: {section.title}")
        for name, page in pages.items()
        for section in page.sections
    ]
    return Page("Reports", " ".join(page.lead for page in pages.values()), tuple(sections))


PAGES: dict[str, Callable[[], Page | str]] = {
    "reports": _reports,
    "overview": lambda: overview_page(STATUS),
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
