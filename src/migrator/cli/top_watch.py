"""The data of `migrator top`: the records of a run and its daemon's status, polled repeatedly."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from migrator.cli.daemon_calls import DaemonClient, daemon, token_of
from migrator.cli.live_runs import found, records_file
from migrator.core.catalogue import Board, board
from migrator.core.errors import InputError, MigratorError
from migrator.records.pace import RateMeter
from migrator.records.standing import (
    DaemonProbe,
    DaemonState,
    RecentRows,
    Standing,
    read_recent,
    standing,
)


class Watch:
    """A daemon and its records, also while it is down; InputError if there is nothing to watch."""

    def __init__(
        self, url: str | None, state: Path | None, scenario: str | None, token_file: Path | None
    ) -> None:
        self._meter, self._token = RateMeter(), token_of(token_file)
        self._rows: RecentRows | None = None
        self._last: Standing | None = None
        self._daemon = None if url is None else daemon(url, None, None, token_file)
        self._path = records_file(state, scenario) if url is None else None

    def look(self) -> Standing:
        """Read the current state."""
        now_s = time.time()
        probe = self._ask(self._daemon) if self._daemon is not None else self._read()
        if probe.reply is not None:
            self._meter.add(now_s, probe.reply)
        else:
            self._meter.clear()
        if self._rows is None and probe.reply is None and self._last is not None:
            return replace(self._last, probe=probe, now_s=now_s)
        self._last = standing(self._rows, probe, now_s, self._meter)
        return self._last

    def board(self) -> Board | None:
        """The board of the last look; None if unknown to this version or there is no reply yet."""
        try:
            return None if self._last is None else board(self._last.board)
        except MigratorError:
            return None

    def _ask(self, there: DaemonClient) -> DaemonProbe:
        try:
            return DaemonProbe(DaemonState.RUNNING, "", there.status())
        except InputError:
            raise  # waiting does not help against a wrong token
        except MigratorError as error:
            return DaemonProbe(DaemonState.SILENT, str(error))

    def _read(self) -> DaemonProbe:
        assert self._path is not None
        try:
            self._rows = read_recent(self._path)
        except InputError:
            if self._rows is None:
                raise
        assert self._rows is not None
        return found(self._rows.run, True, self._token)
