"""The agent of one GPU: keeps its daemon running, reports its state, executes the head's orders.

Every order carries the epoch of its head. An agent refuses orders with an older epoch than it has
seen, so that two heads never act at once.
"""

from __future__ import annotations

import logging
import os
import ssl
import threading
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from migrator.cluster.fleet.cluster_run import ClusterRun
from migrator.cluster.fleet.gpu_daemon import (
    DaemonProcess,
    GpuDaemonSettings,
    call_daemon,
    free_port,
    restore_priority,
)
from migrator.cluster.fleet.messages import Answer, Report, TenantReport
from migrator.core.errors import MigratorError
from migrator.io.atomic_write import write_atomically
from migrator.io.tls import pinned
from migrator.workload.live import ADMIN

POLL_S = 0.25
TAKE_S = 120.0
"""Seconds to wait for a `take` order: a model may be large, and planning takes time."""
STOP_S = 25.0
ANSWER_S = 3.0
"""Seconds after which a daemon without a response counts as not serving. Its event loop answers:
it is late only if it gets no CPU time at all."""
PAUSED_S = ANSWER_S + 2.0
"""A status request that takes more seconds than this shows that the agent was paused. It says
nothing about the daemon, so the agent repeats it."""
HUNG_S = 15.0
"""Seconds without a response after which a daemon that has served is killed and restarted."""
STARTING_S = 600.0
"""The same limit for a daemon that has not served yet: its tenants may need training first."""
_AGAIN_S = (0.0, 1.0, 2.0, 5.0, 10.0)
_EVERYWHERE = ("0.0.0.0", "::")

_log = logging.getLogger(__name__)


class AgentState(msgspec.Struct, frozen=True):
    """What an agent stores across restarts."""

    epoch: int = 0
    """Epoch of the newest head known."""
    drained: bool = False


class GpuAgent:
    """The agent of one GPU; its methods may be called from several threads."""

    def __init__(self, run: ClusterRun, gpu: str, number: int, node: str, address: str) -> None:
        """`number`: index of the GPU in its machine; `address`: address of the machine."""
        restore_priority()
        self._run, self._gpu, self._number, self._node = run, gpu, number, node
        live = run.live
        self._token = run.tokens().get(ADMIN)
        self._host = live.host
        self._certificates = None if live.tls is None else run.certificates_of(gpu)
        self._reached = address if live.host in _EVERYWHERE else live.host
        self._daemon = DaemonProcess(run.state_of(gpu))
        self._file = run.state_of(gpu) / "agent.json"
        self._lock, self._looking = threading.Lock(), threading.Lock()
        self._epoch_lock = threading.Lock()
        self._stop_event = threading.Event()
        self._status: Mapping[str, Any] | None = None
        self._unanswered_s, self._answered = 0.0, False
        """Seconds without a response since the daemon last responded, started or was found."""
        self._silent = False
        """Whether the daemon was killed because it did not respond."""
        self._restarts, self._failures, self._problem = 0, 0, ""
        self._known = self._read_file()
        running = self._daemon.find()
        self._tenants: tuple[str, ...] | None = None if running is None else running.tenants
        self._port = free_port(self._host) if running is None else running.port
        self._watching = threading.Thread(target=self._watch, name=f"agent of {gpu}", daemon=True)
        self._watching.start()

    @property
    def url(self) -> str:
        host = f"[{self._reached}]" if ":" in self._reached else self._reached
        return f"{'http' if self._certificates is None else 'https'}://{host}:{self._port}"

    def _trusted(self) -> ssl.SSLContext | None:
        return None if self._certificates is None else pinned(self._certificates)

    def report(self, epoch: int) -> Report:
        """Return the state of the GPU; a caller with a newer epoch becomes the leader."""
        self._accept_epoch(epoch)
        status = self._status
        tenants = {} if status is None else status["tenants"]
        return Report(
            gpu=self._gpu,
            node=self._node,
            number=self._number,
            pid=os.getpid(),
            url=self.url,
            epoch=self._known.epoch,
            begun=self._tenants is not None,
            up=status is not None,
            has_served=self._daemon.served and self._daemon.alive,
            tenants={name: _tenant(tenant) for name, tenant in tenants.items()},
            window=0 if status is None else status["window"],
            restarts=self._restarts,
            failures=self._failures,
            problem=self._problem,
            silent_s=self._unanswered_s if self._daemon.served else 0.0,
            assigned=self._tenants or (),
            drained=self._known.drained,
            began_s=self._run.began_s,
        )

    def begin(self, epoch: int, tenants: tuple[str, ...]) -> Answer:
        """Start the daemon with these tenants, unless it has been started already."""
        with self._lock:
            if not self._accept_epoch(epoch):
                return self._refusal()
            if self._stop_event.is_set():
                return self._answer(False, f"{self._gpu} is being stopped")
            if self._tenants is None:
                self._tenants = tenants
                self._start()
            return self._answer(True, "begun")

    def take(self, epoch: int, tenant: str) -> Answer:
        """Serve the tenant as well; return once it is served or has been refused."""
        return self._order(epoch, {"admit": self._run.entry(tenant)}, (tenant,), ())

    def release(self, epoch: int, tenant: str) -> Answer:
        """Stop serving the tenant; return once its pending requests are answered.

        Do not wait for a hung daemon: it does not start with the tenant after a restart, and gets
        the release order when it responds again.
        """
        if self._status is None and self._accept_epoch(epoch):
            self._assign((), (tenant,))
            return self._answer(True, f"{tenant} is not started here again")
        return self._order(epoch, {"remove": tenant}, (), (tenant,))

    def drain(self, epoch: int, drained: bool) -> Answer:
        """Store whether the GPU is drained, so that no tenant is placed on it."""
        if not self._accept_epoch(epoch):
            return self._refusal()
        with self._epoch_lock:
            self._known = AgentState(self._known.epoch, drained)
            self._write_file()
        return self._answer(True, "drained" if drained else "not drained")

    def stop(self, epoch: int) -> Answer:
        if not self._accept_epoch(epoch):
            return self._refusal()
        self.close()
        return self._answer(True, "stopped")

    def close(self) -> None:
        """Stop the daemon without an order."""
        self._stop_event.set()
        self._watching.join()
        self._daemon.stop(STOP_S)

    def _order(
        self, epoch: int, body: object, added: tuple[str, ...], removed: tuple[str, ...]
    ) -> Answer:
        if not self._accept_epoch(epoch):
            return self._refusal()
        try:
            status, answer = call_daemon(
                self.url,
                "POST",
                "/admin/tenants",
                token=self._token,
                body=body,
                wait_s=TAKE_S,
                order_key=self._daemon.order_key,
                context=self._trusted(),
            )
        except MigratorError as error:
            return self._answer(False, str(error))
        if status != 200:
            return self._answer(False, str(answer.get("error", status)))
        self._assign(added, removed)
        self._collect()
        return self._answer(True, str(answer.get("words", "")))

    def _assign(self, added: tuple[str, ...], removed: tuple[str, ...]) -> None:
        """Record the daemon's tenants, also for a restart."""
        with self._lock:
            kept = [tenant for tenant in self._tenants or () if tenant not in removed]
            self._tenants = tuple(dict.fromkeys((*kept, *added)))
            self._daemon.keep(self._settings())

    def _accept_epoch(self, epoch: int) -> bool:
        """Whether that head may give orders; store a newer epoch across restarts."""
        # serialized: of two heads that ask at once, the older epoch must not be written last
        with self._epoch_lock:
            # another agent with this folder may have seen a newer epoch
            newest = max(self._known.epoch, self._read_file().epoch)
            self._known = AgentState(max(newest, epoch), self._known.drained)
            if epoch > newest:
                self._write_file()
            return epoch >= newest

    def _answer(self, done: bool, message: str) -> Answer:
        return Answer(done, message, self._known.epoch)

    def _refusal(self) -> Answer:
        return self._answer(False, f"a newer head leads {self._gpu}; this one ends")

    def _read_file(self) -> AgentState:
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=AgentState)
        except (OSError, msgspec.MsgspecError):
            return AgentState()

    def _write_file(self) -> None:
        try:
            with write_atomically(self._file) as unfinished:
                unfinished.write_bytes(msgspec.json.encode(self._known))
        except MigratorError as error:  # a full disk must not make the agent look dead
            _log.warning("%s", error)

    def _start(self) -> None:
        self._daemon.start(self._settings())
        self._unanswered_s, self._silent = 0.0, False

    def _settings(self) -> GpuDaemonSettings:
        lease = str(self._daemon.lease.absolute())
        return GpuDaemonSettings(
            self._run, self._gpu, self._number, self._port, self._tenants or (), lease
        )

    def _watch(self) -> None:
        """Supervise the daemon until the agent is stopped."""
        while not self._stop_event.wait(POLL_S):
            try:
                self._supervise()
            except Exception as error:
                # for example a full disk; without the loop the GPU would be reported as up forever
                _log.exception("the daemon of %s cannot be supervised", self._gpu)
                self._status = None
                self._problem = f"its daemon cannot be supervised: {error}"

    def _supervise(self) -> None:
        with self._lock:  # not while `begin` starts the daemon
            begun, alive = self._tenants is not None, self._daemon.alive
        if not begun:
            return
        if not alive:
            self._restart()
            return
        self._daemon.renew()
        sent_s = time.monotonic()
        self._collect()
        if self._status is not None:
            self._failures, self._problem, self._unanswered_s = (
                0,
                self._status.get("store", ""),
                0.0,
            )
            self._daemon.answers()
            return
        if self._answered:  # with an error, for example at its connection limit
            self._unanswered_s, self._problem = 0.0, "its daemon answers with an error"
            return
        self._unanswered_s += min(PAUSED_S, POLL_S + time.monotonic() - sent_s)
        served = self._daemon.served
        self._problem = "its daemon does not answer" if served else "its daemon is starting"
        if self._unanswered_s > (HUNG_S if served else STARTING_S):
            self._silent = True
            self._daemon.kill()

    def _restart(self) -> None:
        """Restart the daemon, with a delay that grows with each failure."""
        self._status = None
        how = "did not answer and was ended" if self._silent else "died"
        self._problem = f"its daemon {how}: {self._daemon.last_log_line()}"
        if self._stop_event.wait(_AGAIN_S[min(self._failures, len(_AGAIN_S) - 1)]):
            return
        self._failures += 1
        with self._lock:
            self._restarts += 1
            if self._failures > 1:  # it never served: another process may have taken its port
                self._port = free_port(self._host)
            self._start()

    def _collect(self) -> None:
        # serialized: an older response must not overwrite a newer one
        with self._looking:
            self._status = self._daemon_status()

    def _daemon_status(self) -> Mapping[str, Any] | None:
        sent_s = time.monotonic()
        self._answered = False
        try:
            status, answer = call_daemon(
                *(self.url, "GET", "/admin/status"),
                token=self._token,
                wait_s=ANSWER_S,
                context=self._trusted(),
            )
        except MigratorError:
            if time.monotonic() - sent_s > PAUSED_S and not self._stop_event.is_set():
                return self._daemon_status()
            return None
        # before the daemon serves, another process may have its port
        self._answered = status != 200 and self._daemon.served
        return answer if status == 200 and answer.get("pid") == self._daemon.pid else None


def _tenant(status: Mapping[str, Any]) -> TenantReport:
    states = status["workers"].values()
    # a daemon that is releasing the tenant still has workers, but accepts no new requests
    refused = status.get("refused", status["drained"])
    ready = any(state != "draining" for state in states) and not refused
    retraining = status["retraining"] == "running"
    return msgspec.convert({**status, "ready": ready, "retraining": retraining}, TenantReport)
