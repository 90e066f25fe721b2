"""Clients for benchmarks/reconfigurations.py: python -m benchmarks.watched_load SCENARIO URL OUT

Open loop, in a process of its own. Every request is written down with when it was sent, when its
answer came and which version gave it. The label told back is never the one that was answered: no
model is right, so that whatever a retraining makes of it is not worse and takes over.
"""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import uvloop

from migrator.io.http_client import NoAnswerError
from migrator.io.http_pool import HttpPool
from migrator.load.messages import ModelInput, encode_label, encode_request, read_answer
from migrator.load.requests import RequestSamples, schedule
from migrator.load.run import request_samples_of
from migrator.load.server import TargetServer
from migrator.workload.live import LiveScenario, read_live

NO_ANSWER = -1
LABELS_RPS = 8.0
"""Labels of a tenant that are told; more would only make retrainings longer."""
COLUMNS = ("tenant", "due_s", "sent_s", "answered_s", "status", "version")


class WatchedLoad:
    """All requests of a scenario, sent when due."""

    def __init__(self, live: LiveScenario, url: str) -> None:
        self._live = live
        self._pool = HttpPool(url, most=512, timeout_s=10)
        self._labels = HttpPool(url, most=32, timeout_s=10)
        self._server = TargetServer(url, self._pool, {})
        self._asked: list[tuple[str, RequestSamples, ModelInput]] = []
        self.rows: list[tuple[float, ...]] = []
        self._told_s: dict[int, float] = {}

    async def run(self) -> None:
        """Send all of it and wait for the last answer."""
        live = self._live
        for tenant in live.tenants:
            questions = request_samples_of(tenant)
            self._asked.append(
                (tenant.name, questions, await self._server.model_input(tenant.name))
            )
        places = range(len(live.tenants))
        windows = live.scenario.windows
        asked = [request[1] for request in self._asked]
        due = schedule(live.scenario, list(places), asked, 0, windows)
        begin_s, tasks = time.time() + 0.2, []
        for number in range(len(due)):
            due_s = begin_s + float(due.due_s[number])
            await asyncio.sleep(max(0.0, due_s - time.time()))
            asking = self._one(int(due.tenant[number]), int(due.row[number]), due_s, number)
            tasks.append(asyncio.create_task(asking))
        await asyncio.gather(*tasks)

    async def _one(self, tenant: int, row: int, due_s: float, number: int) -> None:
        name, questions, taken = self._asked[tenant]
        body, headers = encode_request(taken, questions.samples.inputs[row], f"{name}-{number}")
        sent_s, answer, status = time.time(), None, NO_ANSWER
        try:
            path = self._server.path(name, "/infer")
            reply = await self._pool.ask("POST", path, body, headers)
            status = reply.status
            answer = read_answer(reply.body) if status == 200 else None
        except NoAnswerError:
            pass  # the status says so
        version = int(answer.version) if answer else NO_ANSWER
        self.rows.append((tenant, due_s, sent_s, time.time(), status, version))
        if answer is not None and self._labels_due(tenant):
            classes = int(questions.samples.labels.max()) + 1
            await self._tell(name, f"{name}-{number}", (answer.label + 1) % classes)

    def _labels_due(self, tenant: int) -> bool:
        now_s = time.monotonic()
        due = now_s - self._told_s.get(tenant, 0.0) >= 1 / LABELS_RPS
        if due:
            self._told_s[tenant] = now_s
        return due

    async def _tell(self, name: str, own: str, label: int) -> None:
        headers = {"content-type": "application/json"}
        path = self._server.path(name, "/feedback")
        with suppress(NoAnswerError):  # the last ones may come after the daemon has left
            await self._labels.ask("POST", path, encode_label(own, label), headers)


def main() -> None:
    scenario, url, out = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    uvloop.install()
    load = WatchedLoad(read_live(scenario), url)
    asyncio.run(load.run())
    columns = np.array(load.rows).T
    np.savez(out, **dict(zip(COLUMNS, columns, strict=True)))


if __name__ == "__main__":
    main()
