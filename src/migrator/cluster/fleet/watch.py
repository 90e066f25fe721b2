"""Which GPUs are up and which count as lost, by the reports of their agents.

A silent agent may only be busy or restarting, so its daemon is checked directly and keeps its
tenants while it responds. A daemon that its agent cannot reach for `HANGS_S` hangs: its tenants are
placed elsewhere, whether it is killed or recovers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from migrator import __version__
from migrator.cluster.fleet.messages import AgentLinks, DeposedError, Report

HEDGE_S = 0.5
"""Seconds without a report after which the agent's daemon is checked directly."""
PROMPT_S = 0.2
"""Seconds that one look waits for health checks; slower checks count at a later look."""
SILENT_S = 1.0
"""Seconds after which a silent agent is lost if its daemon does not respond either."""
UNANSWERED_S = 0.3
"""Seconds that failed health checks must span. One is not enough: a busy machine is late too."""
PAUSED_S = 2.5
"""A health check that takes more seconds than this shows that the head was paused. It says nothing
about the daemon."""
STARTING_S = 5.0
"""Replaces SILENT_S while there is no daemon yet that could respond."""
HANGS_S = 3.0
"""Seconds without a response to its agent after which a daemon that has served counts as hung."""
ALONE_S = 30.0
"""Seconds after which the tenants of a daemon that responds but has no agent are moved. Until then
nothing is lost, and on a busy machine Ray needs many seconds to restart an agent."""
GIVEN_UP = 3
"""Consecutive failures of a daemon before it serves after which its GPU counts as lost."""


@dataclass
class LastReport:
    """The last report of a GPU, with the health checks since."""

    report: Report
    at_s: float
    alone_s: float | None = None
    """Since when the daemon has responded without an agent."""
    unanswered_s: float | None = None
    """When the first of its daemon's consecutive failed health checks was sent."""
    unanswered: int = 0
    """How many there are."""


class Watch:
    """The state of all GPUs of a cluster."""

    def __init__(self, links: AgentLinks, clock: Callable[[], float]) -> None:
        self._links, self._clock = links, clock
        self.last: dict[str, LastReport] = {}
        self.dead: dict[str, str] = {}
        """Lost GPU -> the reason."""
        self._silent: set[str] = set()
        """GPUs whose agents did not report at the last look."""
        self._checks: dict[str, asyncio.Task[None]] = {}

    @property
    def alive(self) -> list[str]:
        return [gpu for gpu in list(self.last) if gpu not in self.dead]

    @property
    def open(self) -> list[str]:
        """GPUs that accept placements: alive and not drained."""
        return [gpu for gpu in self.alive if not self.last[gpu].report.drained]

    @property
    def reports(self) -> dict[str, Report]:
        return {gpu: self.last[gpu].report for gpu in self.alive}

    @property
    def answering(self) -> dict[str, Report]:
        """Reports of all GPUs whose agents accept orders, including those with hung daemons."""
        last = dict(self.last)
        return {gpu: last[gpu].report for gpu in last if gpu not in self._silent}

    @property
    def serving(self) -> dict[str, Report]:
        """Reports of all GPUs whose daemons accept requests, including those that tenants leave."""
        return {
            gpu: last.report
            for gpu, last in list(self.last.items())
            if gpu not in self.dead or self._daemon_answers(gpu, last)
        }

    async def collect(self, epoch: int) -> list[Report]:
        """Collect the reports of all agents; DeposedError if one has seen a newer head."""
        gpus = await self._links.gpus()
        answers = await asyncio.gather(*(self._report(gpu, epoch) for gpu in gpus))
        now_s, reports = self._clock(), [report for report in answers if report is not None]
        for report in reports:
            if epoch and report.epoch > epoch:
                raise DeposedError(f"a head of epoch {report.epoch} leads; this one ends")
            self.last[report.gpu] = LastReport(report, now_s)
        self._silent = set(self.last).difference(report.gpu for report in reports)
        for gpu in self._silent:
            self._check(gpu)
        if self._checks:
            await asyncio.wait(self._checks.values(), timeout=PROMPT_S)
        return reports

    def update_lost(self) -> list[str]:
        """Update which GPUs are lost; return a message for each lost or recovered GPU."""
        messages = []
        for gpu in self.last:
            why = self._why_dead(gpu)
            if why is None and self.dead.pop(gpu, None) is not None:
                messages.append(f"{gpu} is there again")
            elif why is not None:
                if gpu not in self.dead:
                    messages.append(f"{gpu} is given up: {why}")
                self.dead[gpu] = why
        return messages

    def _why_dead(self, gpu: str) -> str | None:
        last, now_s = self.last[gpu], self._clock()
        report = last.report
        limit_s = SILENT_S if report.up else STARTING_S
        since_s = now_s if last.unanswered_s is None else last.unanswered_s
        refused = last.unanswered > 1 and now_s - since_s >= UNANSWERED_S
        if gpu in self._silent and refused and now_s - last.at_s > limit_s:
            return "neither its agent nor its daemon answers"
        if last.alone_s is not None and now_s - last.alone_s > ALONE_S:
            return "its agent is gone"
        if report.package != __version__:
            return (
                f"its agent runs migrator {report.package}, the head {__version__}; install the "
                "same version on every machine"
            )
        if report.silent_s >= HANGS_S:
            return f"its daemon has not answered for {HANGS_S:g} s"
        if report.failures >= GIVEN_UP:
            return report.problem
        # a lost GPU has recovered only when its daemon serves
        return self.dead.get(gpu) if report.begun and not report.up else None

    async def _report(self, gpu: str, epoch: int) -> Report | None:
        request = asyncio.ensure_future(self._links.report(gpu, epoch))
        await asyncio.wait([request], timeout=HEDGE_S)
        if not request.done() and gpu in self.last:
            self._check(gpu)
        return await request

    def _check(self, gpu: str) -> None:
        """Check the daemon directly, with one health check at a time."""
        if gpu not in self._checks:
            self._checks[gpu] = asyncio.create_task(self._checked(gpu, self.last[gpu]))

    async def _checked(self, gpu: str, last: LastReport) -> None:
        sent_s = self._clock()
        try:
            if last.report.up and await self._links.answers(last.report.url):
                last.unanswered_s, last.unanswered = None, 0
                last.alone_s = sent_s if last.alone_s is None else last.alone_s
            elif self._clock() - sent_s <= PAUSED_S:
                last.unanswered += 1
                last.unanswered_s = sent_s if last.unanswered_s is None else last.unanswered_s
        finally:
            del self._checks[gpu]

    def _daemon_answers(self, gpu: str, last: LastReport) -> bool:
        if gpu in self._silent:
            return last.alone_s is not None and last.unanswered_s is None
        return last.report.up
