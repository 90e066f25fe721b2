"""Verbs that show a recorded run, also while it is running: status, windows, report."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from migrator.cli.app import app, print_json, require_extra
from migrator.cli.options import AsJson, ScenarioName, State
from migrator.core.errors import InputError

if TYPE_CHECKING:
    from migrator.records.runs import RecordedRun, RecordedWindow

RunNumber = Annotated[
    int | None,
    typer.Option("--run", min=1, metavar="N", help="Which run; default the last."),
]


@app.command()
def status(
    state: State = None,
    scenario: ScenarioName = None,
    run: RunNumber = None,
    token: Annotated[
        str | None,
        typer.Option(
            envvar=["MIGRATOR_ADMIN_TOKEN", "MIGRATOR_TOKEN"],
            help="The one for administration, where the scenario has tokens. Better in the "
            "variable.",
        ),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS", help="Of a Ray cluster, `auto` for the one here: all its GPUs."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show whether the daemon runs and its state: window, tenants, instances, last events.

    Example:  watch migrator status
    """
    from migrator.cli.daemon import probe_daemon, records_file
    from migrator.core.catalogue import board
    from migrator.records.standing import read_recent, standing
    from migrator.report.run_json import status_json
    from migrator.report.run_text import status_text

    if cluster is not None:
        require_extra("cluster", "migrator status --cluster")
        from migrator.cli.cluster_serve import read_overview
        from migrator.cluster.fleet.overview import overview_text

        overview = read_overview(cluster, scenario)
        if as_json:
            print_json(overview)
        else:
            print(overview_text(overview))
        return
    rows = read_recent(records_file(state, scenario), run, totals=True)
    now = standing(rows, probe_daemon(rows.run, rows.is_newest, token), time.time())
    if as_json:
        print_json(status_json(now))
    else:
        print(status_text(now, board(rows.run.board)))


@app.command()
def windows(
    number: Annotated[
        int | None, typer.Argument(metavar="[N]", help="One window in detail; default a table.")
    ] = None,
    state: State = None,
    scenario: ScenarioName = None,
    run: RunNumber = None,
    as_json: AsJson = False,
) -> None:
    """Show predicted and measured goodput of every window, or the plan and instances of one.

    Example:  migrator windows   and   migrator windows 2
    """
    from migrator.cli.daemon import records_file
    from migrator.core.catalogue import board
    from migrator.records.runs import read_recorded_run
    from migrator.report.run_json import window_json, windows_json
    from migrator.report.run_text import window_text, windows_text

    live = read_recorded_run(records_file(state, scenario), run)
    window = None if number is None else _window(live, number)
    if as_json:
        print_json(windows_json(live) if window is None else window_json(live, window))
    elif window is None:
        print(windows_text(live))
    else:
        print(window_text(live, window, board(live.records.run.board)))


@app.command()
def report(
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE.html", help="Where the page goes.")
    ] = Path("report.html"),
    state: State = None,
    scenario: ScenarioName = None,
    run: RunNumber = None,
    beside: Annotated[
        str | None,
        typer.Option(
            metavar="RUN|RECORDS",
            help="A second run side by side: the number of one in the same records, another "
            "records.db, or the state folder it lies in.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write one offline page about a run: plans, instances, goodput, accuracy, starts.

    Example:  migrator report --out live.html --beside other-state
    """
    from migrator.cli.daemon import beside_file, records_file
    from migrator.core.catalogue import board
    from migrator.records.runs import read_recorded_run
    from migrator.report.html_page import check_page_path, write_page
    from migrator.report.run_json import windows_json
    from migrator.report.run_page import run_page

    check_page_path(out, "--out")
    path = records_file(state, scenario)
    live = read_recorded_run(path, run)
    other = None if beside is None else read_recorded_run(*beside_file(beside, path))
    others = () if other is None else (other,)
    write_page(run_page([live], board(live.records.run.board), others), out, "--out")
    if as_json:
        shown = windows_json(live) | {"report": str(out)}
        print_json(shown | ({} if other is None else {"beside": windows_json(other)}))
        return
    print(f"report  {out}")


def _window(live: RecordedRun, number: int) -> RecordedWindow:
    for each in live.windows:
        if each.number == number:
            return each
    known = [each.number for each in live.windows]
    there = f"{known[0]} to {known[-1]}" if known else "none yet"
    raise InputError(
        f"N: run {live.records.run.run} has no window {number}; it has {there}, other runs come "
        "with --run"
    )
