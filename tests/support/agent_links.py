"""Agents of a cluster that report what a test wants."""

from __future__ import annotations

from migrator.cluster.fleet.messages import Answer, Report


class FakeAgents:
    """Agents that say what the test wants, or nothing."""

    def __init__(self, *reports: Report) -> None:
        self.reports: dict[str, Report | None] = {of_gpu.gpu: of_gpu for of_gpu in reports}
        self.daemons: set[str] = {of_gpu.url for of_gpu in reports}
        self.now_s = 0.0
        self.late = False
        self.trouble = ""

    async def gpus(self) -> tuple[str, ...]:
        return tuple(self.reports)

    async def report(self, gpu: str, epoch: int) -> Report | None:
        del epoch
        return self.reports[gpu]

    async def order(self, gpu: str, name: str, epoch: int, *what: object) -> Answer | None:
        raise NotImplementedError

    async def answers(self, url: str) -> bool:
        return url in self.daemons
