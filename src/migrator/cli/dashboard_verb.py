"""The verb `dashboard`: shows records on a page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from migrator.cli.app import app
from migrator.cli.live_verbs import State
from migrator.cli.options import AsJson
from migrator.cli.printing import print_json, require_extra
from migrator.core.errors import InputError

if TYPE_CHECKING:
    from migrator.dashboard.routes import Source

DEFAULT_PORT = 8601


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
    ] = DEFAULT_PORT,
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
    sources = [_source(each, state) for each in records or [""]]
    _show(sources, port, opens, as_json)


def _source(given: str, state: Path | None) -> Source:
    """The named records: a file, a folder, or a scenario of the state folder."""
    from migrator.cli.live_runs import RECORDS, records_file
    from migrator.dashboard.routes import Source
    from migrator.records.store import read_runs

    path = Path(given)
    if not given:
        path = records_file(state, None)
    elif path.is_dir():
        inside = path / RECORDS
        path = inside if inside.exists() else records_file(path, None)
    elif not path.is_file():
        path = _served(given, state)
    runs = read_runs(path)
    if not runs:
        raise InputError(f"{path}: there is no run in these records; name others")
    named = path.parent.name if path.name == RECORDS else path.stem
    return Source(named, path)


def _served(given: str, state: Path | None) -> Path:
    from migrator.cli.live_runs import records_file

    try:
        return records_file(state, given)
    except InputError as error:
        raise InputError(
            f"RECORDS: there is no file, folder or served scenario called {given}; give a "
            "records.db, a state folder, or what `migrator simulate --records` wrote"
        ) from error


def _show(sources: list[Source], port: int, opens: bool, as_json: bool) -> None:
    import asyncio
    import signal

    from migrator.dashboard.routes import serve_page

    def listening(url: str) -> None:
        if as_json:
            print_json({"url": url, "sources": [str(each.path) for each in sources]})
        else:
            print(f"page    {url}  (Ctrl-C ends it)", flush=True)
        if opens:
            _open(url)

    async def shown() -> None:
        stop, running = asyncio.Event(), asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            running.add_signal_handler(number, stop.set)
        await serve_page(sources, port, listening, stop)

    asyncio.run(shown())


def _open(url: str) -> None:
    import webbrowser

    if not webbrowser.open(url):
        typer.echo(f"found no browser; open {url}", err=True)
