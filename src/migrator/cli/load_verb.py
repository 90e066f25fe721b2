"""The verb that plays clients: load."""

from __future__ import annotations

import gc
import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from migrator.cli.app import INTERRUPTED, app
from migrator.cli.plan_verbs import AsJson
from migrator.cli.printing import FAILED, complain, print_json, require_extra
from migrator.cli.simulate_verbs import ScenarioFile
from migrator.core.errors import InputError

if TYPE_CHECKING:
    from migrator.core.load_outcome import LoadOutcome
    from migrator.load.run import LoadSettings, Standing
    from migrator.workload.live import LiveScenario


@app.command()
def load(
    scenario: ScenarioFile,
    url: Annotated[
        str | None, typer.Option(help="Where the server is; default as the scenario says.")
    ] = None,
    tenant: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this one's requests; repeatable.")
    ] = None,
    windows: Annotated[
        int | None,
        typer.Option(min=1, max=1000, help="Send N windows; default as the scenario says."),
    ] = None,
    speed: Annotated[
        float, typer.Option(min=0.01, max=100, help="Seconds of the traces in one second.")
    ] = 1.0,
    seed: Annotated[int | None, typer.Option(help="Other arrivals from the same scenario.")] = None,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="MIGRATOR_TOKEN",
            help="For all tenants; default those that the scenario names. Better in the variable.",
        ),
    ] = None,
    feedback: Annotated[
        bool,
        typer.Option("--feedback/--no-feedback", help="Send the true label after every answer."),
    ] = True,
    labelled: Annotated[
        float,
        typer.Option(
            min=0, max=1, metavar="PART", help="Of the answers: whose true label is sent."
        ),
    ] = 1.0,
    now: Annotated[
        bool, typer.Option("--now", help="Begin inside the server's window, not at the next.")
    ] = False,
    patience_s: Annotated[
        float,
        typer.Option(min=0.1, metavar="SECONDS", help="Give up after so long without any answer."),
    ] = 10.0,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="Write a page about it.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Send a scenario's requests to a running server and say what clients saw.

    Open loop: requests go out when they are due, whatever became of those before them.
    """
    require_extra("serve", "migrator load")
    from migrator.load.run import LoadSettings

    if report is not None:
        from migrator.report.page_html import check_page_path

        check_page_path(report)
    live, count = _read(scenario, seed, windows, speed)
    settings = LoadSettings(
        url=url or _own_url(live),
        tenants=tuple(tenant or ()),
        windows=count,
        speed=speed,
        tokens=_tokens(live, token),
        labels=labelled if feedback else 0.0,
        now=now,
        patience_s=patience_s,
    )
    outcome = _loaded(live, settings)
    _tell(outcome, report, as_json)
    if outcome.ended is not None:
        raise typer.Exit(_exit_code(outcome, settings))


def _read(
    path: Path, seed: int | None, windows: int | None, speed: float
) -> tuple[LiveScenario, int]:
    """The scenario, long enough for so many windows at this speed, and their number."""
    from migrator.workload.cluster import is_cluster
    from migrator.workload.live import read_live

    read = _read_cluster if is_cluster(path) else read_live
    live = read(path, seed, windows)
    count = live.scenario.windows
    if speed != 1:
        live = read(path, seed, math.ceil(count * speed))
    return live, count


def _read_cluster(path: Path, seed: int | None, windows: int | None) -> LiveScenario:
    """All tenants of a cluster, whose requests go to one gateway."""
    from dataclasses import replace

    from migrator.cluster.fleet.cluster_run import read_run

    run = read_run(path, driver="emulated", shared=None, state=path.parent, began_s=0.0)
    given = {"seed": seed, "windows": windows}
    data = {**run.data, **{key: value for key, value in given.items() if value is not None}}
    return replace(run, data=data).live_on_any()


def _own_url(live: LiveScenario) -> str:
    host = f"[{live.live.host}]" if ":" in live.live.host else live.live.host
    return f"http://{host}:{live.live.port}"


def _tokens(live: LiveScenario, token: str | None) -> dict[str, str]:
    from migrator.workload.live import ADMIN
    from migrator.workload.tokens import read_tokens

    names = [each.name for each in live.tenants]
    if token is None:
        return read_tokens(live.live, names, os.environ) or {}
    if not token.isascii() or not token.isprintable() or " " in token:
        raise InputError("--token: it has characters that no token has; give it as it was made")
    return dict.fromkeys([ADMIN, *names], token)


def _loaded(live: LiveScenario, settings: LoadSettings) -> LoadOutcome:
    from migrator.cli.loops import loaded

    gc.enable()
    with _watched() as show:
        return loaded(live, settings, show)


@contextmanager
def _watched() -> Iterator[Callable[[Standing], None]]:
    """A bar on the terminal; nothing where nobody watches."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[told]}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("connecting", total=None, told="")

        def watch(now: Standing) -> None:
            if now.waits_s:
                words = f"window {now.window} begins in {now.waits_s:.0f} s"
                bar.update(task, description=words)
                return
            share = f"{now.goodput / now.sent:.1%}" if now.sent else "-"
            bar.update(
                task,
                description=f"window {now.window}",
                total=now.whole_s,
                completed=now.passed_s,
                told=f"{now.sent:,} sent, goodput {share}",
            )

        yield watch


def _tell(outcome: LoadOutcome, report: Path | None, as_json: bool) -> None:
    if report is not None:
        from migrator.report.load_report import load_page
        from migrator.report.page_html import write_page

        write_page(load_page(outcome), report)
    if as_json:
        from migrator.report.load_json import load_json

        print_json(load_json(outcome))
        return
    from migrator.report.load_text import load_table

    print(load_table(outcome))
    if report is not None:
        print(f"\nreport  {report}")


def _exit_code(outcome: LoadOutcome, settings: LoadSettings) -> int:
    if outcome.ended == "interrupted":
        return INTERRUPTED
    complain(f"{outcome.ended}; see whether {settings.url} still runs, and load again")
    return FAILED
