"""Which GPUs are up: the last report of every agent, and which GPUs are given up.

An agent that is silent may only be busy or being restarted: its daemon is asked as well, and
serves on while it answers. A daemon that its agent cannot reach for `HANGS_S` hangs: its tenants
are served elsewhere, whether it is ended or comes back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from migrator import __version__
from migrator.cluster.fleet.links import DeposedError, Ears, Heard
from migrator.cluster.fleet.reports import Report

HEDGE_S = 0.5
"""The daemon of an agent that has not reported after this time is asked directly."""
PROMPT_S = 0.2
"""One look waits this long for health checks; those that take longer count at a later one."""
SILENT_S = 1.0
"""An agent that is silent for longer is gone if its daemon does not answer either."""
UNANSWERED_S = 0.3
"""The span of failed health checks that is believed: two refused ones, or one that timed out."""
STARTING_S = 5.0
"""In place of SILENT_S while there is no daemon yet that could answer."""
HANGS_S = 3.0
"""A daemon hangs that has served and does not answer its agent for so long."""
ALONE_S = 8.0
"""A daemon that answers but has had no agent for so long is left: its tenants move."""
GIVEN_UP = 3
"""Times in a row that a daemon may die before it serves; the GPU may be gone."""


class Watch:
    """The GPUs of one cluster, as their head sees them."""

    def __init__(self, links: Ears, clock: Callable[[], float]) -> None:
        self._links, self._clock = links, clock
        self.heard: dict[str, Heard] = {}
        self.dead: dict[str, str] = {}
        """GPUs that are given up, and why."""
        self._silent: set[str] = set()
        """GPUs whose agents did not report at the last look."""
        self._checks: dict[str, asyncio.Task[None]] = {}

    @property
    def alive(self) -> list[str]:
        """GPUs whose daemons can be relied on."""
        return [each for each in list(self.heard) if each not in self.dead]

    @property
    def open(self) -> list[str]:
        """GPUs that tenants may be placed on: those that no operator has drained."""
        return [each for each in self.alive if not self.heard[each].report.drained]

    @property
    def reports(self) -> dict[str, Report]:
        """Of the GPUs that are alive."""
        return {gpu: self.heard[gpu].report for gpu in self.alive}

    @property
    def answering(self) -> dict[str, Report]:
        """Of all GPUs whose agents can be given orders, also those whose daemons hang."""
        return {g: e.report for g, e in list(self.heard.items()) if g not in self._silent}

    @property
    def serving(self) -> dict[str, Report]:
        """Of all GPUs whose daemons take requests, also those that tenants are to leave."""
        return {
            gpu: each.report
            for gpu, each in list(self.heard.items())
            if gpu not in self.dead or self._daemon_answers(gpu, each)
        }

    async def look(self, epoch: int) -> list[Report]:
        """Hear every agent; DeposedError where one has heard of a newer head."""
        known = await self._links.known()
        found = await asyncio.gather(*(self._report(each, epoch) for each in known))
        now_s, reports = self._clock(), [each for each in found if each is not None]
        for report in reports:
            if epoch and report.epoch > epoch:
                raise DeposedError(f"a head of epoch {report.epoch} leads; this one ends")
            self.heard[report.gpu] = Heard(report, now_s)
        self._silent = set(self.heard).difference(each.gpu for each in reports)
        for gpu in self._silent:
            self._check(gpu)
        if self._checks:
            await asyncio.wait(self._checks.values(), timeout=PROMPT_S)
        return reports

    def judge(self) -> list[str]:
        """Which GPUs are given up and which are there again, in words."""
        said = []
        for gpu in self.heard:
            why = self._why_dead(gpu)
            if why is None and self.dead.pop(gpu, None) is not None:
                said.append(f"{gpu} is there again")
            elif why is not None:
                if gpu not in self.dead:
                    said.append(f"{gpu} is given up: {why}")
                self.dead[gpu] = why
        return said

    def _why_dead(self, gpu: str) -> str | None:
        heard, now_s = self.heard[gpu], self._clock()
        report = heard.report
        limit_s = SILENT_S if report.up else STARTING_S
        refused = heard.unanswered_s is not None and now_s - heard.unanswered_s >= UNANSWERED_S
        if gpu in self._silent and refused and now_s - heard.at_s > limit_s:
            return "neither its agent nor its daemon answers"
        if heard.alone_s is not None and now_s - heard.alone_s > ALONE_S:
            return "its agent is gone"
        if report.package != __version__:
            return other_version(report)
        if report.silent_s >= HANGS_S:
            return f"its daemon has not answered for {HANGS_S:g} s"
        if report.failures >= GIVEN_UP:
            return report.words
        # it is not there again before its daemon serves
        return self.dead.get(gpu) if report.begun and not report.up else None

    async def _report(self, gpu: str, epoch: int) -> Report | None:
        asked = asyncio.ensure_future(self._links.report(gpu, epoch))
        await asyncio.wait([asked], timeout=HEDGE_S)
        if not asked.done() and gpu in self.heard:
            self._check(gpu)
        return await asked

    def _check(self, gpu: str) -> None:
        """Ask the daemon itself, one question at a time."""
        if gpu not in self._checks:
            self._checks[gpu] = asyncio.create_task(self._checked(gpu, self.heard[gpu]))

    async def _checked(self, gpu: str, heard: Heard) -> None:
        sent_s = self._clock()
        try:
            if heard.report.up and await self._links.answers(heard.report.url):
                heard.unanswered_s = None
                heard.alone_s = sent_s if heard.alone_s is None else heard.alone_s
            elif heard.unanswered_s is None:
                heard.unanswered_s = sent_s
        finally:
            del self._checks[gpu]

    def _daemon_answers(self, gpu: str, heard: Heard) -> bool:
        if gpu in self._silent:
            return heard.alone_s is not None and heard.unanswered_s is None
        return heard.report.up


def other_version(report: Report) -> str:
    """Why an agent of another version is not spoken to."""
    return (
        f"its agent runs migrator {report.package}, the head {__version__}; install the same "
        "version on every machine"
    )
