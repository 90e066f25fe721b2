"""Verbs that show a recorded run, also while it runs: status, windows, report, dashboard."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from migrator.cli.app import (
    FAILED,
    AsJson,
    Ca,
    ScenarioName,
    State,
    app,
    print_json,
    require_extra,
)
from migrator.core.errors import InputError

if TYPE_CHECKING:
    from migrator.dashboard.routes import Source
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
    ca: Ca = None,
    as_json: AsJson = False,
) -> None:
    """Show whether the daemon runs and its state: window, tenants, instances, last events.

    The exit code is 1 if the daemon was killed or crashed.

    Example:  watch migrator status
    """
    from migrator.cli.daemon import probe_daemon, records_file
    from migrator.core.catalogue import board
    from migrator.records.current_run import DaemonState, current_run
    from migrator.records.store import read_recent
    from migrator.report.run_json import status_json
    from migrator.report.status_text import status_text

    if cluster is not None:
        require_extra("cluster", "migrator status --cluster")
        from migrator.cluster.fleet.overview import overview_text
        from migrator.cluster.fleet.ray_head import read_overview

        overview = read_overview(cluster, scenario)
        if as_json:
            print_json(overview)
        else:
            print(overview_text(overview))
        return
    rows = read_recent(records_file(state, scenario), run)
    now = current_run(rows, probe_daemon(rows.run, rows.is_newest, token, ca), time.time())
    if as_json:
        print_json(status_json(now))
    else:
        print(status_text(now, board(rows.run.board)))
    if now.probe.state is DaemonState.KILLED:
        raise typer.Exit(FAILED)


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
    from migrator.report.windows_text import window_text, windows_text

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
            "records.db, a state folder, or the name of a scenario that was served.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write one offline page about a run: plans, instances, goodput, accuracy, starts.

    Example:  migrator report --out live.html --beside other-state
    """
    from migrator.cli.daemon import named_records, records_file
    from migrator.core.catalogue import board
    from migrator.records.runs import read_recorded_run
    from migrator.report.html_page import check_page_path, write_page
    from migrator.report.run_json import windows_json
    from migrator.report.run_page import run_page

    check_page_path(out, "--out")
    path = records_file(state, scenario)
    live = read_recorded_run(path, run)
    others = []
    if beside is not None and beside.isdecimal():
        others = [read_recorded_run(path, int(beside))]
    elif beside is not None:
        others = [read_recorded_run(named_records(beside, state, "--beside"))]
    write_page(run_page([live], board(live.records.run.board), others), out, "--out")
    if as_json:
        shown = windows_json(live) | {"report": str(out)}
        if others:
            shown["beside"] = windows_json(others[0])
        print_json(shown)
        return
    print(f"report  {out}")


def _window(live: RecordedRun, number: int) -> RecordedWindow:
    for window in live.windows:
        if window.number == number:
            return window
    numbers = [window.number for window in live.windows]
    existing = f"{numbers[0]} to {numbers[-1]}" if numbers else "none yet"
    raise InputError(
        f"N: run {live.records.run.run} has no window {number}; it has {existing}, other runs come "
        "with --run"
    )


@app.command()
def dashboard(
    records: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RECORDS...]",
            help="A records.db, a state folder, or the name of a scenario that was served; two are "
            "shown side by side. Default: what was served last.",
        ),
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Where the page is served; 0: a free port.")
    ] = 8601,
    opens: Annotated[
        bool, typer.Option("--open/--no-open", help="Open it in the browser at once.")
    ] = False,
    state: State = None,
    as_json: AsJson = False,
) -> None:
    """Show records on the live page: a finished run, a running one, or two side by side.

    Example:  migrator simulate quickstart.yaml --policy migrator,ekya --records runs.db   and

    migrator dashboard runs.db --open

    The page is read-only and listens on this machine only; Ctrl-C ends it.
    """
    require_extra("serve", "migrator dashboard")
    import webbrowser

    from migrator.dashboard.routes import serve_page
    from migrator.io.event_loop import run_until_signal

    sources = [_source(record, state) for record in records or [""]]

    def listening(url: str) -> None:
        if as_json:
            print_json({"url": url, "sources": [str(source.path) for source in sources]})
        else:
            print(f"page    {url}  (Ctrl-C ends it)", flush=True)
        if opens and not webbrowser.open(url):
            typer.echo(f"found no browser; open {url}", err=True)

    run_until_signal(lambda stop: serve_page(sources, port, listening, stop))


def _source(given: str, state: Path | None) -> Source:
    from migrator.cli.daemon import RECORDS, named_records, records_file
    from migrator.dashboard.routes import Source
    from migrator.records.store import read_runs

    path = named_records(given, state, "RECORDS") if given else records_file(state, None)
    if not read_runs(path):
        raise InputError(f"{path}: there is no run in these records; name others")
    return Source(path.parent.name if path.name == RECORDS else path.stem, path)
