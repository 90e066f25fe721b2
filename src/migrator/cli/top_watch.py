"""What `migrator top` looks at, again and again: a file of records and its daemon, or one alone."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from migrator.cli.daemon_calls import Daemon, daemon, token_of
from migrator.cli.live_runs import found, records_file
from migrator.core.catalogue import Board, board
from migrator.core.errors import InputError, MigratorError
from migrator.records.standing import Found, Life
from migrator.report.top_pace import Pace
from migrator.report.top_reading import TopRows, read_top
from migrator.report.top_view import TopView, top_view


class Watch:
    """One daemon, also while it is not there; InputError where there is nothing to look at."""

    def __init__(
        self, url: str | None, state: Path | None, scenario: str | None, token_file: Path | None
    ) -> None:
        self._pace, self._token = Pace(), token_of(token_file)
        self._rows: TopRows | None = None
        self._last: TopView | None = None
        self._daemon: Daemon | None = None
        self._path: Path | None = None
        if url is not None:
            self._daemon = daemon(url, None, None, token_file)
        else:
            self._path = records_file(state, scenario)

    def look(self) -> TopView:
        """How it stands now."""
        now_s = time.time()
        known = self._asked(self._daemon) if self._daemon is not None else self._read()
        if known.answer is not None:
            self._pace.look(now_s, known.answer)
        else:
            self._pace.forget()
        if self._rows is None and known.answer is None and self._last is not None:
            return replace(self._last, life=known.life, why=known.why, now_s=now_s)
        self._last = top_view(self._rows, known, self._pace, now_s)
        return self._last

    def board(self) -> Board | None:
        """Of the last look; None: only another version knows it, or nobody has answered yet."""
        try:
            return None if self._last is None else board(self._last.board)
        except MigratorError:
            return None

    def _asked(self, there: Daemon) -> Found:
        try:
            return Found(Life.RUNNING, "", there.status())
        except InputError:
            raise  # a wrong token does not get right by waiting
        except MigratorError as error:
            return Found(Life.SILENT, str(error))

    def _read(self) -> Found:
        assert self._path is not None
        try:
            self._rows = read_top(self._path)
        except InputError:
            if self._rows is None:
                raise
        assert self._rows is not None
        return found(self._rows.run, True, self._token)
