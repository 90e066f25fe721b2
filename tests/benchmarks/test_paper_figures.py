"""Every figure of the paper beside ours."""

from support.reproduction import outcomes_of

from benchmarks.paper_figures import text
from migrator.reproduce.experiment import Setting
from migrator.reproduce.reproduce import figures_of, jobs_of

SMALL = Setting(workloads=("W1", "W9"), most_windows=1)


def test_all_figures_and_tables_of_the_paper_are_there() -> None:
    all_figures = figures_of(["all"], SMALL, outcomes_of(jobs_of(["all"], SMALL)))
    page = text(all_figures)
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
