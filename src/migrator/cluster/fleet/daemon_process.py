"""The daemon of one GPU as a process of its agent: start, find, call and stop it."""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from migrator.cluster.fleet.gpu_daemon import GpuDaemonSettings
from migrator.core.errors import MigratorError
from migrator.io.atomic import write_atomically
from migrator.io.http_client import request
from migrator.io.processes import Process
from migrator.io.state_folder import private_folder
from migrator.serve.http.routes import ORDER_KEY

_log = logging.getLogger(__name__)

_LOOK_S = 0.05
_LEASE = "lease"
_LAUNCH = '"$@" >>"$0" 2>&1 </dev/null & echo $!'
"""Detaches the daemon, because Ray kills the children of an actor that dies."""


class _KnownProcess(msgspec.Struct):
    pid: int
    began: int | None
    served: bool = False


class DaemonProcess:
    """One daemon in a folder; another agent with the same folder finds it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.lease = folder, folder / f"{_LEASE}.0"
        self.log = folder / "daemon.log"
        self._known, self._settings = folder / "daemon.json", folder / "settings.json"
        self._process: Process | None = None
        self.served = False
        """Whether this daemon process has responded, to this agent or to an earlier one."""
        private_folder(folder)

    def find(self) -> GpuDaemonSettings | None:
        """Settings of a running daemon that an earlier agent has started; None if there is none."""
        try:
            known = msgspec.json.decode(self._known.read_bytes(), type=_KnownProcess)
            settings = msgspec.json.decode(self._settings.read_bytes(), type=GpuDaemonSettings)
        except (OSError, msgspec.MsgspecError):
            return None
        process = Process(known.pid, "", known.began)
        if not process.alive:
            return None
        self._process, self.lease = process, Path(settings.lease)
        self.served = known.served
        return settings

    def start(self, settings: GpuDaemonSettings) -> None:
        """Start the daemon. It is not ready yet on return."""
        settings = msgspec.structs.replace(settings, lease=str(self._new_lease()))
        self.keep(settings)
        command = [sys.executable, "-m", "migrator.cluster.fleet.gpu_daemon", str(self._settings)]
        done = subprocess.run(
            ["/bin/sh", "-c", _LAUNCH, str(self.log), *command],
            stdout=subprocess.PIPE,
            env=_environment(),
            start_new_session=True,
            check=True,
        )
        self._process, self.served = Process.of(int(done.stdout)), False
        self._store_identity()

    def keep(self, settings: GpuDaemonSettings) -> None:
        """Store the daemon's current settings, for a restart or another agent."""
        _write(self._settings, settings)

    def answers(self) -> None:
        """Record that the daemon serves, so that a later agent does not treat it as starting."""
        if not self.served:
            self.served = True
            with suppress(MigratorError):  # a full disk: a later agent only waits longer
                self._store_identity()

    @property
    def order_key(self) -> str:
        """The key that orders to this daemon must carry; only its user can read the lease."""
        with suppress(OSError):
            return self.lease.read_text(encoding="ascii")
        return ""

    @property
    def pid(self) -> int | None:
        """Process id; None if there is no process."""
        return self._process.pid if self._process else None

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.alive

    def renew(self) -> None:
        """Renew the lease."""
        self.lease.touch()

    def stop(self, limit_s: float) -> None:
        """Let it drain and free its instances; kill it if it does not end in time."""
        if self._process is None:
            return
        self._signal(signal.SIGTERM)
        until_s = time.monotonic() + limit_s
        while self.alive and time.monotonic() < until_s:
            time.sleep(_LOOK_S)
        if self.alive:
            self.kill()

    def kill(self) -> None:
        """Kill the process; the next daemon deletes what it left."""
        self._signal(signal.SIGKILL)

    def last_words(self) -> str:
        """The last line of its log, to explain why it ended."""
        with suppress(OSError, IndexError):
            return self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-1][:300]
        return ""

    def _store_identity(self) -> None:
        """Store the identity of the process, for a later agent."""
        if self._process is not None:
            known = _KnownProcess(self._process.pid, self._process.began, self.served)
            _write(self._known, known)

    def _new_lease(self) -> Path:
        """Create a lease and delete older ones.

        Deleting them ends a daemon whose agent died before it could record the process.
        """
        for each in self.folder.glob(f"{_LEASE}.*"):
            each.unlink(missing_ok=True)
        self.lease = self.folder.absolute() / f"{_LEASE}.{time.time_ns()}"
        handle = os.open(self.lease, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(secrets.token_hex())
        return self.lease

    def _signal(self, number: int) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, number)


def _write(path: Path, content: msgspec.Struct) -> None:
    with write_atomically(path) as unfinished:
        unfinished.write_bytes(msgspec.json.encode(content))


def _environment() -> dict[str, str]:
    """This environment without the setting that hides GPUs: Ray adds it for actors without GPUs."""
    return {k: v for k, v in os.environ.items() if (k, v) != ("CUDA_VISIBLE_DEVICES", "")}


def restore_priority() -> None:
    """Undo the nice level that Ray gives its workers, because daemons inherit it from their agent.

    A worker's parent is a process of Ray, which has the level that Ray was started with.
    """
    wanted, ours = (os.getpriority(os.PRIO_PROCESS, each) for each in (os.getppid(), 0))
    if ours <= wanted:
        return
    try:
        for thread in Path("/proc/self/task").iterdir():
            with suppress(ProcessLookupError):
                os.setpriority(os.PRIO_PROCESS, int(thread.name), wanted)
    except OSError as error:
        _log.warning(
            "requests are served at nice %d (%s); start Ray with RAY_worker_niceness=0", ours, error
        )


def call_daemon(
    url: str,
    method: str,
    path: str,
    *,
    token: str | None,
    body: object = None,
    wait_s: float = 2.0,
    order_key: str | None = None,
) -> tuple[int, Mapping[str, Any]]:
    """Return status and answer of a daemon; MigratorError if there is no answer."""
    headers = {} if order_key is None else {ORDER_KEY: order_key}
    reply = request(url, method, path, timeout_s=wait_s, token=token, body=body, headers=headers)
    answer = reply.json_object()
    if answer is None:
        raise MigratorError(f"{url} does not answer in JSON (status {reply.status})")
    return reply.status, answer


def free_port(host: str) -> int:
    """A port that no process listens on."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])
