"""Who is given up, when, and who is not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.agent_links import FakeAgents
from support.virtual_time import run_virtually

from migrator.cluster.fleet.messages import DeposedError, Report
from migrator.cluster.fleet.ray_agents import ANSWER_S
from migrator.cluster.fleet.watch import (
    ALONE_S,
    GIVEN_UP,
    HANGS_S,
    HEDGE_S,
    PAUSED_S,
    PROMPT_S,
    SILENT_S,
    STARTING_S,
    UNANSWERED_S,
    Watch,
)


def report(gpu: str, **keys: Any) -> Report:
    fields = {"begun": True, "up": True, "epoch": 1, **keys}
    return Report(gpu, "node", 0, 1, f"http://{gpu}", **fields)


def watched(links: FakeAgents) -> Watch:
    watch = Watch(links, lambda: links.now_s)
    look(watch)
    return watch


def look(watch: Watch) -> list[str]:
    asyncio.run(watch.collect(1))
    return watch.update_lost()


def test_a_machine_that_is_gone_is_given_up_at_once_and_found_again() -> None:
    links = FakeAgents(report("g1"), report("g2"))
    watch, back = watched(links), links.reports["g1"]
    links.reports["g1"] = None
    links.daemons.clear()
    links.now_s = SILENT_S + 0.1
    assert look(watch) == []  # once may be by chance
    links.now_s += UNANSWERED_S
    assert look(watch) == ["g1 is given up: neither its agent nor its daemon answers"]
    assert watch.alive == ["g2"]
    assert look(watch) == []
    links.reports["g1"] = back
    assert look(watch) == ["g1 is there again"]


@pytest.mark.parametrize("took_s", [ANSWER_S, PAUSED_S + 0.1])
def test_a_daemon_that_is_late_once_keeps_its_tenants_while_its_agent_restarts(
    took_s: float,
) -> None:
    """A check that takes longer than its limit was late for the head, and does not count."""

    class Late(FakeAgents):
        async def answers(self, url: str) -> bool:
            if url not in self.daemons:
                self.now_s += took_s
            return await super().answers(url)

    links = Late(report("g1"))
    watch = watched(links)
    links.reports["g1"] = None
    links.daemons.clear()
    assert look(watch) == []
    paused = took_s > PAUSED_S
    assert look(watch) == (
        [] if paused else ["g1 is given up: neither its agent nor its daemon answers"]
    )


def test_a_daemon_that_answers_without_an_agent_serves_on_for_a_while() -> None:
    links = FakeAgents(report("g1"))
    watch = watched(links)
    links.reports["g1"] = None
    links.now_s = SILENT_S + 0.1
    assert look(watch) + look(watch) == []
    assert list(watch.serving) == ["g1"]
    links.now_s += ALONE_S + 0.1
    assert look(watch) == ["g1 is given up: its agent is gone"]
    assert not watch.alive
    assert list(watch.serving) == ["g1"]  # until its tenants are served elsewhere
    links.daemons.clear()
    links.now_s += 0.5
    look(watch)
    assert not watch.serving


def test_while_a_daemon_starts_its_agent_may_be_silent_for_longer() -> None:
    links = FakeAgents(report("g1", up=False))
    watch = watched(links)
    links.reports["g1"] = None
    links.now_s = STARTING_S - UNANSWERED_S
    assert look(watch) + look(watch) == []
    links.now_s = STARTING_S + 0.1
    assert look(watch) == ["g1 is given up: neither its agent nor its daemon answers"]


def test_agents_of_another_version_are_refused_with_both_versions() -> None:
    watch = Watch(FakeAgents(report("g1", package="0.0.9")), lambda: 0.0)
    (message,) = look(watch)
    assert "0.0.9" in message
    assert "install the same version" in message
    assert not watch.alive


def test_a_gpu_whose_daemon_dies_again_and_again_is_given_up() -> None:
    links = FakeAgents(report("g1", up=False, failures=GIVEN_UP - 1))
    watch = watched(links)
    assert watch.alive == ["g1"]
    links.reports["g1"] = report("g1", up=False, failures=GIVEN_UP, problem="no such GPU")
    assert look(watch) == ["g1 is given up: no such GPU"]


def test_a_head_that_sees_a_newer_epoch_leads_no_more() -> None:
    with pytest.raises(DeposedError, match="epoch 7"):
        look(Watch(FakeAgents(report("g1", epoch=7)), lambda: 0.0))


def test_a_daemon_that_hangs_is_given_up_and_back_once_it_serves_again() -> None:
    links = FakeAgents(report("g1"), report("g2"))
    watch = watched(links)
    links.reports["g1"] = report("g1", silent_s=HANGS_S - 0.1)
    assert look(watch) == []
    links.reports["g1"] = report("g1", up=False, silent_s=HANGS_S)
    assert look(watch) == ["g1 is given up: its daemon has not answered for 3 s"]
    assert (watch.alive, list(watch.serving)) == (["g2"], ["g2"])
    assert list(watch.answering) == ["g1", "g2"]  # its agent takes orders
    links.reports["g1"] = report("g1", up=False)  # it was ended, and is being started
    assert look(watch) == []
    assert watch.alive == ["g2"]
    links.reports["g1"] = report("g1")
    assert look(watch) == ["g1 is there again"]


def test_a_machine_that_refuses_nothing_is_given_up_in_time_and_delays_no_look() -> None:
    """As after a power loss: neither its agent nor a health check of its daemon ever returns."""

    class Stopped(FakeAgents):
        async def report(self, gpu: str, epoch: int) -> Report | None:
            if gpu == "g1" and self.now_s:
                await asyncio.sleep(0.05 if self.late else 1.0)
                self.late = True
                return None
            return await super().report(gpu, epoch)

        async def answers(self, url: str) -> bool:
            del url
            await asyncio.sleep(ANSWER_S)
            return False

    async def inside() -> tuple[float, float]:
        links, clock = Stopped(report("g1"), report("g2")), asyncio.get_running_loop().time
        watch, longest_s = Watch(links, clock), 0.0
        await watch.collect(1)
        links.now_s, stopped_s = 1.0, clock()
        async with asyncio.timeout(60):
            while "g1" not in watch.dead:
                asked_s = clock()
                await watch.collect(1)
                longest_s = max(longest_s, clock() - asked_s)
                watch.update_lost()
                await asyncio.sleep(0.05)
        return clock() - stopped_s, longest_s

    noticed_s, longest_s = run_virtually(inside())
    assert noticed_s < HEDGE_S + 2 * ANSWER_S + 2 * PROMPT_S
    assert longest_s == pytest.approx(1.0 + PROMPT_S)
