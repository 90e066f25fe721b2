"""Who is there: what every agent said last, and which GPUs are given up.

An agent that is silent may only be busy or being restarted: its daemon is asked as well, and
serves on while it answers.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from migrator import __version__
from migrator.agents.links import DeposedError, Ears, Heard
from migrator.agents.reports import Report

MISSES, SILENT_S = 2, 1.0
"""An agent is gone that says nothing for so long and so many times in a row, while its daemon
does not answer either."""
STARTING_S = 5.0
"""The same where there is no daemon yet that could answer."""
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
        self._misses: Counter[str] = Counter()

    @property
    def alive(self) -> list[str]:
        """GPUs whose daemons can be relied on."""
        return [each for each in list(self.heard) if each not in self.dead]

    @property
    def reports(self) -> dict[str, Report]:
        """Of those."""
        return {gpu: self.heard[gpu].report for gpu in self.alive}

    async def look(self, epoch: int) -> list[Report]:
        """Hear everybody; DeposedError where somebody has heard of a newer head."""
        known = await self._links.known()
        found = await asyncio.gather(*(self._links.report(each, epoch) for each in known))
        now_s, reports = self._clock(), [each for each in found if each is not None]
        for report in reports:
            if epoch and report.epoch > epoch:
                raise DeposedError(f"a head of epoch {report.epoch} leads; this one ends")
            self.heard[report.gpu] = Heard(report, now_s)
        silent = [gpu for gpu in self.heard if gpu not in {each.gpu for each in reports}]
        answers = await asyncio.gather(*map(self._daemon_answers, silent))
        missed = {gpu for gpu, there in zip(silent, answers, strict=True) if not there}
        self._misses = Counter({gpu: self._misses[gpu] + 1 for gpu in missed})
        return reports

    def judge(self) -> list[str]:
        """Who is given up and who is there again, in words."""
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
        limit_s = SILENT_S if heard.report.up else STARTING_S
        if self._misses[gpu] >= MISSES and now_s - heard.at_s > limit_s:
            return "neither its agent nor its daemon answers"
        if heard.alone_s is not None and now_s - heard.alone_s > ALONE_S:
            return "its agent is gone"
        if heard.report.package != __version__:
            return other_version(heard.report)
        return heard.report.words if heard.report.failures >= GIVEN_UP else None

    async def _daemon_answers(self, gpu: str) -> bool:
        heard = self.heard[gpu]
        there = heard.report.up and await self._links.answers(heard.report.url)
        if there and heard.alone_s is None:
            heard.alone_s = self._clock()
        return there


def other_version(report: Report) -> str:
    """Why an agent of another version is not spoken to."""
    return (
        f"its agent runs migrator {report.package}, the head {__version__}; install the same "
        "version on every machine"
    )
