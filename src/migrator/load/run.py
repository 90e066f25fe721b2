"""`migrator load`: sends a scenario's requests to a running server and counts their outcomes.

Open loop: every request is sent when it is due, whatever the outcome of earlier ones, and its
latency counts from that time. The same seed gives the same requests as in the simulator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import uuid4

from migrator.core.errors import InputError
from migrator.core.load_outcome import LoadOutcome
from migrator.learn.benchmarks.benchmark import Origin
from migrator.learn.registry import benchmark
from migrator.load.http import HttpPool, NoAnswerError, Reply
from migrator.load.ledger import GIVEN_UP, REFUSED, Ledger
from migrator.load.requests import Questions, Schedule, schedule
from migrator.load.server import Server, ServerWindow, Taken, feedback, problem, question, said
from migrator.workload.live import LiveScenario, LiveTenant

CONNECTIONS, LABEL_CONNECTIONS = 512, 64
_AT_ONCE = 0.02
"""Share of a window that may have passed for a run to begin in it without `now`."""


@dataclass(frozen=True)
class LoadSettings:
    """How a load is sent."""

    url: str
    tenants: tuple[str, ...] = ()
    """Tenants whose requests are sent; empty for all."""
    windows: int = 1
    speed: float = 1.0
    """Seconds of the traces per second."""
    tokens: Mapping[str, str] = field(default_factory=dict)
    """By tenant."""
    labels: float = 1.0
    """The share of the answers for which the true label is sent back."""
    now: bool = False
    """Begin in the middle of the server's window instead of waiting for the next."""
    timeout_s: float = 10.0
    """Seconds to wait for a response."""
    patience_s: float = 10.0
    """Seconds without any response after which the load ends."""


@dataclass(frozen=True)
class Standing:
    """Progress of a load."""

    waits_s: float
    """Seconds until its first window; 0 once it has begun."""
    passed_s: float
    whole_s: float
    window: int
    """The server's window number."""
    sent: int
    goodput: int


def questions_of(tenant: LiveTenant) -> Questions:
    """A tenant's labelled samples; InputError if the scenario does not name their source."""
    if tenant.benchmark is None:
        raise InputError(
            f"{tenant.name}: where its labelled samples come from is not said; give it "
            "live.benchmark in the scenario"
        )
    found = benchmark(tenant.benchmark)
    return Questions(found, found.load(Origin(seed=tenant.seed)), tenant.seed)


def chosen(live: LiveScenario, names: Sequence[str]) -> list[int]:
    """The indices of the named tenants; InputError for an unknown name."""
    known = [each.name for each in live.tenants]
    unknown = [each for each in names if each not in known]
    if unknown:
        raise InputError(
            f"--tenant: {live.scenario.name} has no {unknown[0][:60]!r}; use {', '.join(known)}"
        )
    return [known.index(each) for each in dict.fromkeys(names)] or list(range(len(known)))


async def load(
    live: LiveScenario,
    settings: LoadSettings,
    watch: Callable[[Standing], None] = lambda _: None,
    stop: asyncio.Event | None = None,
) -> LoadOutcome:
    """Send all requests and count the responses. `stop` ends it early with the results so far."""
    indices = chosen(live, settings.tenants)
    tenants = [live.tenants[each] for each in indices]
    asked = [questions_of(each) for each in tenants]
    pool = HttpPool(settings.url, most=CONNECTIONS, timeout_s=settings.timeout_s)
    labels = HttpPool(settings.url, most=LABEL_CONNECTIONS, timeout_s=settings.timeout_s)
    server = Server(settings.url, pool, settings.tokens)
    try:
        takes = await _met(server, tenants, asked)
        first, begin_s, skipped_s = _begin(await server.window(), live, settings)
        due = schedule(
            live.scenario, indices, asked, first, settings.windows, settings.speed
        ).since(skipped_s)
        ledger = _new_ledger(live, tenants, first, settings)
        sender = Sender(
            server,
            labels if settings.labels else None,
            settings.labels,
            [Asked(*each, uuid4().hex[:8]) for each in zip(tenants, takes, asked, strict=True)],
            ledger,
            begin_s,
            first,
        )
        ended = await _sent(sender, due, settings, watch, stop or asyncio.Event(), live)
    finally:
        pool.close()
        labels.close()
    return _outcome(live, settings, ledger, ended)


async def _met(
    server: Server, tenants: Sequence[LiveTenant], asked: Sequence[Questions]
) -> list[Taken]:
    """Wait until the server can answer for every tenant. Returns the input of every model."""
    takes = []
    for tenant, questions in zip(tenants, asked, strict=True):
        taken = await server.taken(tenant.name)
        sample = questions.samples.inputs[0]
        if not taken.fits(sample):
            raise InputError(
                f"{tenant.name}: its model takes {taken.datatype} of shape {list(taken.shape)}, "
                f"and samples of {tenant.benchmark} are {sample.dtype.name} of shape "
                f"{list(sample.shape)}; correct live.pixels or live.benchmark"
            )
        takes.append(taken)
    for tenant in tenants:
        await server.ready(tenant.name)
    return takes


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
    if settings.now or passed_s < _AT_ONCE * window_s:
        return now.number, now.began_s, passed_s
    missed = int(passed_s // window_s) + 1
    return now.number + missed, now.began_s + missed * window_s, 0.0


def _new_ledger(
    live: LiveScenario, tenants: Sequence[LiveTenant], first: int, settings: LoadSettings
) -> Ledger:
    seconds = int(-(-settings.windows * live.scenario.window_s // 1))
    windows = range(first, first + settings.windows)
    return Ledger([each.name for each in tenants], windows, seconds)


async def _sent(
    sender: Sender,
    due: Schedule,
    settings: LoadSettings,
    watch: Callable[[Standing], None],
    stop: asyncio.Event,
    live: LiveScenario,
) -> str | None:
    """Send all requests. Returns why it ended early, or None."""
    watching = asyncio.create_task(_watched(sender, settings, watch, stop, live))
    try:
        whole = await sender.send(due, stop)
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    if whole:
        return None
    silent = sender.silent_s() > settings.patience_s
    return f"the server answered nothing for {settings.patience_s:g} s" if silent else "interrupted"


async def _watched(
    sender: Sender,
    settings: LoadSettings,
    watch: Callable[[Standing], None],
    stop: asyncio.Event,
    live: LiveScenario,
) -> None:
    """Report progress several times per second, and stop if the server does not respond."""
    loop = asyncio.get_running_loop()
    whole_s = settings.windows * live.scenario.window_s
    while not stop.is_set():
        passed_s = loop.time() - sender.begin_s
        into = min(max(passed_s, 0.0), whole_s)
        number = sender.first + min(int(into / live.scenario.window_s), settings.windows - 1)
        watch(
            Standing(max(0.0, -passed_s), into, whole_s, number, sender.count, sender.ledger.right)
        )
        if sender.silent_s() > settings.patience_s:
            stop.set()
        await asyncio.sleep(0.2)


def _outcome(
    live: LiveScenario, settings: LoadSettings, ledger: Ledger, ended: str | None
) -> LoadOutcome:
    return LoadOutcome(
        scenario=live.scenario.name,
        url=settings.url,
        seed=live.scenario.seed,
        speed=settings.speed,
        window_s=live.scenario.window_s,
        windows=ledger.windows(),
        tenants=ledger.tallies(),
        whole=ledger.whole(),
        seconds=ledger.seconds(),
        lag_p99_s=ledger.lag_p99_s(),
        ended=ended,
    )


_LONGEST_SLEEP_S = 0.2
"""Upper limit of a sleep in seconds, so that a stop is noticed soon."""
_LAST_ANSWERS_S = 2.0
"""Seconds to wait for responses after a load is stopped."""
NOT_WAITED_FOR = "not waited for"


@dataclass(frozen=True, eq=False)
class Asked:
    """A tenant with its model's input and its samples."""

    tenant: LiveTenant
    taken: Taken
    questions: Questions
    run: str
    """Part of every request id, which makes ids of different loads distinct."""


@dataclass(frozen=True)
class _Request:
    """One request."""

    asked: Asked
    number: int
    window: int
    due_s: float
    second: int
    row: int

    @property
    def name(self) -> str:
        """The tenant's name."""
        return self.asked.tenant.name

    @property
    def id(self) -> str:
        """Unique over all loads."""
        return f"{self.name}-{self.asked.run}-{self.number}"

    @property
    def label(self) -> int:
        """The true label."""
        return int(self.asked.questions.samples.labels[self.row])

    def is_labelled(self, part: float) -> bool:
        """Whether its label is sent. The labelled requests are spread evenly."""
        return int((self.number + 1) * part) > int(self.number * part)


class Sender:
    """Sends requests and counts their outcomes. `begin_s` is a time of the event loop's clock."""

    def __init__(
        self,
        server: Server,
        labels: HttpPool | None,
        labelled: float,
        asked: list[Asked],
        ledger: Ledger,
        begin_s: float,
        first: int,
    ) -> None:
        self._server, self._labels, self._asked = server, labels, asked
        self._labelled = labelled
        self.ledger, self.begin_s, self.first = ledger, begin_s, first
        self.count = 0
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._silent_since_s: float | None = None

    def silent_s(self) -> float:
        """Seconds for which the server has not responded to any request."""
        since_s = self._silent_since_s
        return 0.0 if since_s is None else self._loop.time() - since_s

    async def send(self, due: Schedule, stop: asyncio.Event) -> bool:
        """Send every request when it is due and wait for the last responses; False if stopped."""
        for number in range(len(due)):
            request = self._request(due, number)
            if not await self._reached(request.due_s, stop):
                break
            self.ledger.sent(
                request.name, request.window, request.second, self._loop.time() - request.due_s
            )
            self.count += 1
            self._start(self._settle(request))
        while self._tasks and not stop.is_set():
            await asyncio.wait(self._tasks, timeout=_LONGEST_SLEEP_S)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_LAST_ANSWERS_S)
        unfinished = list(self._tasks)
        for each in unfinished:
            each.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)
        return not stop.is_set()

    def _request(self, due: Schedule, number: int) -> _Request:
        due_s = float(due.due_s[number])
        return _Request(
            asked=self._asked[due.tenant[number]],
            number=number,
            window=self.first + int(due.window[number]),
            due_s=self.begin_s + due_s,
            second=int(due_s),
            row=int(due.row[number]),
        )

    async def _reached(self, moment_s: float, stop: asyncio.Event) -> bool:
        """Wait for a time, yielding to other tasks at least once; False if stopped before."""
        while not stop.is_set():
            left_s = moment_s - self._loop.time()
            await asyncio.sleep(min(max(left_s, 0.0), _LONGEST_SLEEP_S))
            if left_s <= _LONGEST_SLEEP_S:
                return not stop.is_set()
        return False

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _settle(self, request: _Request) -> None:
        """Send a request and count its outcome."""
        account = self.ledger.account(request.name, request.window)
        sample = request.asked.questions.samples.inputs[request.row]
        body, headers = question(request.asked.taken, sample, request.id)
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
        account = self.ledger.account(request.name, request.window)
        latency_s = self._loop.time() - request.due_s
        if reply.status == GIVEN_UP:
            account.dropped += 1
        elif reply.status in REFUSED:
            account.refused[REFUSED[reply.status]] += 1
        elif reply.status != 200:
            account.fail(f"{reply.status}: {problem(reply.body) or 'no reason given'}")
        elif (answer := said(reply.body, reply.headers)) is None:
            account.fail("an answer without a label")
        else:
            account.latency_s.append(latency_s)
            account.versions[answer.version] += 1
            if latency_s > request.asked.tenant.service.slo_s:
                account.late += 1
            else:
                right = answer.label == request.label
                self.ledger.in_time(request.name, request.window, request.second, right=right)
            if self._labels is not None and request.is_labelled(self._labelled):
                self._start(self._tell(self._labels, request))

    async def _tell(self, pool: HttpPool, request: _Request) -> None:
        """Send the true label."""
        account = self.ledger.account(request.name, request.window)
        headers = {"content-type": "application/json", **self._server.headers(request.name)}
        path = self._server.path(request.name, "/feedback")
        try:
            reply = await pool.ask("POST", path, feedback(request.id, request.label), headers)
        except NoAnswerError:
            account.labels_lost += 1
            return
        except asyncio.CancelledError:
            account.labels_lost += 1
            raise
        account.labels_stored += reply.status == 200
        account.labels_lost += reply.status != 200
