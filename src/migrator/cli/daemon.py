"""Finds the records of a live run, and talks to its daemon."""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from migrator import __version__
from migrator.core.errors import InputError, MigratorError
from migrator.io.file_kind import may_never_end
from migrator.io.folders import state_folder
from migrator.io.http_client import NoAnswerError, address_of, request
from migrator.io.processes import Process
from migrator.io.tls import pinned, trusting
from migrator.records.current_run import DaemonProbe, DaemonState, daemon_url
from migrator.records.rows import RunRow
from migrator.records.store import read_runs
from migrator.workload.tokens import CLIENT_VARIABLES

RECORDS = "records.db"
_PROBE_S = 2.0
"""Timeout of a probe, which is repeated or not needed."""
_ANSWER_S = 5.0
_LEEWAY_S = 5.0
"""Tolerance in seconds between a process's start and its first record: clocks count in ticks."""


def records_file(state: Path | None, scenario: str | None) -> Path:
    """The records of a scenario in the state folder, by default the newest."""
    folder = state_folder(state) / "live"
    files = {path.parent.name: path for path in folder.glob(f"*/{RECORDS}")}
    if not files:
        raise InputError(
            f"{folder}: nothing was served from this state folder; start `migrator serve "
            "SCENARIO`, or name another one with --state"
        )
    if scenario is None:
        return max(files.values(), key=_written_s)
    if scenario not in files:
        raise InputError(
            f"--scenario: nothing called {scenario!r} was served from {folder.parent}; use "
            f"{' or '.join(sorted(files))}"
        )
    return files[scenario]


def _written_s(path: Path) -> float:
    """When the file or its write-ahead log was last written."""
    log = path.with_name(f"{path.name}-wal")
    return max(file.stat().st_mtime for file in (path, log) if file.exists())


def named_records(given: str, state: Path | None, option: str) -> Path:
    """The records that an option names: a file, a folder, or a scenario of the state folder."""
    path = Path(given)
    if path.is_dir():
        return path / RECORDS if (path / RECORDS).exists() else records_file(path, None)
    if path.is_file():
        return path
    try:
        return records_file(state, given)
    except InputError as error:
        raise InputError(
            f"{option}: there is no file, folder or served scenario called {given}; give a "
            "records.db, a state folder, or what `migrator simulate --records` wrote"
        ) from error


def probe_daemon(
    run: RunRow, newest: bool, token: str | None, ca: Path | None = None
) -> DaemonProbe:
    """Whether the daemon of a run is running, and its status reply. `ca`: as of `find_daemon`."""
    if run.ended_s is not None:
        return DaemonProbe(DaemonState.ENDED)
    there, url = is_there(run.pid, run.began_s), daemon_url(run)
    if not newest or (not there and url is None):
        return DaemonProbe(DaemonState.KILLED)
    if url is None:
        return DaemonProbe(DaemonState.RUNNING)
    answer, why = _status_reply(url, token, _trusted(run, ca))
    if answer is not None and answer.get("pid") == run.pid:
        return DaemonProbe(DaemonState.RUNNING, "", answer)
    if not there:  # a reply counts more: the clock may have been set meanwhile
        return DaemonProbe(DaemonState.KILLED)
    return DaemonProbe(DaemonState.SILENT, why or f"another process answers at {url}")


def is_there(pid: int, began_s: float) -> bool:
    """Whether that process still runs; a process that began later has reused its id."""
    process = Process.of(pid)
    if not process.alive or process.began is None:
        return process.alive
    booted_s = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return booted_s + process.began / os.sysconf("SC_CLK_TCK") <= began_s + _LEEWAY_S


def _trusted(run: RunRow, ca: Path | None) -> ssl.SSLContext | None:
    """What is trusted of the daemon of a run: the CAs, or what it has published here."""
    if ca is not None:
        return trusting(ca)
    published = run.about.get("certificates")
    return pinned(Path(published)) if isinstance(published, str) else None


def _status_reply(
    url: str, token: str | None, context: ssl.SSLContext | None
) -> tuple[Mapping[str, Any] | None, str]:
    """The status reply of a daemon, or why there is none, for who has just asked for the status."""
    try:
        reply = request(
            url, "GET", "/admin/status", timeout_s=_PROBE_S, token=token or None, context=context
        )
    except MigratorError as error:
        return None, str(error)
    if reply.status in (401, 403):
        return None, f"{url} requires the administration token; put it into {CLIENT_VARIABLES[0]}"
    answer = reply.json_object() if reply.status == 200 else None
    return answer, "" if answer else f"{url} returned {reply.status} instead of a status"


@dataclass(frozen=True)
class DaemonClient:
    """Requests to a daemon, with the admin token if there is one."""

    url: str
    token: str | None = None
    pid: int | None = None
    """The expected process id; None for any."""
    context: ssl.SSLContext | None = None
    """What is trusted of a daemon with TLS; None: the CAs of the system."""

    def status(self) -> Mapping[str, Any]:
        """The daemon's status; InputError for a wrong token, MigratorError without an answer."""
        status, answer = self.request("GET", "/admin/status")
        if status != 200 or "tenants" not in answer:
            why = answer.get("error", "this is not a daemon's status")
            raise MigratorError(f"{self.url} returned {status}: {why}; check the address")
        if self.pid is not None and answer.get("pid") != self.pid:
            raise MigratorError(
                f"another process than {self.pid} answers at {self.url}; pass the right address "
                "with --url"
            )
        return answer

    def request(
        self, method: str, path: str, body: object = None, wait_s: float = _ANSWER_S
    ) -> tuple[int, Mapping[str, Any]]:
        """Send a request. Returns the status code and the JSON object of the response."""
        try:
            reply = request(
                *(self.url, method, path),
                timeout_s=wait_s,
                token=self.token,
                body=body,
                headers={"user-agent": f"migrator-cli/{__version__}"},
                context=self.context,
            )
        except NoAnswerError as error:
            raise MigratorError(f"{error}; see whether it runs with `migrator status`") from error
        if reply.status == 401 and self.token is None:
            raise InputError(
                f"{self.url} requires the admin token; set {CLIENT_VARIABLES[0]} or pass "
                "--token-file"
            )
        if reply.status == 401 or (reply.status == 403 and self.token is not None):
            raise InputError(
                f"{self.url} does not accept this admin token; use the one that the scenario "
                "calls admin"
            )
        return reply.status, reply.json_object() or {}


def find_daemon(
    url: str | None,
    state: Path | None,
    scenario: str | None,
    token_file: Path | None,
    ca: Path | None = None,
) -> DaemonClient:
    """The daemon at the address, or the one whose records were written last.

    `ca`: certificates that its own is verified with; None: those of the system, or without an
    address what the daemon has published on this machine.
    """
    token = read_token(token_file)
    if url is not None:
        address_of(url)
        return DaemonClient(url.rstrip("/"), token, None, trusting(ca))
    run = read_runs(records_file(state, scenario))[-1]
    probed = probe_daemon(run, True, token, ca).state
    if probed in (DaemonState.ENDED, DaemonState.KILLED):
        ended = "has ended" if probed is DaemonState.ENDED else "was killed or crashed"
        raise MigratorError(
            f"no daemon runs: run {run.run} of {run.scenario} {ended}; start `migrator serve`, or "
            "select another one with --url or --state"
        )
    recorded = daemon_url(run)
    if recorded is None:
        raise MigratorError(f"{run.scenario} is still starting; try again in a few seconds")
    return DaemonClient(recorded, token, run.pid, _trusted(run, ca))


def read_token(path: Path | None) -> str | None:
    """The token from the file, otherwise from the environment."""
    if path is None:
        token = next(filter(None, map(os.environ.get, CLIENT_VARIABLES)), None)
    else:
        if may_never_end(path):
            raise InputError(
                f"--token-file: {path} is a FIFO, socket or device; give a regular file"
            )
        try:
            token = path.read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            raise InputError(
                f"--token-file: {path} cannot be read ({error}); name a file with the token"
            ) from error
        if not token:
            raise InputError(f"--token-file: {path} is empty; write the token into it")
    if token is not None:
        require_token_characters("token", token)
    return token or None


def require_token_characters(name: str, token: str) -> None:
    """InputError if a token contains characters that no token has."""
    if not token.isascii() or not token.isprintable() or " " in token:
        raise InputError(f"{name}: contains characters that no token has; pass it as created")
