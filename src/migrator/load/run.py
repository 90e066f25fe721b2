"""`migrator load`: sends a scenario's requests to a running server and counts their outcomes.

Open loop: every request is sent when it is due, whatever the outcome of earlier ones, and its
latency counts from that time. The same seed gives the same requests as in the simulator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from migrator.core.errors import InputError
from migrator.core.outcome import LoadOutcome
from migrator.core.scenario import LabelsAt
from migrator.io.http_client import NoAnswerError, Reply, warn_if_clear
from migrator.io.http_pool import HttpPool
from migrator.io.tls import trusting
from migrator.learn.benchmarks.benchmark import Origin
from migrator.learn.registry import benchmark, encoder
from migrator.load.ledger import Ledger
from migrator.load.messages import encode_label, encode_request, error_in, read_answer
from migrator.load.requests import GIVEN_UP, REFUSED, RequestSamples, Schedule, schedule
from migrator.load.server import ServerWindow, TargetServer
from migrator.load.uploads import LoadTarget, Uploads, lead_s
from migrator.workload.live import LiveScenario, LiveTenant

CONNECTIONS, LABEL_CONNECTIONS = 512, 64
NOT_WAITED_FOR = "not waited for"
_AT_ONCE = 0.02
"""Share of a window that may have passed for a run to begin in it without `now`."""
_LONGEST_SLEEP_S = 0.2
"""Upper limit of a sleep in seconds, so that a stop is noticed soon."""
_LAST_ANSWERS_S = 2.0
"""Seconds to wait for responses after a load is stopped."""


@dataclass(frozen=True)
class LoadSettings:
    """How a load is sent."""

    url: str
    tenants: tuple[str, ...] = ()
    """Tenants whose requests are sent; empty for all."""
    windows: int = 1
    tokens: Mapping[str, str] = field(default_factory=dict)
    """By tenant."""
    labels: float = 1.0
    """The share of the answers, or of the samples before a window, whose true label is sent."""
    labels_at: LabelsAt = LabelsAt.FEEDBACK
    first_lead_s: float | None = None
    """Seconds from the upload of the first window's samples to its first request; None: as for
    every other window."""
    now: bool = False
    """Begin in the middle of the server's window instead of waiting for the next."""
    timeout_s: float = 10.0
    """Seconds to wait for a response."""
    ca: Path | None = None
    """Certificates that an https server is verified with; None: those of the system."""
    patience_s: float = 10.0
    """Seconds without any response after which the load ends."""


@dataclass(frozen=True)
class LoadProgress:
    """Progress of a load."""

    waits_s: float
    """Seconds until its first window; 0 once it has begun."""
    passed_s: float
    whole_s: float
    window: int
    """The server's window number."""
    sent: int
    goodput: int


def request_samples_of(
    tenant: LiveTenant, *, held_out: bool = False, pixels: int | None = None
) -> RequestSamples:
    """A tenant's labelled samples; InputError if the scenario does not name their source.

    `held_out`: requests use held-out samples only. `pixels`: side of the model's images.
    """
    if tenant.benchmark is None:
        raise InputError(
            f"{tenant.name}: where its labelled samples come from is not said; give it "
            "live.benchmark in the scenario"
        )
    samples_of = benchmark(tenant.benchmark)
    encode = encoder(tenant.model, samples_of.modality)
    origin = Origin(seed=tenant.seed, encode=encode, pixels=pixels)
    return RequestSamples(samples_of, samples_of.load(origin), tenant.seed, held_out=held_out)


async def load(
    live: LiveScenario,
    settings: LoadSettings,
    watch: Callable[[LoadProgress], None] = lambda _: None,
    stop: asyncio.Event | None = None,
) -> LoadOutcome:
    """Send all requests and count the responses. `stop` ends it early with the results so far."""
    scenario = live.scenario
    indices = _chosen(live, settings.tenants)
    tenants = [live.tenants[index] for index in indices]
    at_start = settings.labels_at is LabelsAt.START
    options: Any = {"timeout_s": settings.timeout_s, "context": trusting(settings.ca)}
    pool = HttpPool(settings.url, most=CONNECTIONS, **options)
    labels = HttpPool(settings.url, most=LABEL_CONNECTIONS, **options)
    if settings.tokens:
        warn_if_clear(settings.url)
    server = TargetServer(settings.url, pool, settings.tokens)
    try:
        targets = await _targets(server, tenants, held_out=at_start)
        now = await server.window()
        first, begin_s, skipped_s = _begin(now, live, settings)
        windows = range(first, first + settings.windows)
        seconds = int(-(-settings.windows * scenario.window_s // 1))
        ledger = Ledger([tenant.name for tenant in tenants], windows, seconds)
        stop = stop or asyncio.Event()
        uploads = Uploads(server, labels, targets, settings.labels if at_start else 0.0, windows)
        await uploads.upload(first, ledger, stop)
        if at_start and now is not None and not now.begun:
            given_s = settings.first_lead_s
            first_s = lead_s(scenario.window_s) if given_s is None else given_s
            begin_s = asyncio.get_running_loop().time() + first_s
        share = 0.0 if at_start else settings.labels
        sender = Sender(server, labels, share, targets, ledger, begin_s, first)
        questions = [target.questions for target in targets]
        due = schedule(scenario, indices, questions, first, settings.windows)
        beside = [
            asyncio.create_task(_watch(sender, settings, scenario.window_s, watch, stop, ledger)),
            asyncio.create_task(uploads.upload_later(begin_s, scenario.window_s, ledger, stop)),
        ]
        try:
            await sender.send(due.since(skipped_s), stop)
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
    finally:
        pool.close()
        labels.close()
    ended = None
    if stop.is_set():
        silent = sender.silent_s() > settings.patience_s
        silence = f"the server answered nothing for {settings.patience_s:g} s"
        ended = silence if silent else "interrupted"
    return ledger.outcome(
        scenario=scenario.name,
        url=settings.url,
        seed=scenario.seed,
        window_s=scenario.window_s,
        ended=ended,
        labels_at=settings.labels_at.value,
    )


def _chosen(live: LiveScenario, names: Sequence[str]) -> list[int]:
    tenants = [tenant.name for tenant in live.tenants]
    unknown = [name for name in names if name not in tenants]
    if unknown:
        raise InputError(
            f"--tenant: {live.scenario.name} has no {unknown[0][:60]!r}; use {', '.join(tenants)}"
        )
    return [tenants.index(name) for name in dict.fromkeys(names)] or list(range(len(tenants)))


async def _targets(
    server: TargetServer, tenants: Sequence[LiveTenant], *, held_out: bool
) -> list[LoadTarget]:
    """Every tenant with its model's input and its samples, once the server can answer for all."""
    targets = []
    for tenant in tenants:
        model_input = await server.model_input(tenant.name)
        asked = request_samples_of(tenant, held_out=held_out, pixels=model_input.pixels)
        target = LoadTarget(tenant, model_input, asked)
        sample = target.inputs(np.array([0]))[0]
        if not model_input.fits(sample):
            raise InputError(
                f"{tenant.name}: its model takes {model_input.datatype} of shape "
                f"{list(model_input.shape)}, and samples of {tenant.benchmark} are "
                f"{sample.dtype.name} of shape {list(sample.shape)}; name a benchmark of the "
                "model's kind in live.benchmark"
            )
        targets.append(target)
    for tenant in tenants:
        await server.wait_until_ready(tenant.name)
    return targets


def _begin(
    now: ServerWindow | None, live: LiveScenario, settings: LoadSettings
) -> tuple[int, float, float]:
    """The server's number of the first window, when it begins, and how much of it is skipped."""
    here_s = asyncio.get_running_loop().time()
    if now is None:
        return 0, here_s, 0.0
    window_s = live.scenario.window_s
    if abs(now.window_s - window_s) > 1e-6:
        raise InputError(
            f"--url: the server's windows take {now.window_s:g} s and those of "
            f"{live.scenario.name} {window_s:g} s; name the scenario that it serves"
        )
    passed_s = max(0.0, here_s - now.began_s)
    early = _AT_ONCE * window_s if settings.labels_at is LabelsAt.FEEDBACK else 0.0
    if not now.begun:
        return now.number, here_s, 0.0
    if settings.now or passed_s < early:
        return now.number, now.began_s, passed_s
    missed = int(passed_s // window_s) + 1
    return now.number + missed, now.began_s + missed * window_s, 0.0


async def _watch(
    sender: Sender,
    settings: LoadSettings,
    window_s: float,
    watch: Callable[[LoadProgress], None],
    stop: asyncio.Event,
    ledger: Ledger,
) -> None:
    """Report progress several times per second, and stop if the server does not respond."""
    whole_s = settings.windows * window_s
    while not stop.is_set():
        passed_s = asyncio.get_running_loop().time() - sender.begin_s
        into_s = min(max(passed_s, 0.0), whole_s)
        number = sender.first + min(int(into_s / window_s), settings.windows - 1)
        waits_s = max(0.0, -passed_s)
        watch(LoadProgress(waits_s, into_s, whole_s, number, ledger.count, ledger.right))
        if sender.silent_s() > settings.patience_s:
            stop.set()
        await asyncio.sleep(_LONGEST_SLEEP_S)


@dataclass(frozen=True)
class _Request:
    target: LoadTarget
    number: int
    window: int
    due_s: float
    second: int
    row: int

    @property
    def name(self) -> str:
        return self.target.tenant.name

    @property
    def id(self) -> str:
        """Unique over all loads."""
        return f"{self.name}-{self.target.run}-{self.number}"

    @property
    def label(self) -> int:
        return int(self.target.questions.samples.labels[self.row])


class Sender:
    """Sends requests and counts their outcomes. `begin_s` is a time of the event loop's clock."""

    def __init__(
        self,
        server: TargetServer,
        label_pool: HttpPool,
        labelled: float,
        targets: Sequence[LoadTarget],
        ledger: Ledger,
        begin_s: float,
        first: int,
    ) -> None:
        """`labelled`: the share of answers whose label is sent; `first`: the first window."""
        self._server, self._label_pool, self._targets = server, label_pool, targets
        self._labelled, self._ledger = labelled, ledger
        self.begin_s, self.first = begin_s, first
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._silent_since_s: float | None = None

    def silent_s(self) -> float:
        since_s = self._silent_since_s
        return 0.0 if since_s is None else self._loop.time() - since_s

    async def send(self, due: Schedule, stop: asyncio.Event) -> None:
        """Send every request when it is due and wait for the last responses."""
        for number in range(len(due)):
            due_s = float(due.due_s[number])
            request = _Request(
                target=self._targets[due.tenant[number]],
                number=number,
                window=self.first + int(due.window[number]),
                due_s=self.begin_s + due_s,
                second=int(due_s),
                row=int(due.row[number]),
            )
            await self._sleep_until(request.due_s, stop)
            if stop.is_set():
                break
            lag_s = self._loop.time() - request.due_s
            self._ledger.sent(request.name, request.window, request.second, lag_s)
            self._start(self._settle(request))
        while self._tasks and not stop.is_set():
            await asyncio.wait(self._tasks, timeout=_LONGEST_SLEEP_S)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_LAST_ANSWERS_S)
        unfinished = list(self._tasks)
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)

    async def _sleep_until(self, moment_s: float, stop: asyncio.Event) -> None:
        """Wait for a time or the stop, yielding to other tasks at least once."""
        left_s = _LONGEST_SLEEP_S + 1
        while left_s > _LONGEST_SLEEP_S and not stop.is_set():
            left_s = moment_s - self._loop.time()
            await asyncio.sleep(min(max(left_s, 0.0), _LONGEST_SLEEP_S))

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _settle(self, request: _Request) -> None:
        account = self._ledger.account(request.name, request.window)
        sample = request.target.inputs(np.array([request.row]))[0]
        body, headers = encode_request(request.target.input, sample, request.id)
        headers |= self._server.headers(request.name)
        try:
            path = self._server.path(request.name, "/infer")
            reply = await self._server.pool.ask("POST", path, body, headers)
        except NoAnswerError as error:
            account.fail(str(error))
            if self._silent_since_s is None:
                self._silent_since_s = self._loop.time()
            return
        except asyncio.CancelledError:
            account.fail(NOT_WAITED_FOR)
            raise
        self._silent_since_s = None
        self._judge(request, reply)

    def _judge(self, request: _Request, reply: Reply) -> None:
        account = self._ledger.account(request.name, request.window)
        latency_s = self._loop.time() - request.due_s
        if reply.status == GIVEN_UP:
            account.dropped += 1
        elif reply.status in REFUSED:
            account.refused[REFUSED[reply.status]] += 1
        elif reply.status != 200:
            account.fail(f"{reply.status}: {error_in(reply.body) or 'no reason given'}")
        elif (answer := read_answer(reply.body)) is None:
            account.fail("an answer without a label")
        else:
            account.latencies.append(latency_s)
            account.versions[answer.version] += 1
            if latency_s > request.target.tenant.service.slo_s:
                account.late += 1
            else:
                right = answer.label == request.label
                self._ledger.in_time(request.name, request.window, request.second, right=right)
            # spreads the labelled requests evenly
            share = self._labelled
            if int((request.number + 1) * share) > int(request.number * share):
                self._start(self._send_label(request))

    async def _send_label(self, request: _Request) -> None:
        account = self._ledger.account(request.name, request.window)
        headers = {"content-type": "application/json", **self._server.headers(request.name)}
        path = self._server.path(request.name, "/feedback")
        body = encode_label(request.id, request.label)
        stored = False
        try:
            reply = await self._label_pool.ask("POST", path, body, headers)
            stored = reply.status == 200
        except NoAnswerError:
            pass
        finally:
            account.labels_stored += stored
            account.labels_lost += not stored
