"""The daemon of one GPU of a cluster: `python -m migrator.cluster.fleet.gpu_daemon SETTINGS`.

It is the daemon of `migrator serve`, with tenants that are added and removed, and a store that
outlives the machine. If its agent does not renew the lease, the daemon drains and exits.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from migrator.cluster.fleet.cluster_run import ClusterRun
from migrator.core.errors import MigratorError
from migrator.io.atomic_write import write_atomically
from migrator.io.event_loop import run_until_signal
from migrator.io.folders import private_folder
from migrator.io.http_client import request
from migrator.io.processes import Process
from migrator.serving.http.access import ORDER_KEY, Tokens, digest
from migrator.serving.logs import configure
from migrator.workload.live import ADMIN
from migrator.workload.tokens import drop_token_variables

if TYPE_CHECKING:
    from migrator.live.options import DaemonOptions

LEASE_S = 60.0
"""Seconds without renewal after which the lease expires. Longer than the head waits for an agent
(`watch.ALONE_S`), so that the tenants are served elsewhere before the daemon exits."""
_LEASE_POLL_S = 0.5

_POLL_S = 0.05
_LEASE = "lease"
_LAUNCH = '"$@" >>"$0" 2>&1 </dev/null & echo $!'
"""Detaches the daemon, because Ray kills the children of an actor that dies."""

_log = logging.getLogger(__name__)


class GpuDaemonSettings(msgspec.Struct, frozen=True):
    """Settings that the agent passes to its daemon."""

    run: ClusterRun
    gpu: str
    number: int
    """Index of the GPU in its machine."""
    port: int
    tenants: tuple[str, ...]
    lease: str
    """The agent touches this file to keep the daemon alive; it contains the key for orders."""


def serving_of(settings: GpuDaemonSettings) -> DaemonOptions:
    """The configuration of the daemon; InputError if it is invalid."""
    from migrator.cluster.shared_store import SharedStore
    from migrator.live.options import EMULATED, DaemonOptions

    run, gpu = settings.run, settings.gpu
    live = run.live_on(gpu, settings.tenants)
    # clients that use gRPC call a gateway: the daemons of one machine would share the port
    live = replace(live, live=replace(live.live, port=settings.port, grpc_port=None))
    return DaemonOptions(
        live,
        run.state_of(gpu),
        run.driver,
        0 if run.driver == EMULATED else settings.number,
        _tokens(run),
        reader=partial(run.read, gpu),
        shared=SharedStore(run.shared, gpu.replace("/", "_")),
        ahead=run.models,
        windows_since_s=run.began_s,
        order_key=_order_key(Path(settings.lease)),
    )


def _order_key(lease: Path) -> str:
    try:
        return lease.read_text(encoding="ascii")
    except OSError as error:
        raise MigratorError(
            f"{lease}: the lease cannot be read ({error.strerror}); its agent has started another "
            "daemon, or has ended"
        ) from error


def _tokens(run: ClusterRun) -> Tokens:
    """Tokens of all tenants, because any tenant may be placed on this GPU."""
    digests = {name: digest(token) for name, token in run.tokens().items()}
    drop_token_variables(run.live, os.environ)
    return Tokens({k: v for k, v in digests.items() if k != ADMIN}, digests.get(ADMIN))


async def _serve(settings: GpuDaemonSettings, stop: asyncio.Event) -> None:
    # here: agents, gateways and verbs import this module and never serve
    from migrator.live.daemon import Daemon

    leased = asyncio.create_task(_leased(Path(settings.lease), stop))
    serving = serving_of(settings)
    try:
        await Daemon(serving).run(stop)
    finally:
        leased.cancel()
        if serving.shared is not None:
            serving.shared.close()


async def _leased(lease: Path, stop: asyncio.Event) -> None:
    """Set `stop` when the lease expires, or is deleted because another daemon was started."""
    renewed_ns, since_s = 0, time.monotonic()
    while not stop.is_set():
        await asyncio.sleep(_LEASE_POLL_S)
        try:
            modified_ns = lease.stat().st_mtime_ns
        except OSError:
            break
        if modified_ns != renewed_ns:  # only changes count, because the machine's clock may jump
            renewed_ns, since_s = modified_ns, time.monotonic()
        elif time.monotonic() - since_s > LEASE_S:
            break
    stop.set()


def main() -> int:
    """Serve until a signal arrives or the lease expires."""
    configure("text", "info")
    settings = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=GpuDaemonSettings)
    try:
        run_until_signal(partial(_serve, settings))
    except MigratorError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return 2
    return 0


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
            identity = msgspec.json.decode(self._known.read_bytes(), type=_KnownProcess)
            settings = msgspec.json.decode(self._settings.read_bytes(), type=GpuDaemonSettings)
        except (OSError, msgspec.MsgspecError):
            return None
        process = Process(identity.pid, "", identity.began)
        if not process.alive:
            return None
        self._process, self.lease = process, Path(settings.lease)
        self.served = identity.served
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
        return self._process.pid if self._process else None

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.alive

    def renew(self) -> None:
        self.lease.touch()

    def stop(self, limit_s: float) -> None:
        """Let it drain and free its instances; kill it if it does not end in time."""
        if self._process is None:
            return
        self._signal(signal.SIGTERM)
        until_s = time.monotonic() + limit_s
        while self.alive and time.monotonic() < until_s:
            time.sleep(_POLL_S)
        if self.alive:
            self.kill()

    def kill(self) -> None:
        """Kill the process; the next daemon deletes what it left."""
        self._signal(signal.SIGKILL)

    def last_log_line(self) -> str:
        """The last line of its log, to explain why it ended."""
        with suppress(OSError, IndexError):
            return self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-1][:300]
        return ""

    def _store_identity(self) -> None:
        """Store the identity of the process, for a later agent."""
        if self._process is not None:
            process = _KnownProcess(self._process.pid, self._process.began, self.served)
            _write(self._known, process)

    def _new_lease(self) -> Path:
        """Create a lease and delete older ones.

        Deleting them ends a daemon whose agent died before it could record the process.
        """
        for path in self.folder.glob(f"{_LEASE}.*"):
            path.unlink(missing_ok=True)
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
    level, ours = (os.getpriority(os.PRIO_PROCESS, process) for process in (os.getppid(), 0))
    if ours <= level:
        return
    try:
        for thread in Path("/proc/self/task").iterdir():
            with suppress(ProcessLookupError):
                os.setpriority(os.PRIO_PROCESS, int(thread.name), level)
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
    context: ssl.SSLContext | None = None,
) -> tuple[int, Mapping[str, Any]]:
    """Return status and answer of a daemon; MigratorError if there is no answer."""
    headers = {} if order_key is None else {ORDER_KEY: order_key}
    reply = request(
        *(url, method, path),
        timeout_s=wait_s,
        token=token,
        body=body,
        headers=headers,
        context=context,
    )
    answer = reply.json_object()
    if answer is None:
        raise MigratorError(f"{url} does not answer in JSON (status {reply.status})")
    return reply.status, answer


def free_port(host: str) -> int:
    """A port that no process listens on."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main())
