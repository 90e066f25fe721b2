"""A worker without a process, for tests of what is in front of workers: it sleeps, then answers.

Its scores say what it got: each row's first value, modulo the number of classes, is the label.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from migrator.core.errors import MigratorError
from migrator.serving.queue import Routed
from migrator.serving.router import Router
from migrator.serving.workers.messages import Answered, ModelFaultError, WorkerLostError

POISON = 199
"""A first value that the model cannot bear."""


class StandInWorker:
    """A worker that takes `latency_s(rows)` for a batch."""

    def __init__(
        self,
        name: str = "w1",
        latency_s: Callable[[int], float] = lambda _: 0.0,
        *,
        classes: int = 3,
        version: int = 1,
    ) -> None:
        self.name = name
        self.latency_s = latency_s
        self.version = version
        self.batches: list[int] = []
        self.request_ids: list[str] = []
        self.trace_contexts: list[Mapping[str, str] | None] = []
        self.begun = asyncio.Event()
        self.held = asyncio.Event()
        """Clear it to keep a batch; set again, the batch goes on."""
        self.held.set()
        self.error: MigratorError | None = None
        self.unseen = False
        """Whether the first class was never learned."""
        self._classes = classes

    def die(self) -> None:
        """Whatever it holds, and whatever comes, is lost."""
        self.error = WorkerLostError(f"{self.name} was killed")
        self.held.set()

    async def infer(
        self,
        inputs: NDArray[Any],
        request_ids: str = "",
        trace_context: Mapping[str, str] | None = None,
    ) -> Answered:
        """One batch."""
        self.request_ids.append(request_ids)
        self.trace_contexts.append(trace_context)
        version = self.version
        self.batches.append(len(inputs))
        self.begun.set()
        if seconds := self.latency_s(len(inputs)):
            await asyncio.sleep(seconds)
        await self.held.wait()
        if self.error is not None:
            raise self.error
        first = inputs.reshape(len(inputs), -1)[:, 0]
        if POISON in first:
            raise ModelFaultError("the model raised ValueError on this batch")
        scores = np.zeros((len(inputs), self._classes), np.float32)
        scores[np.arange(len(inputs)), first % self._classes] = 1.0
        if self.unseen:  # as our own models have it: no score at all
            scores -= 3.0
            scores[:, 0] = -np.inf
        return Answered(scores, version)

    async def judge(self, answers: NDArray[Any]) -> tuple[bool, ...]:
        """The highest score is correct."""
        return tuple((answers["outputs"].argmax(1) == answers["label"]).tolist())


async def infer(
    router: Router,
    tenant: str,
    inputs: NDArray[Any],
    deadline_s: float | None = None,
    request_id: str = "",
) -> Routed:
    """The answer to one request, as the API waits for it."""
    request = router.submit(tenant, inputs, deadline_s, request_id)
    try:
        return await request.answer
    except asyncio.CancelledError:
        router.withdraw(tenant, request)
        raise
