"""The verb `load`, which sends the requests of a scenario to a running server."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from migrator.cli.app import (
    FAILED,
    INTERRUPTED,
    AsJson,
    Ca,
    ScenarioFile,
    Seed,
    app,
    complain,
    naming,
    print_json,
    require_extra,
    say,
)

if TYPE_CHECKING:
    import asyncio

    from migrator.core.outcome import LoadOutcome
    from migrator.core.scenario import LabelsAt
    from migrator.load.run import LoadProgress, LoadSettings
    from migrator.workload.live import LiveScenario


@app.command()
def load(
    scenario: ScenarioFile,
    url: Annotated[
        str | None, typer.Option(help="Address of the server; default: the scenario's.")
    ] = None,
    tenant: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Send only this tenant's requests; repeatable."),
    ] = None,
    windows: Annotated[
        int | None,
        typer.Option(min=1, max=1000, help="Send N windows; default: the scenario's."),
    ] = None,
    seed: Seed = None,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="MIGRATOR_TOKEN",
            help="Token for all tenants; default: those of the scenario. Prefer the variable.",
        ),
    ] = None,
    ca: Ca = None,
    labelled: Annotated[
        float,
        typer.Option(min=0, max=1, metavar="PART", help="Part of the labels to send; 0: none."),
    ] = 1.0,
    labels_at: Annotated[
        str,
        typer.Option(
            metavar="WHEN",
            help="When labels are sent: as feedback after answers, or for each window at its start "
            "(its training samples, uploaded shortly before it).",
        ),
    ] = "feedback",
    first_lead_s: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="With --labels-at start and a server that waits for its first request: seconds "
            "from the first upload to that request; default: half a window, 60 at most.",
        ),
    ] = None,
    now: Annotated[
        bool, typer.Option("--now", help="Start now instead of at the server's next window.")
    ] = False,
    patience_s: Annotated[
        float,
        typer.Option(min=0.1, metavar="SECONDS", help="Give up after this time without an answer."),
    ] = 10.0,
    as_json: AsJson = False,
) -> None:
    """Send a scenario's requests to a running server and report what clients observed.

    Open loop: each request is sent when it is due, whether or not earlier ones were answered.
    """
    require_extra("serve", "migrator load")
    from migrator.load.run import LoadSettings
    from migrator.report.load import load_json, load_table

    live = _read(scenario, seed, windows)
    host = f"[{live.live.host}]" if ":" in live.live.host else live.live.host
    scheme = "http" if live.live.tls is None else "https"
    settings = LoadSettings(
        url=url or f"{scheme}://{host}:{live.live.port}",
        tenants=tuple(tenant or ()),
        windows=live.scenario.windows,
        tokens=_tokens(live, token, scenario),
        labels=labelled,
        labels_at=_labels_at(labels_at),
        first_lead_s=first_lead_s,
        now=now,
        patience_s=patience_s,
        ca=ca,
    )
    outcome = _send(live, settings)
    if as_json:
        print_json(load_json(outcome))
    else:
        print(load_table(outcome))
    if outcome.ended == "interrupted":
        raise typer.Exit(INTERRUPTED)
    if outcome.ended is not None:
        complain(f"{outcome.ended}; check that {settings.url} still runs, then load again")
        raise typer.Exit(FAILED)


def _labels_at(given: str) -> LabelsAt:
    from migrator.core.errors import InputError
    from migrator.core.scenario import LabelsAt

    try:
        return LabelsAt(given)
    except ValueError:
        raise InputError(
            f"--labels-at: {given[:60]!r} is unknown; use {' or '.join(LabelsAt)}"
        ) from None


def _read(path: Path, seed: int | None, windows: int | None) -> LiveScenario:
    from migrator.cluster.file import is_cluster
    from migrator.core.scenario import HIGHEST_SEED
    from migrator.simulation.compare import require_range
    from migrator.workload.live import read_live

    require_range("--seed", seed, 0, HIGHEST_SEED)
    read = _read_cluster if is_cluster(path) else read_live
    return read(path, seed, windows)


def _read_cluster(path: Path, seed: int | None, windows: int | None) -> LiveScenario:
    """All tenants of a cluster, whose requests go to one gateway."""
    from dataclasses import replace

    from migrator.cluster.fleet.cluster_run import read_run

    run = read_run(path, driver="emulated", shared=None, state=path.parent, began_s=0.0)
    options = {"seed": seed, "windows": windows}
    data = {**run.data, **{key: value for key, value in options.items() if value is not None}}
    return replace(run, data=data).live_on_any()


def _tokens(live: LiveScenario, token: str | None, scenario: Path) -> dict[str, str]:
    from migrator.cli.daemon import require_token_characters
    from migrator.workload.live import ADMIN
    from migrator.workload.tokens import names_without_tenant, read_tokens

    names = [tenant.name for tenant in live.tenants]
    if token is None:
        with naming(scenario):
            tokens = read_tokens(live.live, names, os.environ) or {}
            if warning := names_without_tenant(live.live, names):
                say(f"warning: {warning}")
            return tokens
    require_token_characters("--token", token)
    return dict.fromkeys([ADMIN, *names], token)


def _send(live: LiveScenario, settings: LoadSettings) -> LoadOutcome:
    import asyncio

    from migrator.io.event_loop import event_loop
    from migrator.load.run import load as send

    begun = False
    with _progress_bar() as show, asyncio.Runner(loop_factory=event_loop) as runner:

        def watch(now: LoadProgress) -> None:
            nonlocal begun
            begun = True
            show(now)

        async def run() -> LoadOutcome:
            stop = asyncio.Event()
            with _stop_on_interrupt(stop, lambda: begun):
                return await send(live, settings, watch, stop)

        try:
            return runner.run(run())
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None


@contextmanager
def _stop_on_interrupt(stop: asyncio.Event, begun: Callable[[], bool]) -> Iterator[None]:
    """Stop sending on the first Ctrl-C and report what was measured so far.

    Before sending has begun, or the second time, Ctrl-C cancels everything.
    """
    import asyncio

    running, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None

    def interrupt() -> None:
        if stop.is_set() or not begun():
            task.cancel()
        stop.set()

    before = signal.getsignal(signal.SIGINT)
    running.add_signal_handler(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        running.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, before)


@contextmanager
def _progress_bar() -> Iterator[Callable[[LoadProgress], None]]:
    """A progress bar; none if standard error is not a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("connecting", total=None)

        def watch(now: LoadProgress) -> None:
            words = f"window {now.window}"
            if now.waits_s:
                words += f" begins in {now.waits_s:.0f} s"
            elif now.sent:
                words += f": {now.sent:,} sent, goodput {now.goodput / now.sent:.1%}"
            bar.update(task, description=words, total=now.whole_s, completed=now.passed_s)

        yield watch
