"""A client of the daemon's administration API, used by `admin`, `top` and `gateway`."""

from __future__ import annotations

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
from migrator.io.http_client import NoAnswerError, request
from migrator.records.standing import DaemonState, daemon_url
from migrator.records.store import read_runs
from migrator.workload.tokens import CLIENT_VARIABLES

_AGENT = f"migrator-cli/{__version__}"
_ANSWER_S = 5.0


@dataclass(frozen=True)
class DaemonClient:
    """Requests to a daemon, with the admin token if there is one."""

    url: str
    token: str | None = None
    pid: int | None = None
    """The expected process id; None for any."""

    def status(self) -> Mapping[str, Any]:
        """The daemon's status; InputError for a wrong token, MigratorError without an answer."""
        status, told = self.request("GET", "/admin/status")
        if status != 200 or "tenants" not in told:
            why = told.get("error", "this is not a daemon's status")
            raise MigratorError(f"{self.url} returned {status}: {why}; check the address")
        if self.pid is not None and told.get("pid") != self.pid:
            raise MigratorError(
                f"another process than {self.pid} answers at {self.url}; pass the right address "
                "with --url"
            )
        return told

    def request(
        self, method: str, path: str, body: object = None, wait_s: float = _ANSWER_S
    ) -> tuple[int, Mapping[str, Any]]:
        """Send a request. Returns the status code and the JSON object of the response."""
        headers = {"user-agent": _AGENT}
        try:
            reply = request(
                self.url,
                method,
                path,
                timeout_s=wait_s,
                token=self.token,
                body=body,
                headers=headers,
            )
        except NoAnswerError as error:
            raise MigratorError(f"{error}; see whether it runs with `migrator status`") from error
        self._require_token(reply.status)
        return reply.status, reply.json_object() or {}

    def _require_token(self, status: int) -> None:
        if status == 401 and self.token is None:
            raise InputError(
                f"{self.url} requires the admin token; set {CLIENT_VARIABLES[0]} or pass "
                "--token-file"
            )
        if status == 401 or (status == 403 and self.token is not None):
            raise InputError(
                f"{self.url} does not accept this admin token; use the one that the scenario "
                "calls admin"
            )


def daemon(
    url: str | None, state: Path | None, scenario: str | None, token_file: Path | None
) -> DaemonClient:
    """The daemon at the address, or the one whose records were written last."""
    token = token_of(token_file)
    if url is not None:
        return DaemonClient(_checked(url), token)
    path = records_file(state, scenario)
    run = read_runs(path)[-1]
    life = found_of(run, True, token).state
    if life in (DaemonState.ENDED, DaemonState.KILLED):
        ended = "has ended" if life is DaemonState.ENDED else "was killed or crashed"
        raise MigratorError(
            f"no daemon runs: run {run.run} of {run.scenario} {ended}; start `migrator serve`, or "
            "select another one with --url or --state"
        )
    found = daemon_url(run)
    if found is None:
        raise MigratorError(f"{run.scenario} is still starting; try again in a few seconds")
    return DaemonClient(found, token, run.pid)


def token_of(path: Path | None) -> str | None:
    """The token from the file, otherwise from the environment."""
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
        raise InputError("token: contains characters that no token has; pass it as created")
    return found or None


def _checked(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError(f"--url: {url[:80]!r} is not an address such as http://127.0.0.1:8600")
    return url.rstrip("/")
