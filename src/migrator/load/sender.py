"""Requests on their way: each sent when it is due, its answer judged, its label sent back."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass

from migrator.load.books import GIVEN_UP, REFUSED, Books
from migrator.load.http import HttpPool, NoAnswerError, Reply
from migrator.load.messages import Taken, feedback, problem, question, said
from migrator.load.samples import Questions
from migrator.load.schedule import Schedule
from migrator.load.server import Server
from migrator.workload.live import LiveTenant

_LONGEST_SLEEP_S = 0.2
"""So that a stop is noticed soon."""
_LAST_ANSWERS_S = 2.0
"""How long answers are waited for once a load is stopped."""
NOT_WAITED_FOR = "not waited for"


@dataclass(frozen=True, eq=False)
class Asked:
    """A tenant whose model is asked."""

    tenant: LiveTenant
    taken: Taken
    questions: Questions
    run: str
    """Part of every request's id: another load's requests are others."""


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
        """Its tenant."""
        return self.asked.tenant.name

    @property
    def id(self) -> str:
        """Its own, over all loads."""
        return f"{self.name}-{self.asked.run}-{self.number}"

    @property
    def label(self) -> int:
        """The true one."""
        return int(self.asked.questions.samples.labels[self.row])

    def is_labelled(self, part: float) -> bool:
        """Whether it is among the part whose labels are sent, which is spread evenly."""
        return int((self.number + 1) * part) > int(self.number * part)


class Sender:
    """Sends requests and keeps the books; `begin_s` is on the event loop's clock."""

    def __init__(
        self,
        server: Server,
        labels: HttpPool | None,
        labelled: float,
        asked: list[Asked],
        books: Books,
        begin_s: float,
        first: int,
    ) -> None:
        self._server, self._labels, self._asked = server, labels, asked
        self._labelled = labelled
        self.books, self.begin_s, self.first = books, begin_s, first
        self.count = 0
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._silent_since_s: float | None = None

    def silent_s(self) -> float:
        """How long the server has answered nothing although it was asked."""
        since_s = self._silent_since_s
        return 0.0 if since_s is None else self._loop.time() - since_s

    async def send(self, due: Schedule, stop: asyncio.Event) -> bool:
        """Send every request when it is due and wait for the last answers; False: stopped."""
        for number in range(len(due)):
            request = self._request(due, number)
            if not await self._reached(request.due_s, stop):
                break
            self.books.sent(
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
        """Wait for a moment, at least until others have had their turn; False: stopped before."""
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
        """Ask, and write down what becomes of it."""
        account = self.books.account(request.name, request.window)
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
        account = self.books.account(request.name, request.window)
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
                self.books.in_time(request.name, request.window, request.second, right=right)
            if self._labels is not None and request.is_labelled(self._labelled):
                self._start(self._tell(self._labels, request))

    async def _tell(self, pool: HttpPool, request: _Request) -> None:
        """Send the true label back."""
        account = self.books.account(request.name, request.window)
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
