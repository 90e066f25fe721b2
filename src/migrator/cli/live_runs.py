"""Finds the records of a live run and asks its daemon for its status."""

from __future__ import annotations

import http.client
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from migrator.core.errors import InputError
from migrator.io.state_folder import state_folder
from migrator.records.rows import RunRow
from migrator.records.standing import DaemonProbe, DaemonState, daemon_url

RECORDS = "records.db"
ANSWER_S = 2.0
"""Timeout of a status request."""
_MOST_BYTES = 2**22
_LEEWAY_S = 5.0
"""Tolerance in seconds between a process's start and its first record: clocks count in ticks."""
_REFUSALS = (401, 403)


def records_file(state: Path | None, scenario: str | None) -> Path:
    """The records of a scenario in the state folder, by default the newest."""
    folder = state_folder(state) / "live"
    known = {each.parent.name: each for each in folder.glob(f"*/{RECORDS}")}
    if not known:
        raise InputError(
            f"{folder}: nothing was served from this state folder; start `migrator serve "
            "SCENARIO`, or name another one with --state"
        )
    if scenario is None:
        return max(known.values(), key=_written_s)
    if scenario not in known:
        raise InputError(
            f"--scenario: nothing called {scenario!r} was served from {folder.parent}; use "
            f"{' or '.join(sorted(known))}"
        )
    return known[scenario]


def _written_s(path: Path) -> float:
    """When the file or its write-ahead log was last written."""
    log = path.with_name(f"{path.name}-wal")
    return max(each.stat().st_mtime for each in (path, log) if each.exists())


def beside_file(given: str, own: Path) -> tuple[Path, int | None]:
    """The file and the run that `--beside` names: a run of the same file, another file, or its
    folder."""
    if given.isdecimal():
        return own, int(given)
    path = Path(given)
    if path.is_dir():
        inside = path / RECORDS
        return (inside if inside.exists() else records_file(path, None)), None
    if not path.exists():
        raise InputError(
            f"--beside: there is no {given}; give the number of a run, a {RECORDS}, or the state "
            "folder of another run"
        )
    return path, None


def found(run: RunRow, newest: bool, token: str | None) -> DaemonProbe:
    """Whether the daemon of a run is running, and its status reply."""
    if run.ended_s is not None:
        return DaemonProbe(DaemonState.ENDED)
    there, url = is_there(run.pid, run.began_s), daemon_url(run)
    if not newest or (not there and url is None):
        return DaemonProbe(DaemonState.KILLED)
    if url is None:
        return DaemonProbe(DaemonState.RUNNING)
    answer, why = asked(url, token)
    own = answer is not None and answer.get("pid") == run.pid
    if not there and not own:  # its reply counts more: the clock may have been set meanwhile
        return DaemonProbe(DaemonState.KILLED)
    if answer is not None and not own:
        return DaemonProbe(DaemonState.SILENT, f"another process answers at {url}")
    return DaemonProbe(
        DaemonState.RUNNING if answer is not None else DaemonState.SILENT, why, answer
    )


def is_there(pid: int, began_s: float) -> bool:
    """Whether that process still runs; a process that began later has reused its id."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    started_s = _started_s(pid)
    return started_s is None or started_s <= began_s + _LEEWAY_S


def _started_s(pid: int) -> float | None:
    """When a process began; infinity if it has ended, None if the system does not report it."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
        uptime_s = float(Path("/proc/uptime").read_text("utf-8").split()[0])
    except (OSError, ValueError, IndexError):
        return None
    if after_name[0] in "ZX":
        return float("inf")
    return time.time() - uptime_s + int(after_name[19]) / os.sysconf("SC_CLK_TCK")


def asked(url: str, token: str | None) -> tuple[Mapping[str, Any] | None, str]:
    """The status reply of a daemon, or why there is none."""
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    headers = {"authorization": f"Bearer {token}"} if token else {}
    try:
        # no proxies and no redirects: a token must reach only the daemon
        connection = kind(parts.hostname or "", parts.port, timeout=ANSWER_S)
        try:
            connection.request("GET", "/admin/status", headers=headers)
            reply = connection.getresponse()
            body = reply.read(_MOST_BYTES)
        finally:
            connection.close()
    except (OSError, http.client.HTTPException, ValueError) as error:
        return None, f"{url} does not answer ({error or type(error).__name__})"
    if reply.status in _REFUSALS:
        return None, f"{url} requires the administration token; put it into MIGRATOR_ADMIN_TOKEN"
    try:
        found = json.loads(body) if reply.status == 200 else None
    except ValueError:
        found = None
    if not isinstance(found, dict):
        return None, f"{url} returned {reply.status} instead of a status"
    return found, ""
