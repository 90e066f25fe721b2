"""Uploads labelled samples before the windows whose data they are.

The daemon learns labels in the window after the one they came in, and estimates the gain late in
that one. So a window's samples are uploaded in the middle of the window before it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from uuid import uuid4

import numpy as np

from migrator.core.errors import InputError
from migrator.io.http_client import NoAnswerError, Reply
from migrator.io.http_pool import HttpPool
from migrator.learn.benchmarks.benchmark import resize_images
from migrator.learn.model import Inputs
from migrator.load.ledger import Ledger
from migrator.load.messages import ModelInput, encode_samples, error_in
from migrator.load.requests import RequestSamples, Rows
from migrator.load.server import TargetServer
from migrator.workload.live import LiveTenant

_BODY_BYTES = 2**20
"""Bytes of inputs in one upload; servers limit a request's body."""
_PART, _LONGEST_S = 0.5, 60.0
"""Share of a window, and most seconds, before a window at which its samples are uploaded."""
_POLL_S = 0.2


@dataclass(frozen=True, eq=False)
class LoadTarget:
    """A tenant with its model's input and its samples."""

    tenant: LiveTenant
    input: ModelInput
    questions: RequestSamples
    run: str = field(default_factory=lambda: uuid4().hex[:8])
    """Part of every request id, which makes ids of different loads distinct."""

    def inputs(self, rows: Rows) -> Inputs:
        """The inputs of these samples, with pictures of the size that the model takes."""
        inputs, pixels = self.questions.samples.inputs[rows], self.input.pixels
        return inputs if pixels is None or inputs.ndim != 4 else resize_images(inputs, pixels)


def lead_s(window_s: float) -> float:
    """Seconds before a window at which its samples are uploaded. A server that waits for its first
    request estimates meanwhile."""
    return min(_LONGEST_S, _PART * window_s)


class Uploads:
    """Uploads the samples of every tenant, window by window."""

    def __init__(
        self,
        server: TargetServer,
        pool: HttpPool,
        targets: Sequence[LoadTarget],
        share: float,
        windows: range,
    ) -> None:
        """`share`: of the samples that are labelled; `windows`: the server's numbers of them."""
        self._server, self._pool, self._targets = server, pool, targets
        self._share, self._windows = share, windows

    async def upload(self, window: int, ledger: Ledger, stop: asyncio.Event) -> None:
        for target in self._targets:
            since = None if window == self._windows[0] else window - 1
            rows = target.questions.training_rows(window, since)
            rows = rows[: round(self._share * len(rows))]
            for number, part in enumerate(_parts(target, rows)):
                if not stop.is_set():
                    await self._send(target, window, number, part, ledger)

    async def upload_later(
        self, begin_s: float, window_s: float, ledger: Ledger, stop: asyncio.Event
    ) -> None:
        """Upload the samples of all windows but the first. `begin_s`: when the first begins."""
        loop = asyncio.get_running_loop()
        for place, window in enumerate(self._windows[1:], start=1):
            due_s = begin_s + place * window_s - lead_s(window_s)
            while (left_s := due_s - loop.time()) > 0:
                await asyncio.sleep(min(left_s, _POLL_S))
            await self.upload(window, ledger, stop)

    async def _send(
        self, target: LoadTarget, window: int, number: int, rows: Rows, ledger: Ledger
    ) -> None:
        name = target.tenant.name
        body, headers = encode_samples(
            target.input,
            target.inputs(rows),
            target.questions.samples.labels[rows],
            f"{name}-{target.run}-samples-{window}-{number}",
        )
        headers |= self._server.headers(name)
        reply: Reply | None = None
        try:
            path = self._server.path(name, "/samples")
            reply = await self._pool.ask("POST", path, body, headers)
        except NoAnswerError:
            pass
        if reply is not None and reply.status in (404, 405):
            raise InputError(
                f"--labels-at: the server takes no samples of {name} "
                f"({error_in(reply.body) or reply.status}); use --labels-at feedback"
            )
        stored = reply is not None and reply.status == 200
        account = ledger.account(name, window)
        account.labels_stored += stored * len(rows)
        account.labels_lost += (not stored) * len(rows)


def _parts(target: LoadTarget, rows: Rows) -> Iterator[Rows]:
    if not len(rows):
        return
    most = max(1, _BODY_BYTES // max(1, target.inputs(rows[:1]).nbytes))
    yield from np.split(rows, range(most, len(rows), most))
