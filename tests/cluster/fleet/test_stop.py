"""A cluster that is ended says what is true of its GPUs. Without Ray."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from support.fake_ray import FakeRay

from migrator.cluster.fleet.messages import Answer, Report
from migrator.cluster.fleet.ray_clusters import HEAD, agent_prefix
from migrator.cluster.fleet.stop import stop_cluster


def ray_with(**actors: Any) -> FakeRay:
    """A cluster called shop: its head, and agents by their GPUs."""
    agents = {f"{agent_prefix('shop')}{gpu}": agent for gpu, agent in actors.items()}
    if "head" in actors:
        agents[HEAD.format(name="shop")] = agents.pop(f"{agent_prefix('shop')}head")
    return FakeRay(agents)


def method(answer: Any) -> Any:
    def given(*_: object) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    return SimpleNamespace(remote=lambda *what: lambda: given(*what))


def head(answer: Any) -> Any:
    return SimpleNamespace(stop=method(answer))


def agent(gpu: str, *, hears: bool = True, done: bool = True) -> Any:
    report = Report(gpu, "n", 0, 1, "", 4) if hears else TimeoutError()
    return SimpleNamespace(report=method(report), stop=method(Answer(done, "", 5)))


def test_every_gpu_is_drained_where_head_and_agents_say_so() -> None:
    assert stop_cluster(ray_with(head=head(())), "shop").message == "every GPU is drained"
    ray = ray_with(head=head(()), g1=agent("g1"))  # of a head that led no more
    assert stop_cluster(ray, "shop").message == "every GPU is drained"
    assert len(ray.killed) == 2


def test_gpus_that_did_not_answer_the_head_are_named() -> None:
    ending = stop_cluster(ray_with(head=head(("g2",)), g1=agent("g1")), "shop")
    assert (ending.led, ending.silent) == (True, ("g2",))
    assert ending.message.startswith("g2 did not answer; ")
    assert "ends by itself within 60 s" in ending.message


def test_agents_that_do_not_answer_and_those_that_refuse_are_named_too() -> None:
    ray = ray_with(
        head=head(ConnectionError("the head is gone")),
        g1=agent("g1"),
        g2=agent("g2", hears=False),
        g3=agent("g3", done=False),
    )
    ending = stop_cluster(ray, "shop")
    assert (ending.led, ending.silent) == (False, ("g2", "g3"))
    assert ending.message.startswith("its head, g2, g3 did not answer; ")
    assert len(ray.killed) == 4


def test_without_a_head_gpus_whose_agents_are_gone_are_unknown() -> None:
    ending = stop_cluster(ray_with(g1=agent("g1")), "shop")
    assert ending.silent == ()
    assert ending.message.startswith("its head did not answer; every other agent has drained")
