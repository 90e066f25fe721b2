"""The daemon of one GPU as its agent sees it: started, found again, asked, stopped."""

from __future__ import annotations

import http.client
import json
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
from urllib.parse import urlsplit

import msgspec

from migrator.cluster.fleet.gpu_daemon import Settings
from migrator.core.errors import MigratorError
from migrator.gpu.processes import Process
from migrator.gpu.state import private_folder
from migrator.learn.atomic import written_whole
from migrator.serve.tenant_routes import ORDER_KEY

_log = logging.getLogger(__name__)

_MOST_BYTES = 2**22
_LOOK_S = 0.05
_LEASE = "lease"
_LAUNCH = '"$@" >>"$0" 2>&1 </dev/null & echo $!'
"""As nobody's child: Ray ends the children of an actor that dies, and this one outlives it."""


class DaemonProcess:
    """One daemon in a folder; whoever takes over the folder finds it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.lease = folder, folder / f"{_LEASE}.0"
        self.log = folder / "daemon.log"
        self._known = folder / "daemon.json"
        self._process: Process | None = None
        self.served = False
        """Whether it has answered in its life, to us or to an agent before us."""
        private_folder(folder)

    def found(self) -> Settings | None:
        """The settings of the one that an agent before us has started and that lives still."""
        try:
            told = json.loads(self._known.read_bytes())
            process = Process(told["pid"], "", told["began"])
            settings = msgspec.json.decode(self._settings.read_bytes(), type=Settings)
        except (OSError, ValueError, KeyError, TypeError):
            return None
        if not process.alive:
            return None
        self._process, self.lease = process, Path(settings.lease)
        self.served = told.get("served") is True
        return settings

    def start(self, settings: Settings) -> None:
        """Begin it; whether it serves is to be asked."""
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
        self._tell()

    def keep(self, settings: Settings) -> None:
        """What it does by now, for whoever starts it again or finds it."""
        with written_whole(self._settings) as unfinished:
            unfinished.write_bytes(msgspec.json.encode(settings))

    def answers(self) -> None:
        """It serves: whoever finds it later need not wait for it as for one that begins."""
        if not self.served:
            self.served = True
            with suppress(MigratorError):  # a full disk: it is waited for longer then
                self._tell()

    @property
    def order_key(self) -> str:
        """The key that orders to this daemon must carry; only its user can read the lease."""
        with suppress(OSError):
            return self.lease.read_text(encoding="ascii")
        return ""

    @property
    def pid(self) -> int | None:
        """Its number; None: there is none."""
        return self._process.pid if self._process else None

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.alive

    def renew(self) -> None:
        """It may live on."""
        self.lease.touch()

    def stop(self, limit_s: float) -> None:
        """Let it drain and free what it made; one that does not end in time is killed."""
        if self._process is None:
            return
        self._signal(signal.SIGTERM)
        until_s = time.monotonic() + limit_s
        while self.alive and time.monotonic() < until_s:
            time.sleep(_LOOK_S)
        if self.alive:
            self.kill()

    def kill(self) -> None:
        """End it at once; what it made is cleared by the next one."""
        self._signal(signal.SIGKILL)

    def last_words(self) -> str:
        """The end of its log, for whoever asks why it is not there."""
        with suppress(OSError, IndexError):
            return self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-1][:300]
        return ""

    def _tell(self) -> None:
        """Who it is, for an agent after us."""
        if self._process is not None:
            told = {"pid": self._process.pid, "began": self._process.began, "served": self.served}
            with written_whole(self._known) as unfinished:
                unfinished.write_text(json.dumps(told), encoding="utf-8")

    def _new_lease(self) -> Path:
        """One begun by an agent that died before it could say so ends, as its own is gone."""
        for each in self.folder.glob(f"{_LEASE}.*"):
            each.unlink(missing_ok=True)
        self.lease = self.folder.absolute() / f"{_LEASE}.{time.time_ns()}"
        handle = os.open(self.lease, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(secrets.token_hex())
        return self.lease

    @property
    def _settings(self) -> Path:
        return self.folder / "settings.json"

    def _signal(self, number: int) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, number)


def _environment() -> dict[str, str]:
    """Ours; Ray hides the GPUs from actors that asked it for none, as ours do."""
    return {k: v for k, v in os.environ.items() if (k, v) != ("CUDA_VISIBLE_DEVICES", "")}


def restore_priority() -> None:
    """Undo the nice level that Ray gives its workers: daemons inherit it from their agent.

    A worker's parent is Ray's own process, which has the level that Ray was started with.
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


def asked(
    url: str,
    method: str,
    path: str,
    *,
    token: str | None,
    body: object = None,
    wait_s: float = 2.0,
    order_key: str | None = None,
) -> tuple[int, Mapping[str, Any]]:
    """Status and answer of a daemon; MigratorError where none comes."""
    parts = urlsplit(url)
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    if order_key is not None:
        headers[ORDER_KEY] = order_key
    sent = None if body is None else json.dumps(body)
    if sent is not None:
        headers["content-type"] = "application/json"
    try:
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=wait_s)
        try:
            connection.request(method, path, sent, headers)
            reply = connection.getresponse()
            told = json.loads(reply.read(_MOST_BYTES))
        finally:
            connection.close()
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise MigratorError(f"{url} does not answer ({error or type(error).__name__})") from error
    return reply.status, told if isinstance(told, dict) else {}


def free_port(host: str) -> int:
    """One that nobody listens on."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])
