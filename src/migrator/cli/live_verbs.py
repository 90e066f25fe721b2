"""Verbs that look at a live run, also while it runs: status, windows, report."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from migrator.cli.app import app
from migrator.cli.plan_verbs import AsJson
from migrator.cli.printing import print_json, require_extra
from migrator.core.errors import InputError

if TYPE_CHECKING:
    from migrator.records.views import LiveRun, LiveWindow

State = Annotated[
    Path | None,
    typer.Option(
        "--state",
        metavar="FOLDER",
        help="Where `migrator serve` keeps its records; default MIGRATOR_STATE or the user's.",
    ),
]
ScenarioName = Annotated[
    str | None,
    typer.Option("--scenario", metavar="NAME", help="Which one; default the one written last."),
]
RunNumber = Annotated[
    int | None,
    typer.Option("--run", min=1, metavar="N", help="Which life of the daemon; default the last."),
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
    """Tell whether the daemon runs, and how it stands: window, tenants, instances, last events.

    Example:  watch migrator status
    """
    from migrator.cli.live_runs import found, records_file
    from migrator.core.catalogue import board
    from migrator.records.standing import standing
    from migrator.records.store import read_runs
    from migrator.report.live_json import status_json
    from migrator.report.live_text import status_text

    if cluster is not None:
        _print_cluster(cluster, scenario, as_json=as_json)
        return
    path = records_file(state, scenario)
    live = _read(path, run)
    row = live.records.run
    newest = row.run == read_runs(path)[-1].run
    stands = standing(live, found(row, newest, token), time.time())
    if as_json:
        print_json(status_json(stands))
        return
    print(status_text(stands, board(row.board)))


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
    """Tell of every window what was promised and measured, or of one its plan and what was held.

    Example:  migrator windows   and   migrator windows 2
    """
    from migrator.cli.live_runs import records_file
    from migrator.core.catalogue import board
    from migrator.report.live_json import window_json, windows_json
    from migrator.report.live_text import window_text, windows_text

    live = _read(records_file(state, scenario), run)
    if number is None:
        if as_json:
            print_json(windows_json(live))
            return
        print(windows_text(live))
        return
    window = _window(live, number)
    if as_json:
        print_json(window_json(live, window))
        return
    print(window_text(live, window, board(live.records.run.board)))


@app.command()
def report(
    out: Annotated[Path, typer.Option("--out", metavar="FILE.html", help="Where the page goes.")],
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
    """Write one offline page about a live run: plans and what was held, goodput, accuracy, starts.

    Example:  migrator report --out live.html --beside other-state
    """
    from migrator.cli.live_runs import beside_file, records_file
    from migrator.core.catalogue import board
    from migrator.report.live_json import windows_json
    from migrator.report.live_report import live_page
    from migrator.report.page_html import check_page_path, write_page

    check_page_path(out, "--out")
    path = records_file(state, scenario)
    live = _read(path, run)
    other = None if beside is None else _read(*beside_file(beside, path))
    write_page(live_page(live, board(live.records.run.board), other), out, "--out")
    if as_json:
        told = windows_json(live) | {"report": str(out)}
        print_json(told | ({} if other is None else {"beside": windows_json(other)}))
        return
    print(f"report  {out}")


def _print_cluster(address: str, scenario: str | None, *, as_json: bool) -> None:
    require_extra("cluster", "migrator status --cluster")
    from migrator.cli.cluster_serve import cluster_status, status_text

    told = cluster_status(address, scenario)
    if as_json:
        print_json(told)
    else:
        print(status_text(told))


def _read(path: Path, run: int | None) -> LiveRun:
    from migrator.records.store import read_records
    from migrator.records.views import live_run

    return live_run(read_records(path, run))


def _window(live: LiveRun, number: int) -> LiveWindow:
    for each in live.windows:
        if each.row.window == number:
            return each
    known = [each.row.window for each in live.windows]
    there = f"{known[0]} to {known[-1]}" if known else "none yet"
    raise InputError(
        f"N: run {live.records.run.run} has no window {number}; it has {there}, other runs come "
        "with --run"
    )
