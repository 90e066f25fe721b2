"""The verb `top`: watches a running daemon in the terminal."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from migrator.cli.admin_verbs import TokenFile, Url
from migrator.cli.app import app
from migrator.cli.live_verbs import State
from migrator.cli.options import AsJson
from migrator.cli.printing import print_json
from migrator.core.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from migrator.cli.top_watch import Watch
    from migrator.core.catalogue import Board
    from migrator.records.standing import Standing

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

    from migrator.cli.top_watch import Watch

    if url is not None and (scenario is not None or state is not None):
        raise InputError("--url: it names the daemon already; leave out SCENARIO and --state")
    watch = Watch(url, state, _name(scenario), token_file)
    stands = watch.look()
    if not sys.stdout.isatty() or once or as_json:
        if url is not None:
            time.sleep(min(every_s, _FIRST_LOOKS_S))
            stands = watch.look()
        _print(stands, watch.board(), as_json)
        return
    _live(watch, Console(), every_s)


def _name(scenario: str | None) -> str | None:
    """The name of a scenario, also if its file is given."""
    if scenario is not None and scenario.endswith((".yaml", ".yml")):
        return Path(scenario).stem
    return scenario


def _print(stands: Standing, board: Board | None, as_json: bool) -> None:
    from rich.console import Console

    from migrator.report.run_json import top_json
    from migrator.report.top_screen import Screen

    if as_json:
        print_json(top_json(stands))
        return
    given = sys.stdout.isatty() or "COLUMNS" in os.environ
    Console(width=None if given else _PIPED_COLUMNS).print(Screen(stands, board, whole=True))


def _live(watch: Watch, console: Console, every_s: float) -> None:
    """Update the screen until q or Ctrl-C."""
    from rich.live import Live

    from migrator.report.top_screen import Screen

    with _keys() as pressed, Live(console=console, screen=True, auto_refresh=False) as live:
        try:
            while True:
                stands = watch.look()
                live.update(Screen(stands, watch.board()), refresh=True)
                if pressed(every_s):
                    return
        except KeyboardInterrupt:
            return


@contextmanager
def _keys() -> Iterator[Callable[[float], bool]]:
    """A function that waits and returns True once q is pressed."""
    if not sys.stdin.isatty():
        yield _slept
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


def _slept(wait_s: float) -> bool:
    time.sleep(wait_s)
    return False
