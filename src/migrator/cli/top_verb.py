"""The verb `top`: watches a running daemon in the terminal."""

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

from migrator.cli.app import app, print_json
from migrator.cli.options import AsJson, State, TokenFile, Url
from migrator.core.errors import InputError, MigratorError

if TYPE_CHECKING:
    from migrator.core.catalogue import Board
    from migrator.records.standing import DaemonProbe, RecentRows, Standing, UnitUsage

_PIPED_COLUMNS = 100
_FIRST_LOOKS_S = 1.0
"""Seconds between the two replies that a rate needs if there are no records."""


@app.command()
def top(
    scenario: Annotated[
        str | None,
        typer.Argument(metavar="[SCENARIO]", help="Its name; default the one written last."),
    ] = None,
    url: Url = None,
    state: State = None,
    token_file: TokenFile = None,
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
    watch = _Watch(url, state, scenario, token_file)
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
    given = sys.stdout.isatty() or "COLUMNS" in os.environ
    Console(width=None if given else _PIPED_COLUMNS).print(Screen(now, watch.board(), whole=True))


class _Watch:
    """A daemon and its records, also while it is down; InputError if there is nothing to watch."""

    def __init__(
        self, url: str | None, state: Path | None, scenario: str | None, token_file: Path | None
    ) -> None:
        from migrator.cli.daemon import find_daemon, read_token, records_file
        from migrator.records.pace import RateMeter

        self._meter, self._token = RateMeter(), read_token(token_file)
        self._rows: RecentRows | None = None
        self._last: Standing | None = None
        self._daemon = None if url is None else find_daemon(url, None, None, token_file)
        self._path = records_file(state, scenario) if url is None else None

    def look(self) -> Standing:
        """Read the current state."""
        from migrator.records.standing import standing

        now_s = time.time()
        probe = self._probe()
        if probe.reply is not None:
            self._meter.add(now_s, probe.reply)
        else:
            self._meter.clear()
        if self._rows is None and probe.reply is None and self._last is not None:
            return replace(self._last, probe=probe, now_s=now_s)
        found = standing(self._rows, probe, now_s, self._meter)
        self._last = replace(found, usage=_usage(probe))
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
        from migrator.records.standing import DaemonProbe, DaemonState, read_recent

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
        return probe_daemon(self._rows.run, True, self._token)


def _usage(probe: DaemonProbe) -> tuple[UnitUsage, ...]:
    """What the driver reports of the daemon's GPU; empty if that is emulated or elsewhere."""
    from migrator.cli.daemon import is_there

    reply = probe.reply or {}
    local = is_there(int(reply.get("pid", 0)), time.time()) if reply.get("pid") else False
    if not local or reply.get("driver") not in ("mig", "mps"):
        return ()
    from migrator.gpu.usage import read_usage
    from migrator.records.standing import UnitUsage

    found = read_usage(int(reply.get("gpu", 0)))
    return tuple(UnitUsage(e.start, e.busy, e.used_mib, e.total_mib) for e in found)


def _live(watch: _Watch, every_s: float) -> None:
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
