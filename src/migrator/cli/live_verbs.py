"""Verbs that show a recorded run, also while it runs: status, windows, report, top, dashboard."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from migrator.cli.app import (
    FAILED,
    AsJson,
    Ca,
    ScenarioName,
    State,
    TokenFile,
    Url,
    app,
    print_json,
    require_extra,
)
from migrator.core.errors import InputError, MigratorError

if TYPE_CHECKING:
    from migrator.core.catalogue import Board
    from migrator.dashboard.routes import Source
    from migrator.records.current_run import CurrentRun, DaemonProbe, UnitUsage
    from migrator.records.runs import RecordedRun, RecordedWindow
    from migrator.records.store import RecentRows


RunNumber = Annotated[
    int | None,
    typer.Option("--run", min=1, metavar="N", help="Which run; default the last."),
]
_PIPED_COLUMNS = 100
_FIRST_LOOKS_S = 1.0
"""Seconds between the two replies that a rate needs if there are no records."""


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
    from migrator.cli.daemon import probe_daemon
    from migrator.cli.records_files import records_file
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
    rows = read_recent(records_file(state, scenario), run, totals=True)
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
    from migrator.cli.records_files import records_file
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
            "records.db, or the state folder it lies in.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write one offline page about a run: plans, instances, goodput, accuracy, starts.

    Example:  migrator report --out live.html --beside other-state
    """
    from migrator.cli.records_files import beside_file, records_file
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
def top(
    scenario: Annotated[
        str | None,
        typer.Argument(metavar="[SCENARIO]", help="Its name; default the one written last."),
    ] = None,
    url: Url = None,
    state: State = None,
    token_file: TokenFile = None,
    ca: Ca = None,
    every_s: Annotated[
        float,
        typer.Option("--every", min=0.2, max=3600, metavar="SECONDS", help="Time between updates."),
    ] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print it once and end.")] = False,
    as_json: AsJson = False,
) -> None:
    """Watch a running daemon: window, slices planned and held, tenants, last events. q quits.

    Reads its records, and its status if it responds. Continues when the daemon is restarted. If the
    output is not a terminal, it prints once.

    Example:  migrator top   and   migrator top --once --json
    """
    from rich.console import Console

    from migrator.report.run_json import top_json
    from migrator.report.top_screen import Screen

    if url is not None and (scenario is not None or state is not None):
        raise InputError("--url: it names the daemon already; leave out SCENARIO and --state")
    if scenario is not None and scenario.endswith((".yaml", ".yml")):
        scenario = Path(scenario).stem
    watch = _WatchedRun(url, state, scenario, token_file, ca)
    now = watch.look()
    if sys.stdout.isatty() and not once and not as_json:
        _live(watch, every_s)
        return
    if url is not None:
        time.sleep(min(every_s, _FIRST_LOOKS_S))
        now = watch.look()
    if as_json:
        print_json(top_json(now))
        return
    has_width = sys.stdout.isatty() or "COLUMNS" in os.environ
    Console(width=None if has_width else _PIPED_COLUMNS).print(
        Screen(now, watch.board(), whole=True)
    )


class _WatchedRun:
    """A daemon and its records, also while it is down; InputError if there is nothing to watch."""

    def __init__(
        self,
        url: str | None,
        state: Path | None,
        scenario: str | None,
        token_file: Path | None,
        ca: Path | None,
    ) -> None:
        from migrator.cli.daemon import find_daemon, read_token
        from migrator.cli.records_files import records_file
        from migrator.records.recent_traffic import RateMeter

        self._meter, self._token, self._ca = RateMeter(), read_token(token_file), ca
        self._rows: RecentRows | None = None
        self._last: CurrentRun | None = None
        self._daemon = None if url is None else find_daemon(url, None, None, token_file, ca)
        self._path = records_file(state, scenario) if url is None else None

    def look(self) -> CurrentRun:
        from migrator.records.current_run import current_run

        now_s = time.time()
        probe = self._probe()
        if probe.reply is not None:
            self._meter.add(now_s, probe.reply)
        else:
            self._meter.clear()
        if self._rows is None and probe.reply is None and self._last is not None:
            return replace(self._last, probe=probe, now_s=now_s)
        now = current_run(self._rows, probe, now_s, self._meter)
        self._last = replace(now, usage=_usage(probe))
        return self._last

    def board(self) -> Board | None:
        """The board of the last look; None if unknown to this version or there is no reply yet."""
        from migrator.core.catalogue import board

        try:
            return None if self._last is None else board(self._last.board)
        except MigratorError:
            return None

    def _probe(self) -> DaemonProbe:
        from migrator.cli.daemon import probe_daemon
        from migrator.records.current_run import DaemonProbe, DaemonState
        from migrator.records.store import read_recent

        if self._path is None:
            assert self._daemon is not None
            try:
                return DaemonProbe(DaemonState.RUNNING, "", self._daemon.status())
            except InputError:
                raise  # waiting does not help against a wrong token
            except MigratorError as error:
                return DaemonProbe(DaemonState.SILENT, str(error))
        try:
            self._rows = read_recent(self._path)
        except InputError:
            if self._rows is None:
                raise
        return probe_daemon(self._rows.run, True, self._token, self._ca)


def _usage(probe: DaemonProbe) -> tuple[UnitUsage, ...]:
    """What the driver reports of the daemon's GPU; empty if that is emulated or elsewhere."""
    from migrator.cli.daemon import is_there

    reply = probe.reply or {}
    local = is_there(int(reply.get("pid", 0)), time.time()) if reply.get("pid") else False
    if not local or reply.get("driver") not in ("mig", "mps"):
        return ()
    from migrator.gpu.drivers.usage import read_usage
    from migrator.records.current_run import UnitUsage

    usages = read_usage(int(reply.get("gpu", 0)))
    return tuple(
        UnitUsage(usage.start, usage.busy, usage.used_mib, usage.total_mib) for usage in usages
    )


def _live(watch: _WatchedRun, every_s: float) -> None:
    """Update the screen until q or Ctrl-C."""
    from rich.console import Console
    from rich.live import Live

    from migrator.report.top_screen import Screen

    with _keys() as pressed, Live(console=Console(), screen=True, auto_refresh=False) as live:
        try:
            while True:
                live.update(Screen(watch.look(), watch.board()), refresh=True)
                if pressed(every_s):
                    return
        except KeyboardInterrupt:
            return


@contextmanager
def _keys() -> Iterator[Callable[[float], bool]]:
    """A function that waits and returns True once q is pressed."""
    if not sys.stdin.isatty():
        yield _sleep
        return
    import termios
    import tty

    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)

    def pressed(wait_s: float) -> bool:
        until_s = time.monotonic() + wait_s
        while (left_s := until_s - time.monotonic()) > 0:
            if select.select([number], [], [], left_s)[0]:
                keys = os.read(number, 64)
                if not keys or b"q" in keys.lower():
                    return True
        return False

    tty.setcbreak(number)
    try:
        yield pressed
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)


def _sleep(wait_s: float) -> bool:
    time.sleep(wait_s)
    return False


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
    """The named records: a file, a folder, or a scenario of the state folder."""
    from migrator.cli.records_files import RECORDS, records_file, records_in
    from migrator.dashboard.routes import Source
    from migrator.records.store import read_runs

    path = Path(given)
    if not given:
        path = records_file(state, None)
    elif path.is_dir():
        path = records_in(path)
    elif not path.is_file():
        try:
            path = records_file(state, given)
        except InputError as error:
            raise InputError(
                f"RECORDS: there is no file, folder or served scenario called {given}; give a "
                "records.db, a state folder, or what `migrator simulate --records` wrote"
            ) from error
    if not read_runs(path):
        raise InputError(f"{path}: there is no run in these records; name others")
    return Source(path.parent.name if path.name == RECORDS else path.stem, path)
