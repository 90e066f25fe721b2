"""The daemon that a verb speaks to: found as `migrator status` finds it, asked over HTTP."""

from __future__ import annotations

import http.client
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from migrator import __version__
from migrator.cli.live_runs import found as found_of
from migrator.cli.live_runs import records_file
from migrator.core.errors import InputError, MigratorError
from migrator.records.standing import Life, address
from migrator.records.store import read_runs
from migrator.workload.tokens import CLIENT_VARIABLES

_AGENT = f"migrator-cli/{__version__}"
_MOST_BYTES = 2**22
_ANSWER_S = 5.0


@dataclass(frozen=True)
class Daemon:
    """Where it listens, and the token for administration if there is one."""

    url: str
    token: str | None = None
    pid: int | None = None
    """None: whoever answers there is meant."""

    def status(self) -> Mapping[str, Any]:
        """How it says it is; InputError for a wrong token, MigratorError where nobody answers."""
        status, told = self.asked("GET", "/admin/status")
        if status != 200 or "tenants" not in told:
            said = told.get("error", "not how it is")
            raise MigratorError(
                f"{self.url} answers with status {status}: {said}; check the address"
            )
        if self.pid is not None and told.get("pid") != self.pid:
            raise MigratorError(
                f"another process than {self.pid} answers at {self.url}; name the right one with "
                "--url"
            )
        return told

    def asked(
        self, method: str, path: str, body: object = None, wait_s: float = _ANSWER_S
    ) -> tuple[int, Mapping[str, Any]]:
        """Status and answer."""
        parts = urlsplit(self.url)
        kind = (
            http.client.HTTPSConnection if parts.scheme == "https" else (http.client.HTTPConnection)
        )
        sent = None if body is None else json.dumps(body)
        try:
            # no proxies and no redirections: a token goes to the daemon or nowhere
            connection = kind(parts.hostname or "", parts.port, timeout=wait_s)
            try:
                connection.request(method, path, sent, self._headers(sent is not None))
                reply = connection.getresponse()
                told = _read(reply.read(_MOST_BYTES))
            finally:
                connection.close()
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise MigratorError(
                f"{self.url} does not answer ({error or type(error).__name__}); see whether it "
                "runs with `migrator status`"
            ) from error
        self._require_token(reply.status)
        return reply.status, told

    def _headers(self, json_body: bool) -> dict[str, str]:
        headers = {"user-agent": _AGENT}
        if json_body:
            headers["content-type"] = "application/json"
        if self.token is not None:
            headers["authorization"] = f"Bearer {self.token}"
        return headers

    def _require_token(self, status: int) -> None:
        if status == 401 and self.token is None:
            raise InputError(
                f"{self.url} wants the token for administration; put it into "
                f"{CLIENT_VARIABLES[0]}, or name a file with --token-file"
            )
        if status == 401 or (status == 403 and self.token is not None):
            raise InputError(
                f"{self.url} does not take this token for administration; give the one that the "
                "scenario calls admin"
            )


def daemon(
    url: str | None, state: Path | None, scenario: str | None, token_file: Path | None
) -> Daemon:
    """The one at the address, or the one whose records were written last."""
    token = token_of(token_file)
    if url is not None:
        return Daemon(_checked(url), token)
    path = records_file(state, scenario)
    run = read_runs(path)[-1]
    life = found_of(run, True, token).life
    if life in (Life.ENDED, Life.KILLED):
        ended = "has ended" if life is Life.ENDED else "was killed or crashed"
        raise MigratorError(
            f"no daemon runs: run {run.run} of {run.scenario} {ended}; start `migrator serve`, or "
            "name one with --url or --state"
        )
    found = address(run)
    if found is None:
        raise MigratorError(f"{run.scenario} is still starting; try again in some seconds")
    return Daemon(found, token, run.pid)


def token_of(path: Path | None) -> str | None:
    """The token in the file, else in the environment."""
    if path is None:
        found = next((os.environ[each] for each in CLIENT_VARIABLES if os.environ.get(each)), None)
    else:
        try:
            found = path.read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            raise InputError(
                f"--token-file: {path} cannot be read ({error}); name a file with the token"
            ) from error
    if found is not None and (not found.isascii() or not found.isprintable() or " " in found):
        raise InputError("token: it has characters that no token has; give it as it was made")
    return found or None


def _checked(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError(f"--url: {url[:80]!r} is no address; give one as http://127.0.0.1:8600")
    return url.rstrip("/")


def _read(body: bytes) -> Mapping[str, Any]:
    try:
        told = json.loads(body)
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}
