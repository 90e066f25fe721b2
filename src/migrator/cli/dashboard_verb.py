"""The verb `dashboard`: shows records on a page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from migrator.cli.app import app, print_json, require_extra
from migrator.cli.options import AsJson, State
from migrator.cli.serve_verbs import run_until_signal
from migrator.core.errors import InputError

if TYPE_CHECKING:
    from migrator.dashboard.routes import Source


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

    sources = [_source(each, state) for each in records or [""]]

    def listening(url: str) -> None:
        if as_json:
            print_json({"url": url, "sources": [str(each.path) for each in sources]})
        else:
            print(f"page    {url}  (Ctrl-C ends it)", flush=True)
        if opens and not webbrowser.open(url):
            typer.echo(f"found no browser; open {url}", err=True)

    run_until_signal(lambda stop: serve_page(sources, port, listening, stop))


def _source(given: str, state: Path | None) -> Source:
    """The named records: a file, a folder, or a scenario of the state folder."""
    from migrator.cli.daemon import RECORDS, records_file, records_in
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
