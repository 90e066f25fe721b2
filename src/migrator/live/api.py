"""The HTTP API of a daemon: its server, its status, and the labels it receives."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from prometheus_client.registry import Collector
from starlette.requests import Request

from migrator.core.errors import HttpError, InputError, MigratorError
from migrator.dashboard.routes import Dashboard, Source
from migrator.io.database import FileMovedError
from migrator.io.tls import ServerCertificate
from migrator.live.admission import Admission
from migrator.live.context import Context
from migrator.live.instruments import CONFLICTING, FAILED, REPEATED, STORED
from migrator.live.labels import ConflictingLabelError, NotKeptError, judged_as
from migrator.live.operator_actions import OperatorActions
from migrator.live.options import DaemonOptions
from migrator.live.recorder import LiveRecorder
from migrator.live.repository import Repository
from migrator.records.recorder import extent
from migrator.serving.http.access import require_admin
from migrator.serving.http.app import application
from migrator.serving.http.operations import ApiState, Backend, Feedback, TenantChanges
from migrator.serving.http.protocol import WindowNow
from migrator.serving.http.requests import ClientLimits
from migrator.serving.http.server import ApiServer, affordable

_log = logging.getLogger(__name__)
_T = TypeVar("_T")


class Api:
    """The handlers of one daemon's API."""

    def __init__(
        self,
        context: Context,
        actions: OperatorActions,
        admission: Admission,
        recorder: LiveRecorder,
        collectors: tuple[Collector, ...],
        begun: Callable[[], bool],
    ) -> None:
        """`begun`: whether the first window has begun."""
        self._begun = begun
        self._context, self._actions, self._admission = context, actions, admission
        self._recorder, self._collectors = recorder, collectors
        self.url: str | None = None
        """The address of the server."""
        self._changes: set[asyncio.Task[Any]] = set()
        """What operators have asked for and is not done."""
        self._closed = False

    def server(self, limits: ClientLimits, certificate: ServerCertificate | None) -> ApiServer:
        """The server, which does not listen yet."""
        serving, clock = self._context.serving, self._context.clock
        changes = None
        if serving.reader is not None:
            changes = TenantChanges(
                lambda entry, _folder: self._change(self._admission.admit(entry)),
                lambda name: self._change(self._admission.remove(name)),
                order_key=serving.order_key,
            )
        elif serving.stored is not None:
            repository = Repository(self._context, self._admission, self._actions, serving.stored)
            changes = TenantChanges(
                lambda section, folder: self._change(repository.add(section, folder)),
                lambda name: self._change(repository.remove(name)),
                lambda name, section: self._change(repository.load(name, section)),
                lambda: repository.removed,
            )
        backend = Backend(
            self._context.router,
            self._context.offered,
            self.store_label,
            self._version,
            lambda: WindowNow(clock.number, clock.into_s, clock.window_s, self._begun()),
            self.status,
            lambda kind, tenant, who: self._change(self._actions.act(kind, tenant, who)),
            changes,
        )
        page = _dashboard(serving)
        live = serving.live.live
        return ApiServer(
            application(ApiState(backend, serving.tokens, limits, self._collectors), page.routes()),
            tokens=serving.tokens,
            host=live.host,
            port=live.port,
            limits=limits,
            closing=page.close,
            certificate=certificate,
        )

    async def close(self) -> None:
        """End what operators have asked for and is not done; their requests get HttpError 503."""
        self._closed = True
        for task in self._changes:
            task.cancel()
        if self._changes:
            await asyncio.wait(self._changes)

    async def _change(self, change: Coroutine[Any, Any, _T]) -> _T:
        """Carry out a change, also if the client that asked for it leaves."""
        task = asyncio.create_task(change)
        self._changes.add(task)
        task.add_done_callback(self._on_change_done)
        if self._closed:
            task.cancel()
        await asyncio.wait([task])
        if task.cancelled():
            raise HttpError(503, "the daemon is stopping; ask again once it runs")
        return task.result()

    def _on_change_done(self, task: asyncio.Task[Any]) -> None:
        self._changes.discard(task)
        if not task.cancelled():
            task.exception()  # the client that would get it may have left

    async def store_label(self, feedback: Feedback) -> bool:
        """Store a label. Returns when it is on disk, whether it is new.

        HttpError 409 if the request already has another label, 503 if the file of labels was
        moved, 507 if there is no space.
        """
        tenant, outcome = feedback.tenant, FAILED
        predicted = feedback.predicted
        if feedback.outputs is not None:
            predicted = await self._judge(tenant, feedback.outputs, feedback.label)
        try:
            new = await self._context.labels.add(
                tenant,
                feedback.window,
                feedback.inputs,
                feedback.label,
                predicted,
                feedback.request_id,
            )
            outcome = STORED if new else REPEATED
            if new and feedback.second is not None and predicted is not None:
                is_correct = predicted == judged_as(feedback.label, True)
                self._context.router.counts[tenant].judge(feedback.second, correct=is_correct)
            return new
        except ConflictingLabelError as error:
            outcome = CONFLICTING
            raise HttpError(409, str(error)) from error
        except FileMovedError as error:
            self._recorder.label_refused(tenant, str(error))
            raise HttpError(503, f"the label is not stored: {error}") from error
        except NotKeptError as error:
            self._recorder.label_refused(tenant, str(error))
            raise HttpError(507, f"the label is not stored: {error}") from error
        except InputError as error:
            raise HttpError(400, str(error)) from error
        finally:
            self._context.instruments.labels.labels(tenant, outcome).inc()

    async def _judge(
        self, tenant: str, outputs: NDArray[Any], label: int | NDArray[Any]
    ) -> int | None:
        """`judged_as` by the tenant's model; None, and the label counts for learning only, where no
        worker is ready or the model fails."""
        labels = label[None] if isinstance(label, np.ndarray) else np.array([label], np.int64)
        try:
            judged = await self._context.router.judge(tenant, outputs[None], labels)
        except MigratorError as error:
            _log.warning("%s: an answer could not be judged: %s", tenant, error)
            return None
        return None if judged is None else judged_as(label, judged[0])

    def status(self) -> Mapping[str, Any]:
        """The state of the daemon as one JSON object."""
        context = self._context
        clock, scenario = context.clock, context.scenario
        return {
            "pid": os.getpid(),
            "scenario": scenario.name,
            "board": scenario.board.name,
            "driver": context.serving.driver,
            "gpu": context.serving.gpu,
            "policy": scenario.policy,
            "url": self.url,
            "window": clock.number,
            "slot": clock.slot,
            "slots": clock.slots,
            "window_s": clock.window_s,
            "into_s": round(clock.into_s, 3),
            "paused": context.executor.paused,
            "store": self._admission.store_trouble,
            "files": context.labels.moved or context.records.moved,
            "drained": [name for name, tenant in context.tenants.items() if tenant.drained],
            "tenants": {name: self._tenant_status(name) for name in context.tenants},
            "pids": {worker.name: worker.pid for worker in context.serving_workers.values()},
            "units": [
                {
                    "instance": str(unit.instance),
                    **extent(unit.instance, scenario.board),
                    "state": unit.state,
                    "task": str(unit.task) if unit.task else None,
                }
                for unit in context.executor.units
            ],
        }

    def _tenant_status(self, name: str) -> Mapping[str, Any]:
        tenant, router = self._context.tenants[name], self._context.router
        total, job = router.counts[name].total, tenant.retraining
        number = self._version(name)
        waits = self._recorder.why_not_retrained(name)
        accuracy = self._recorder.accuracy(name)
        return {
            "received": total.received,
            "in_time": total.in_time,
            "late": total.late,
            "dropped": total.dropped,
            "failed": total.failed,
            "waiting": router.waiting(name),
            "workers": router.workers(name),
            "prepared": self._context.workers.prepared(name),
            "drained": tenant.drained,
            "refused": router.refuses(name),
            "version": number,
            "back_to": self._context.versions_of(name).earlier(number),
            "accuracy": round(accuracy.value, 4),
            "evidence": accuracy.evidence,
            "retraining": job.phase if job else "none",
            "progress": round(job.progress, 3) if job else 0.0,
            "configuration": job.configuration if job else "",
            "reason": waits.reason.value if waits else "",
            "why": waits.words if waits else "",
            "overhead_s": round(tenant.overhead_s, 3),
        }

    def _version(self, name: str) -> int:
        version = self._context.tenants[name].version
        return version.number if version else 0


def limits_of(serving: DaemonOptions) -> ClientLimits:
    """ClientLimits for clients, within the number of files that this process may open."""
    live = serving.live.live
    limits = ClientLimits(body_bytes=round(live.max_body_mib * 2**20), connections=live.connections)
    return affordable(limits, files_each=1 if live.grpc_port is None else 2)


def _dashboard(serving: DaemonOptions) -> Dashboard:
    """The live page, for administrators only."""

    def allow(request: Request) -> None:
        require_admin(request, serving.tokens)

    source = Source(serving.live.scenario.name, serving.records)
    return Dashboard([source], allow=allow, needs_token=serving.tokens.configured, acts=True)
