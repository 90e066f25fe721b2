"""Every figure of the paper beside ours: the page and the reasons, which come from the map."""

from typing import Any

from support.reproduction import outcomes_of

from benchmarks.paper_figures import conditions, reasons, text
from migrator.reproduce.experiment import Setting
from migrator.reproduce.reproduce import figures_of, jobs_of

Json = dict[str, Any]
SMALL = Setting(workloads=("W1", "W9"), most_windows=1)


def _cell(load: float, gain: str, paris: float, **others: object) -> Json:
    leads = {"ekya": 0.1, "astraea": 0.2, "paris-reconfiguring": paris}
    usual = {"traces": "Alibaba + Azure", "length": 1, "tenants": 2, "workers": "prepared"}
    return {
        "load": load,
        "gain": gain,
        **(usual | others),
        "leads": {name: {"mean": lead, "half_width": 0.03} for name, lead in leads.items()},
        "most": dict.fromkeys(leads, 0.4),
    }


GRID = [
    _cell(load, gain, 0.05)
    for gain in ("packaged", "published weights", "the paper's")
    for load in (0.4, 0.6, 0.8, 1.0)
]


def test_all_figures_and_tables_of_the_paper_are_there() -> None:
    all_figures = figures_of(["all"], SMALL, outcomes_of(jobs_of(["all"], SMALL)))
    page = text(all_figures, {"cells": GRID})
    figures = ("1", "2", "3", "4", "5", "6", "7", "8a", "8b", "9", "10")
    names = (
        *(f"Figure {figure}," for figure in figures),
        "Table 1,",
        "Table 2,",
        "Tables 3 and 4,",
    )
    rows = [line for line in page.splitlines() if line.startswith(("| Figure", "| Table"))]
    assert sorted(row.split()[1:3] for row in rows) == sorted(name.split()[:2] for name in names)
    gains = all_figures["experiments"]["goodput"]["gains"]
    assert f"load 0.6: {gains['ekya']:+.1%} ± 0.0 over ekya" in page


def test_what_a_lead_takes_is_read_from_the_map() -> None:
    of = {
        "goodput": {"paper_gains": {"ekya": 0.17, "astraea": 0.21, "paris-reconfiguring": 0.2}},
        "high-load": {
            "load": 0.8,
            "gains": {"ekya": 0.18, "astraea": 0.3, "paris-reconfiguring": 0.1},
        },
    }
    none = list(reasons(of, {"cells": GRID}))
    assert "is reached in no cell of the map; the most is +5%" in none[2]
    assert "the leads over paris-reconfiguring are below the paper's" in none[3]
    longer = _cell(0.8, "published weights", 0.25, length=4)
    assert conditions(longer) == "load 0.8, gains: published weights, retraining x 4"
    lines = list(reasons(of, {"cells": [*GRID, longer]}))
    assert f"of all 13 cells of [the map](map.md): {conditions(longer)} (+25.0% ± 3.0)" in lines[2]
